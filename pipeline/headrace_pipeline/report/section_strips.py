"""When queues were held up and by what, and when nodes gave alarm."""

from __future__ import annotations

import math

import pandas as pd

from headrace_pipeline.limits import REPORT_STRIPS_MAX
from headrace_pipeline.report import measure, plots, quantity
from headrace_pipeline.report.bottleneck import css, meaning
from headrace_pipeline.report.facts import Facts
from headrace_pipeline.report.markup import Markup, Part, join, name
from headrace_pipeline.report.measure import Slowed
from headrace_pipeline.report.section import Section, keys, rows_of, sentence
from headrace_pipeline.report.table import Row, behind, number, table
from headrace_pipeline.schema.analysis import CLASSES, DISK_ALARM, MEMORY_ALARM

_ALARMS = (("memory_alarm_ms", MEMORY_ALARM), ("disk_alarm_ms", DISK_ALARM))


def bottlenecks(facts: Facts) -> Section:
    """Return the section of what held queues up."""
    title = "What held queues up, and when"
    if not facts.slowed:
        none = "No queue was a bottleneck in any minute."
        said = none if facts.told else "There is no telemetry that would say."
        return Section("bottlenecks", title, sentence(said), Markup(""))
    shown = facts.slowed[:REPORT_STRIPS_MAX]
    rows: list[tuple[Part, Part, Part]] = []
    for each in shown:
        seconds = sum(value for _, value in each.seconds)
        said = f"{quantity.duration(seconds)}, {meaning(each.seconds[0][0]).label}"
        rows.append((facts.called(each.queue), _strip(facts, each), said))
    rows.append(("", plots.time_axis(quantity.ticks(facts.span.start, facts.span.end)), ""))
    there = {each for slowed in facts.slowed for each, _ in slowed.seconds}
    ordered = [each for each in CLASSES if each in there] + sorted(there - set(CLASSES))
    colours: list[tuple[str, Part]] = [(css(each), meaning(each).label) for each in ordered]
    part = f"height: how much of each {quantity.duration(facts.span.step_s)}"
    legend = keys([*colours, ("gap", "no data"), ("none", part)])
    body = join([legend, rows_of(rows, "strips"), _minutes(facts, ordered)])
    return Section("bottlenecks", title, _conclusion(facts), body)


def _conclusion(facts: Facts) -> Markup:
    sums: dict[str, float] = {}
    for each in facts.slowed:
        for key, value in each.seconds:
            sums[key] = sums.get(key, 0.0) + value
    first = max(sums, key=lambda key: sums[key])
    share = sums[first] / sum(sums.values())
    mine = [each for each in facts.slowed if any(key == first for key, _ in each.seconds)]
    most = max(mine, key=lambda each: dict(each.seconds)[first])
    hidden = len(facts.slowed) - REPORT_STRIPS_MAX
    return sentence(
        f"{quantity.duration(sum(sums.values()))} of queues' time was slow, ",
        f"{quantity.share(share)} of that because ",
        f"{meaning(first).because.replace('its', 'their')}, ",
        "mostly at ",
        facts.called(most.queue),
        ".",
        f" {hidden:,} further queues are in the table only." if hidden > 0 else None,
    )


def _strip(facts: Facts, each: Slowed) -> Markup:
    rows = measure.of(facts.frames.bottlenecks, each.queue)
    classes = measure.classes_by_step(rows)
    runs = runs_of(facts, classes)
    said = ", ".join(f"{meaning(key).label} {quantity.duration(s)}" for key, s in each.seconds)
    return plots.strip(f"{facts.plain(each.queue)}: {said}", runs)


def runs_of(facts: Facts, classes: dict[int, tuple[str, float]]) -> list[plots.Run]:
    """Return stretches of steps of one class; steps of none are `fine`, unless data is missing.

    Args:
        facts: of the report.
        classes: by number of the step, with the seconds that it held.
    """
    length = facts.span.step_s
    fine: list[tuple[str, int] | None] = [("", 3) if known else None for known in facts.known]
    keys = list(fine)
    for step, (key, seconds) in classes.items():
        keys[step] = key, max(1, min(3, math.ceil(seconds / length * 3)))
    found, begin, count = [], 0, len(keys)
    for step in range(1, count + 1):
        if step < count and keys[step] == keys[begin]:
            continue
        when = quantity.span(facts.span.at(begin), facts.span.at(step))
        here = keys[begin]
        if here is not None:
            key, level = here
            if level < 3:
                found.append(plots.Run(begin / count, step / count, "fine", when))
            label = meaning(key).label if key else ""
            text = f"{when}: {label or 'fine'}"
            shown = css(key) if key else "fine"
            found.append(plots.Run(begin / count, step / count, shown, text, label, level))
        begin = step
    return found


def _minutes(facts: Facts, classes: list[str]) -> Markup:
    rows: list[Row] = []
    for each in facts.slowed:
        own = dict(each.seconds)
        cells = [number(quantity.duration(own[k]) if k in own else "", own.get(k)) for k in classes]
        rows.append([facts.called(each.queue), *cells, each.because or "\u2013"])
    heads = ["Queue", *(meaning(key).label.capitalize() for key in classes), "Latest figures"]
    caption = f"Time of each class at {quantity.many(len(rows), 'queue')}"
    return behind(caption, table(caption, heads, rows, 1, "last-is-text"))


def alarms(facts: Facts) -> Section:
    """Return the section of nodes' alarms."""
    title = "Alarms: when nodes stopped publishers for want of memory or disk, and for how long"
    rows: list[tuple[Part, Part, Part]] = []
    figures: list[tuple[str, str, float]] = []
    for node, own in facts.frames.nodes.groupby("node"):
        for column, key in _ALARMS:
            seconds = float(own[column].fillna(0).sum()) / 1000
            if seconds > 0:
                figures.append((str(node), key, seconds))
                runs = _alarm_runs(facts, own, column, key)
                what = f"{node}: {meaning(key).label} for {quantity.duration(seconds)}"
                titled = sentence(name(str(node)), f" {meaning(key).label.removesuffix(' alarm')}")
                rows.append((titled, plots.strip(what, runs), quantity.duration(seconds)))
    if not figures:
        nodes = len(set(facts.frames.nodes["node"]))
        none = (
            f"{quantity.many(nodes, 'node')}, and no alarm."
            if nodes
            else "No node has told of any."
        )
        return Section("alarms", title, sentence(none), Markup(""))
    rows.append(("", plots.time_axis(quantity.ticks(facts.span.start, facts.span.end)), ""))
    worst = max(figures, key=lambda each: each[2])
    total = sum(seconds for _, _, seconds in figures)
    said = sentence(
        f"Alarms lasted {quantity.duration(total)} in sum, longest the ",
        f"{meaning(worst[1]).label} of ",
        name(worst[0]),
        f" with {quantity.duration(worst[2])}. {meaning(worst[1]).remedy}",
    )
    cells: list[Row] = [
        [name(node), meaning(key).label, number(f"{seconds / 60:.1f}", seconds)]
        for node, key, seconds in figures
    ]
    caption = "Minutes of alarm by node"
    made = behind(caption, table(caption, ["Node", "Alarm", "Minutes"], cells, 2))
    return Section("alarms", title, said, join([rows_of(rows, "strips"), made]))


def _alarm_runs(facts: Facts, rows: pd.DataFrame, column: str, key: str) -> list[plots.Run]:
    sums = rows.groupby("step")[column].sum()
    return runs_of(facts, {int(s): (key, ms / 1000) for s, ms in sums[sums > 0].items()})
