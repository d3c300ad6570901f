"""Coverage of the time span by telemetry, and doubts."""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace_pipeline.report import plots, quantity
from headrace_pipeline.report.facts import Facts
from headrace_pipeline.report.markup import Markup, Part, el, join, name
from headrace_pipeline.report.section import Section, keys, rows_of, sentence
from headrace_pipeline.report.table import Row, behind, number, table

WHOLE: Final = 0.98  # of the seconds of a step; less is shown as a part
SKEW_SAID_MS: Final = 100  # a clock that is less ahead moves nothing from one second to the next


class Told(NamedTuple):
    """Telemetry of a node."""

    node: str  # its name
    steps: list[float]  # for each step the share of its seconds, 0 to 1
    left_out: float  # rows for which there was no room
    skew_ms: float  # by which its clock was ahead at most
    lag_ms: float  # by which its look came late at most

    @property
    def share(self) -> float:
        """Share of all seconds."""
        return sum(self.steps) / len(self.steps)


def told(facts: Facts) -> list[Told]:
    """Return what each node has told, by name."""
    found = []
    for node, rows in facts.frames.nodes.groupby("node"):
        samples = rows.groupby("step")["samples"].sum().reindex(range(facts.span.steps))
        steps = [min(value / facts.span.step_s, 1.0) for value in samples.fillna(0).tolist()]
        figures = [float(rows["left_out"].fillna(0).sum())]
        figures += [float(rows[key].fillna(0).max()) for key in ("skew_ms", "loop_lag_ms_max")]
        found.append(Told(str(node), steps, *figures))
    return found


def coverage(facts: Facts) -> Section:
    """Return the section about coverage."""
    title = "Telemetry: how much of the time each node has told of"
    nodes = told(facts)
    if not nodes:
        return Section("coverage", title, doubts(facts), Markup(""))
    rows: list[tuple[Part, Part, Part]] = []
    for each in nodes:
        what = f"{each.node} told of {quantity.share(each.share)} of the time"
        rows.append(
            (name(each.node), plots.strip(what, _runs(facts, each)), quantity.share(each.share))
        )
    rows.append(("", plots.time_axis(quantity.ticks(facts.span.start, facts.span.end)), ""))
    legend = keys([("told", "told"), ("part", "in part"), ("gap", "nothing")])
    body = join([legend, rows_of(rows, "strips"), _figures(nodes)])
    return Section("coverage", title, doubts(facts), body)


def doubts(facts: Facts) -> Markup:
    """Return a sentence of how far the report may be trusted."""
    nodes = told(facts)
    if not nodes:
        return sentence(
            "No telemetry lies in this time. See whether brokers have [telemetry] enabled, "
            "whether ",
            el("code", None, "headrace-pipeline run flow"),
            " has run, and whether these are the right tables and time.",
        )
    share = quantity.share(sum(each.share for each in nodes) / len(nodes))
    parts: list[Part] = [
        f"Telemetry covers {share} of the time of {quantity.many(len(nodes), 'node')}"
    ]
    gap = _longest_gap(facts, nodes)
    parts += [". ", *gap] if gap else ["; no step is without"]
    left_out = sum(each.left_out for each in nodes)
    if left_out:
        parts.append(f". {quantity.count(left_out)} rows were left out: entities_max is too low")
    worst = max(nodes, key=lambda each: each.skew_ms)
    if worst.skew_ms >= SKEW_SAID_MS:
        parts += [". The clock of ", name(worst.node)]
        parts.append(f" was {worst.skew_ms:,.0f} ms ahead: its rows may be misplaced")
    return sentence(*parts, ".")


def _longest_gap(facts: Facts, nodes: list[Told]) -> list[Part] | None:
    longest: tuple[int, int, str] = (0, 0, "")
    for each in nodes:
        length = 0
        for step, share in enumerate([*each.steps, 1.0]):
            if share == 0:
                length += 1
                continue
            longest = max(longest, (length, -(step - length), each.node))
            length = 0
    length, begin, node = longest[0], -longest[1], longest[2]
    if not length:
        return None
    when = quantity.span(facts.span.at(begin), facts.span.at(begin + length))
    return [name(node), f" told nothing {when}"]


def _runs(facts: Facts, each: Told) -> list[plots.Run]:
    def css(share: float) -> str:
        return "told" if share >= WHOLE else "part" if share > 0 else ""

    found, begin, count = [], 0, len(each.steps)
    for step in range(1, count + 1):
        if step < count and css(each.steps[step]) == css(each.steps[begin]):
            continue
        shown = css(each.steps[begin])
        if shown:
            when = quantity.span(facts.span.at(begin), facts.span.at(step))
            share = sum(each.steps[begin:step]) / (step - begin)
            text = f"{when}: {quantity.share(share)}"
            found.append(plots.Run(begin / count, step / count, shown, text))
        begin = step
    return found


def _figures(nodes: list[Told]) -> Markup:
    rows: list[Row] = [
        [
            name(each.node),
            number(quantity.share(each.share), each.share),
            number(quantity.count(each.left_out), each.left_out),
            number(f"{each.skew_ms:,.0f}", each.skew_ms),
            number(f"{each.lag_ms:,.0f}", each.lag_ms),
        ]
        for each in nodes
    ]
    heads = ["Node", "Covered", "Rows left out", "Clock ahead, ms", "Look late, ms"]
    caption = "Coverage by node"
    return behind(caption, table(caption, heads, rows))
