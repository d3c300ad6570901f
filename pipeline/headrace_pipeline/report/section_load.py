"""Arrivals, departures and content of queues."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from headrace_pipeline.limits import REPORT_QUEUES_MAX
from headrace_pipeline.report import measure, plots, quantity
from headrace_pipeline.report.facts import Facts
from headrace_pipeline.report.markup import Markup, el, join
from headrace_pipeline.report.measure import Queue
from headrace_pipeline.report.section import Section, keys, sentence
from headrace_pipeline.report.table import Cell, Row, behind, moment, number, table

Values = list[float | None]


def load(facts: Facts) -> Section:
    """Return the section of the busiest queues."""
    queues = measure.busiest(facts.frames, REPORT_QUEUES_MAX)
    known = measure.QUEUE
    count = len(facts.frames.queues.drop_duplicates(known))
    few = f" of the {len(queues)} busiest of {count:,} queues" if count > len(queues) else ""
    title = f"Messages per second in and out, and backlog{few}"
    legend = keys(
        [("in area", "published"), ("out", "settled"), ("backlog area", "ready (backlog)")]
    )
    panels = [_panel(facts, queue) for queue in queues]
    body = join([legend, el("div", {"class": "panels"}, *panels), _sums(facts)])
    return Section("load", title, _conclusion(facts), body if queues else Markup(""))


def _conclusion(facts: Facts) -> Markup:
    rows = facts.frames.queues
    if rows.empty:
        return sentence("No queue has moved a message in this time.")
    published, settled = float(rows["published"].sum()), float(rows["settled"].sum())
    sums = rows.groupby(measure.QUEUE)["published"].sum().sort_values(ascending=False)
    first = (str(sums.index[0][0]), str(sums.index[0][1]))
    parts = [
        f"{quantity.count(published)} messages came in, {quantity.count(settled)} were settled; ",
        facts.called(first),
        f" took {quantity.share(float(sums.iloc[0]) / published if published else 0)} of them. ",
    ]
    deepest = rows.loc[rows["ready_max"].idxmax()] if rows["ready_max"].notna().any() else None
    if deepest is None or deepest["ready_max"] <= 0:
        return sentence(*parts, "Nothing waited long enough to be seen.")
    at = facts.span.at(int(deepest["step"]))
    queue = (str(deepest["vhost"]), str(deepest["queue"]))
    waited = (
        f"The deepest backlog, {quantity.count(float(deepest['ready_max']))} messages, stood in "
    )
    last = _last_backlog(facts, queue)
    after = (
        "; it was gone at the end."
        if not last
        else f"; {quantity.count(last)} were left at the end."
    )
    return sentence(*parts, waited, facts.called(queue), f" on {quantity.instant(at)}", after)


def _last_backlog(facts: Facts, queue: Queue) -> float:
    rows = measure.of(facts.frames.queues, queue).sort_values("window_start")
    at_end = rows[rows["step"] == facts.span.steps - 1]
    value = at_end["ready_last"].iloc[-1] if len(at_end) else None
    return float(value) if value is not None and value == value else 0.0


def _panel(facts: Facts, queue: Queue) -> Markup:
    rows, span = measure.of(facts.frames.queues, queue), facts.span
    came = _rates(facts, rows, "published")
    left = _rates(facts, rows, "settled")
    waits = measure.by_step(rows, "ready_max", "max", span, facts.known)
    rate_top = quantity.top(_highest([*came, *left]))
    wait_top = quantity.top(max(_highest(waits), 10.0))
    called = facts.plain(queue)
    said = (
        f"published up to {quantity.rate(_highest(came))}, settled up to "
        f"{quantity.rate(_highest(left))}, backlog up to {quantity.count(_highest(waits))}"
    )
    flow = plots.line_plot(
        f"Messages per second of queue {called}: {said}",
        [plots.Series("published/s", "in area", came), plots.Series("settled/s", "out", left)],
        plots.Axis(rate_top, quantity.rate(rate_top), quantity.count(rate_top / 2)),
        (),
        90,
    )
    backlog = plots.line_plot(
        f"Backlog of queue {called}, up to {quantity.count(_highest(waits))} messages",
        [plots.Series("ready", "backlog area", waits)],
        plots.Axis(wait_top, f"{quantity.count(wait_top)} waiting", quantity.count(wait_top / 2)),
        quantity.ticks(span.start, span.end, 7),
        50,
    )
    values = behind("Values", _values(facts, called, came, left, waits))
    head = el("figcaption", None, el("b", None, facts.called(queue)), el("small", None, said))
    return el("figure", _timed(facts), head, flow, backlog, values)


def _timed(facts: Facts) -> dict[str, str | int]:
    """Say to the page's script what the axis of time is."""
    return {
        "class": "panel",
        "data-start": int(facts.span.start.timestamp()),
        "data-step": facts.span.step_s,
    }


def _rates(facts: Facts, rows: pd.DataFrame, column: str) -> Values:
    sums = measure.by_step(rows, column, "sum", facts.span, facts.known)
    pairs = zip(sums, facts.seconds, strict=True)
    return [None if value is None else value / seconds for value, seconds in pairs]


def _values(facts: Facts, called: str, came: Values, left: Values, waits: Values) -> Markup:
    rows = []
    for step, values in enumerate(zip(came, left, waits, strict=True)):
        if any(values):
            cells = [number("" if v is None else quantity.count(v), v) for v in values]
            rows.append([moment(facts.span.at(step)), *cells])
    heads = ["From (UTC)", "Published/s", "Settled/s", "Backlog, most"]
    return table(f"Rates and backlog of {called} by time", heads, rows)


def _sums(facts: Facts) -> Markup:
    rows = facts.frames.queues
    sums = rows.groupby(measure.QUEUE).agg(
        published=("published", "sum"),
        settled=("settled", "sum"),
        peak=("published_rate_max", "max"),
        ready_max=("ready_max", "max"),
        oldest=("oldest_ready_ms_max", "max"),
        blocked=("blocked_ms", "sum"),
        leader=("leader", "last"),
    )
    made: list[Row] = []
    for key, row in sums.sort_values("published", ascending=False).iterrows():
        assert isinstance(key, tuple)
        figures = [(row[name], quantity.count) for name in ("published", "settled")]
        figures += [(row["peak"], quantity.rate), (row["ready_max"], quantity.count)]
        cells = [_cell(value, form) for value, form in figures]
        cells += [_cell(row[name] / 1000, quantity.duration) for name in ("oldest", "blocked")]
        leader = str(row["leader"]) if isinstance(row["leader"], str) else "\u2013"
        made.append([facts.called((str(key[0]), str(key[1]))), leader, *cells])
    heads = ["Queue", "Leader", "Published", "Settled", "Peak second", "Deepest backlog"]
    heads += ["Oldest waited", "Publishers blocked"]
    caption = f"{quantity.many(len(made), 'queue')}: sums and peaks of the whole time"
    return behind(caption, table(caption, heads, made, 2))


def _cell(value: float, form: Callable[[float], str]) -> Cell:
    return number("", None) if value != value else number(form(float(value)), float(value))


def _highest(values: Values) -> float:
    return max((value for value in values if value is not None), default=0.0)
