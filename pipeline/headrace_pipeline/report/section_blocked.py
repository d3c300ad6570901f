"""For how long publishers were stopped, at which queues, and who brought the load."""

from __future__ import annotations

from headrace_pipeline.limits import REPORT_QUEUES_MAX
from headrace_pipeline.report import measure, plots, quantity
from headrace_pipeline.report.facts import COLOURS, Facts
from headrace_pipeline.report.markup import Given, Markup, Part, el, join, name
from headrace_pipeline.report.measure import Held
from headrace_pipeline.report.section import Section, keys, rows_of, sentence
from headrace_pipeline.report.table import Row, behind, moment, number, table

OTHERS = "a-other"
NOBODY = "a-none"


def blocked(facts: Facts) -> Section:
    """Return the section of blocked time and blame."""
    title = "Time for which publishers were blocked, by the account that is blamed"
    if not facts.held:
        return Section("blocked", title, _nobody(facts), Markup(""))
    colours: list[tuple[str, Part]] = [
        (facts.colour(each.id), name(each.name)) for each in facts.accounts[:COLOURS]
    ]
    if len(facts.accounts) > COLOURS:
        colours.append((OTHERS, f"{len(facts.accounts) - COLOURS:,} others"))
    if facts.blocked_ms - sum(each.blamed_ms for each in facts.accounts) > 0.5:
        colours.append((NOBODY, "nobody: what waited was older"))
    body = [keys(colours), _over_time(facts), _by_queue(facts), _table(facts)]
    return Section("blocked", title, _conclusion(facts), join(body))


def _nobody(facts: Facts) -> Markup:
    told = "No publisher was blocked by a queue in this time."
    return sentence(
        told if facts.told else "There is no telemetry that would say.", elsewhere(facts)
    )


def elsewhere(facts: Facts) -> str | None:
    """Say for how long publishers waited for what belongs to no queue."""
    if facts.elsewhere_ms < 500:
        return None
    waited = quantity.duration(facts.elsewhere_ms / 1000)
    return f" Limits that belong to no queue (alarms, intake, rates) blocked them for {waited}."


def _conclusion(facts: Facts) -> Markup:
    first = facts.held[0]
    total = quantity.duration(facts.blocked_ms / 1000)
    parts: list[Part] = [f"Publishers waited {total} in sum, "]
    parts.append(f"{quantity.share(first.blocked_ms / facts.blocked_ms)} of it at ")
    parts.append(facts.called(first.queue))
    if not facts.accounts:
        return sentence(*parts, "; no account is blamed for it.", elsewhere(facts))
    who = facts.accounts[0]
    share = who.blamed_ms / facts.blocked_ms
    return sentence(
        *parts,
        "; ",
        name(who.name),
        f" is blamed for {quantity.share(share)} of all.",
        elsewhere(facts),
    )


def _over_time(facts: Facts) -> Markup:
    series = _series(facts)
    sums = [sum(value or 0.0 for value in column) for column in zip(*_values(series), strict=True)]
    top = quantity.top(max(sums, default=0.0))
    who = "publisher" if top == 1 else "publishers"
    axis = plots.Axis(top, f"{quantity.count(top)} {who} blocked", quantity.count(top / 2))
    times = quantity.ticks(facts.span.start, facts.span.end)
    what = (
        "Publishers blocked at a time, on average over each "
        f"{quantity.duration(facts.span.step_s)}, by account; at most {quantity.count(max(sums))}"
    )
    plot = plots.stack_plot(what, series, axis, times, 130)
    rows = []
    for step, values in enumerate(zip(*_values(series), strict=True)):
        if any(values):
            cells = [number(quantity.count(value or 0), value or 0) for value in values]
            rows.append([moment(facts.span.at(step)), *cells])
    heads = ["From (UTC)", *(each.name for each in series)]
    caption = "Publishers blocked on average, by time and account"
    given: Given = {
        "data-start": int(facts.span.start.timestamp()),
        "data-step": facts.span.step_s,
        "class": "wide",
    }
    head = el(
        "figcaption",
        None,
        el("b", None, "Publishers blocked at a time"),
        " ",
        el("small", None, f"mean of each {quantity.duration(facts.span.step_s)}"),
    )
    return el("figure", given, head, plot, behind("Values", table(caption, heads, rows)))


