"""Capacity of nodes and queues: distance to limits, forecasts, and numbers of consumers."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from headrace_pipeline.limits import REPORT_QUEUES_MAX
from headrace_pipeline.report import plots, quantity
from headrace_pipeline.report.bottleneck import meaning
from headrace_pipeline.report.facts import Facts
from headrace_pipeline.report.markup import Markup, Part, el, join, name
from headrace_pipeline.report.section import Section, keys, rows_of, sentence
from headrace_pipeline.report.table import Row, behind, figure, moment, number, table

FULL = 1.25  # of its limit, at the right edge
WEEKS_SAID = 104.0  # a trend is not believed further

_PER_CENT = [quantity.Tick(part / FULL, quantity.share(part)) for part in (0, 0.5, 1)]
_MEASURES = {"memory_used": "memory", "disk_free": "free disk", "cpu_share": "processor"}


def capacity(facts: Facts) -> Section:
    """Return the section of limits."""
    title = "Usual load and peak, in per cent of the measured limit, and weeks until it is reached"
    rows = ranked(facts)
    if rows.empty:
        said = "No limit of any node or queue is known yet: none was reached, and none was given."
        known = facts.frames.capacity
        body = [_figures(facts, known)] if len(known) else []
        return Section("capacity", title, sentence(said), join(body))
    legend = keys(
        [
            ("usual within", "usual (95th percentile)"),
            ("usual near", "the same, peak above 80 %"),
            ("usual over", "the same, peak above the limit"),
            ("peak", "up to the peak"),
            ("limit", "limit"),
        ]
    )
    body = [legend]
    for kind, head in (("node", "Nodes"), ("queue", "Queues")):
        own = rows[rows["kind"] == kind].head(REPORT_QUEUES_MAX)
        if not own.empty:
            shown = [_row(facts, row) for _, row in own.iterrows()]
            shown.append(("", plots.time_axis(_PER_CENT), ""))
            body += [el("h3", None, head), rows_of(shown, "ranges")]
    body.append(_figures(facts, facts.frames.capacity))
    return Section("capacity", title, _conclusion(facts, rows), join(body))


def ranked(facts: Facts) -> pd.DataFrame:
    """Return the limited things, nearest to the limit first: by weeks if known, then by share."""
    rows = facts.frames.capacity
    rows = rows[(rows["limit"] > 0) & rows["p95"].notna()]
    rows = rows.assign(peak=rows["peak"].fillna(rows["p95"]))
    weeks = rows["weeks_to_limit"].where(rows["weeks_to_limit"] <= WEEKS_SAID)
    order = rows.assign(_weeks=weeks.fillna(WEEKS_SAID), _share=-rows["used_share"].fillna(0))
    return order.sort_values(["_weeks", "_share", "name"], kind="stable")


def called(facts: Facts, row: pd.Series) -> Markup:
    """Return what a row is about: a name, and of what."""
    key = str(row["name"])
    who = name(key) if row["kind"] == "node" else facts.called((str(row["vhost"]), key))
    return sentence(who, " ", el("small", None, measure_text(str(row["measure"]))))


def measure_text(measure: str) -> str:
    """Return the name of a measure, in words."""
    if measure.endswith("_rate"):
        return f"{measure.removesuffix('_rate').replace('_', ' ')} per second"
    return _MEASURES.get(measure, measure.replace("_", " "))


def form_of(measure: str) -> Callable[[float], str]:
    """Return how a measure's values are written."""
    if measure.endswith("_rate"):
        return quantity.rate
    if measure.endswith("_share"):
        return quantity.share
    return quantity.size if measure in ("memory_used", "disk_free") else quantity.count


def is_falling(row: pd.Series) -> bool:
    """Return whether a measure falls towards its limit, as free disk does."""
    return str(row["measure"]).endswith("_free")


def shares(row: pd.Series) -> tuple[float, float]:
    """Return the usual value and the peak as shares of the limit, 0 to 1 and above."""
    usual, peak, limit = float(row["p95"]), float(row["peak"]), float(row["limit"])
    if not is_falling(row):
        return usual / limit, peak / limit
    return limit / max(usual, 1.0), limit / max(peak, 1.0)


def reached_in(row: pd.Series) -> str:
    """Return when a row's limit is reached, as far as one may say."""
    if pd.isna(row["weeks_to_limit"]) and pd.isna(row["growth_per_week"]):
        return "no trend yet"
    return weeks_text(float(row["weeks_to_limit"]))


def weeks_text(weeks: float) -> str:
    """Return a time until a limit is reached; NaN for never."""
    if weeks != weeks:
        return "not growing"
    if weeks > WEEKS_SAID:
        return "more than two years"
    if weeks <= 0:
        return "reached"
    return f"{weeks:.0f} weeks" if weeks >= 2 else f"{weeks * 7:.0f} days"


def _row(facts: Facts, row: pd.Series) -> tuple[Part, Part, Part]:
    form = form_of(str(row["measure"]))
    usual, peak, limit = (form(float(row[key])) for key in ("p95", "peak", "limit"))
    said = f"{usual}, peak {peak}, of {limit}"
    if is_falling(row):
        said = f"{usual}, least {peak}, alarm at {limit}"
    what = f"{row['name']}, {measure_text(str(row['measure']))}: usually {said}"
    picture = plots.range_bar(what, *shares(row), 1.0, FULL)
    return called(facts, row), picture, sentence(said, " · ", el("b", None, reached_in(row)))