def _values(series: list[plots.Series]) -> list[list[float | None]]:
    return [list(each.values) for each in series]


def _series(facts: Facts) -> list[plots.Series]:
    """Return blocked milliseconds by milliseconds of the step: publishers blocked at a time."""
    blame, known = facts.frames.blame, facts.known
    everything = measure.by_step(facts.frames.queues, "blocked_ms", "sum", facts.span, known)
    rest = _each(facts, everything)
    found = []
    for each in facts.accounts[:COLOURS]:
        rows = blame[blame["origin_account"] == each.id]
        sums = measure.by_step(rows, "blamed_ms", "sum", facts.span, known)
        values = _each(facts, sums)
        rest = [left - value for left, value in zip(rest, values, strict=True)]
        found.append(plots.Series(each.name, facts.colour(each.id), values))
    blamed = _each(facts, measure.by_step(blame, "blamed_ms", "sum", facts.span, known))
    everybody = _each(facts, everything)
    nobody = [max(value - by, 0.0) for value, by in zip(everybody, blamed, strict=True)]
    others = [value - none for value, none in zip(rest, nobody, strict=True)]
    for who, css, values in (("others", OTHERS, others), ("nobody", NOBODY, nobody)):
        shown = [value if value > 1e-6 else 0.0 for value in values]
        if any(shown):
            found.append(plots.Series(who, css, shown))
    return found


def _each(facts: Facts, sums: list[float | None]) -> list[float]:
    """Return milliseconds by those of their steps."""
    pairs = zip(sums, facts.seconds, strict=True)
    return [(value or 0.0) / (seconds * 1000) for value, seconds in pairs]


def _by_queue(facts: Facts) -> Markup:
    shown = facts.held[:REPORT_QUEUES_MAX]
    longest = shown[0].blocked_ms
    rows: list[tuple[Part, Part, Part]] = []
    for each in shown:
        parts = _parts(facts, each)
        called = facts.plain(each.queue)
        first = facts.account(each.by[0][0]) if each.by else None
        said = [quantity.duration(each.blocked_ms / 1000)]
        if first is not None:
            said.append(f"{quantity.share(each.by[0][1] / each.blocked_ms)} ")
        what = f"{called}: {', '.join(text for text, _, _ in parts)}"
        picture = plots.bar(what, parts, longest)
        rows.append(
            (
                facts.called(each.queue),
                picture,
                sentence(
                    f"{said[0]} · ",
                    *([said[1], name(first.name, 24)] if first else ["nobody blamed"]),
                ),
            )
        )
    left = len(facts.held) - len(shown)
    head = el(
        "h3",
        None,
        "By queue, in publishers' time"
        + (f" (and {quantity.many(left, 'queue')} with less)" if left else ""),
    )
    return join([head, rows_of(rows, "bars")])


def _parts(facts: Facts, each: Held) -> list[tuple[str, str, float]]:
    first = {account.id for account in facts.accounts[:COLOURS]}
    own = dict(each.by)
    parts = [
        (
            f"{account.name} {quantity.duration(own[account.id] / 1000)}",
            facts.colour(account.id),
            own[account.id],
        )
        for account in facts.accounts[:COLOURS]
        if own.get(account.id)
    ]
    others = sum(value for key, value in own.items() if key not in first)
    nobody = each.blocked_ms - sum(own.values())
    for who, css, rest in (("others", OTHERS, others), ("nobody", NOBODY, nobody)):
        if rest > 0.5:
            parts.append((f"{who} {quantity.duration(rest / 1000)}", css, rest))
    return parts


def _table(facts: Facts) -> Markup:
    rows: list[Row] = []
    for each in facts.held:
        for rank, (key, value) in enumerate(each.by[:5], 1):
            cells = [
                number(f"{rank}", rank),
                number(quantity.duration(value / 1000), value),
                number(quantity.share(value / each.blocked_ms), value / each.blocked_ms),
                number(quantity.duration(each.blocked_ms / 1000), each.blocked_ms),
            ]
            rows.append([facts.called(each.queue), name(facts.account(key).name), *cells])
    heads = ["Queue", "Account", "Rank", "Blamed", "Share of the queue", "Queue in all"]
    caption = "Who is blamed at each queue: the five most"
    return behind(caption, table(caption, heads, rows, 2))