def _conclusion(facts: Facts, rows: pd.DataFrame) -> Markup:
    first = rows.iloc[0]
    weeks = float(first["weeks_to_limit"])
    over = sum(shares(row)[1] >= 1 for _, row in rows.iterrows())
    parts: list[Part] = [called(facts, first)]
    if weeks == weeks and weeks <= WEEKS_SAID:
        share = quantity.share(float(first["used_share"]))
        parts.append(f" is at {share} of its limit and, as it grows, ")
        parts.append("has reached it." if weeks <= 0 else f"reaches it in {weeks_text(weeks)}.")
    else:
        share = quantity.share(float(first["used_share"]))
        known = rows["growth_per_week"].notna().any()
        trend = "nothing grows towards one" if known else "trends take seven days of data"
        parts.append(f" comes nearest its limit, with {share} of it; {trend}.")
    parts.append(f" {over:,} of {len(rows):,} reached the limit in a peak." if over else None)
    return sentence(*parts)


def _figures(facts: Facts, rows: pd.DataFrame) -> Markup:
    made: list[Row] = []
    for _, row in rows.sort_values(["kind", "name", "measure"]).iterrows():
        form = form_of(str(row["measure"]))
        weeks = float(row["weeks_to_limit"])
        cells = [figure(row[key], form) for key in ("p95", "peak", "limit")]
        cells += [figure(row["used_share"], quantity.share), figure(row["growth_per_week"], form)]
        cells.append(number(reached_in(row), WEEKS_SAID + 2 if weeks != weeks else weeks))
        cells.append(number(f"{int(row['days'])}", float(row["days"])))
        origin = row["limit_from"] if isinstance(row["limit_from"], str) else "unknown"
        made.append([called(facts, row), origin, *cells])
    heads = ["What", "Limit is", "Usual (p95)", "Peak", "Limit", "Used", "Growth a week"]
    heads += ["Reached in", "Days of data"]
    caption = f"Figures of {quantity.many(len(made), 'measure')}"
    return behind(caption, table(caption, heads, made, 2))


def advice(facts: Facts) -> Section:
    """Return the section of consumer counts."""
    title = "Consumers: how many there were, and how many were advised when it differed most"
    rows = facts.advice()
    if rows.empty:
        none = "No queue is advised another number of consumers."
        return Section("advice", title, sentence(none), Markup(""))
    full = quantity.top(float(rows[["advised", "consumers"]].max().max()))
    shown: list[tuple[Part, Part, Part]] = []
    for _, row in rows.head(REPORT_QUEUES_MAX).iterrows():
        queue = facts.called((str(row["vhost"]), str(row["queue"])))
        now, then = _now(row), int(row["advised"])
        what = f"{row['queue']}: {now} consumers, {then} advised"
        picture = plots.move(what, now, then, full)
        shown.append(
            (queue, picture, sentence(f"{now} → ", el("b", None, str(then)), f" {_when(row)}"))
        )
    legend = keys([("now", "there were"), ("then", "advised")], "round")
    body = join([legend, rows_of(shown, "moves"), _advice_table(facts, rows)])
    return Section("advice", title, _advised(facts, rows), body)


def _when(row: pd.Series) -> str:
    return quantity.instant(row["window_start"])


def _now(row: pd.Series) -> int:
    return 0 if pd.isna(row["consumers"]) else int(row["consumers"])


def _advised(facts: Facts, rows: pd.DataFrame) -> Markup:
    first = rows.iloc[0]
    queue = facts.called((str(first["vhost"]), str(first["queue"])))
    arrive, serve = float(first["arrival_rate_p95"]), float(first["service_rate"])
    parts: list[Part] = [f"On {_when(first)}, {int(first['advised'])} consumers were advised for "]
    parts += [queue, f", which had {_now(first)}: {quantity.rate(arrive)} arrived and "]
    is_known = serve == serve
    parts.append(f"a busy consumer settled {quantity.rate(serve)}." if is_known else "none worked.")
    stale = int((rows["valid_until"] < pd.Timestamp(facts.span.end)).sum())
    if stale:
        of = quantity.many(len(rows), "queue")
        parts.append(f" By the end the advice for {stale:,} of {of} had lapsed.")
    return sentence(*parts)


def _advice_table(facts: Facts, rows: pd.DataFrame) -> Markup:
    made: list[Row] = []
    for _, row in rows.iterrows():
        cells = [number(f"{value:,}", value) for value in (_now(row), int(row["advised"]))]
        rates = [float(row[key]) for key in ("arrival_rate_p95", "service_rate")]
        cells += [figure(rate, quantity.rate) for rate in rates]
        backlog = float(row["backlog"])
        cells.append(number(quantity.count(backlog), backlog))
        kind = row["bottleneck"]
        said = meaning(kind).label if isinstance(kind, str) else "\u2013"
        queue = facts.called((str(row["vhost"]), str(row["queue"])))
        cells += [moment(row["window_start"]), moment(row["valid_until"])]
        made.append([queue, *cells, said, str(row["because"] or "")])
    heads = ["Queue", "Consumers", "Advised", "Arrive (p95)", "One settles", "Backlog"]
    heads += ["When", "Valid until", "Bottleneck", "Because"]
    caption = f"Advice for {quantity.many(len(made), 'queue')}"
    return behind(caption, table(caption, heads, made, 1, "last-is-text"))
