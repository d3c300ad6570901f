"""The report in five lines: the bottleneck, its cause, the remedy, capacity, trust."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from headrace_pipeline.report import measure, quantity
from headrace_pipeline.report.bottleneck import meaning
from headrace_pipeline.report.facts import Facts
from headrace_pipeline.report.markup import Markup, Part, el, join, name
from headrace_pipeline.report.measure import Held, Slowed
from headrace_pipeline.report.section import Section, sentence
from headrace_pipeline.report.section_blocked import elsewhere
from headrace_pipeline.report.section_capacity import called, ranked, weeks_text
from headrace_pipeline.report.section_coverage import doubts
from headrace_pipeline.schema.analysis import CONSUMERS_SATURATED, PUBLISHER_BURST

WORTH_SAYING = 2.0  # times its median, from which a rate is called a rise
SOON_WEEKS = 26.0
NOBODY_SAID = 0.05  # of blocked time that nobody is blamed for, from which it is said


class Line(NamedTuple):
    """Line of the summary."""

    lead: str  # what it is about
    text: Markup  # a sentence or two
    tone: str  # class: bad, warn or good


def summary(facts: Facts) -> list[Line]:
    """Return at most five lines; one where there is no telemetry."""
    if not facts.told:
        return [Line("No data", doubts(facts), "warn")]
    first = worst(facts)
    lines = [_bottleneck(facts, first)]
    if facts.accounts and facts.held:
        lines.append(_cause(facts, facts.held[0]))
    if first is not None:
        lines.append(_remedy(facts, first))
    lines.append(_ahead(facts))
    lines.append(Line("Trust", doubts(facts), "plain"))
    return lines


def worst(facts: Facts) -> Slowed | None:
    """Return the queue to speak of: it blocked publishers most, or else was slow longest."""
    by_queue = {each.queue: each for each in facts.slowed}
    for each in facts.held:
        if each.queue in by_queue:
            return by_queue[each.queue]
    return facts.slowed[0] if facts.slowed else None


def section(lines: list[Line]) -> Section:
    """Return the lines as the first section of a page."""
    items = [
        el(
            "div",
            {"class": f"line {each.tone}"},
            el("dt", None, each.lead),
            el("dd", None, each.text),
        )
        for each in lines
    ]
    return Section("summary", "In short", Markup(""), el("dl", {"class": "summary"}, join(items)))


def _bottleneck(facts: Facts, first: Slowed | None) -> Line:
    if not facts.held and first is None:
        moved = float(facts.frames.queues["published"].sum())
        text = f"None: {quantity.count(moved)} messages came in and no queue blocked a publisher."
        further = elsewhere(facts)
        return Line("Bottleneck", sentence(text, further), "warn" if further else "good")
    if not facts.held:
        assert first is not None
        slow = quantity.duration(sum(value for _, value in first.seconds))
        said = f" was slow for {slow}, {_why(first)}; no queue blocked a publisher."
        told = sentence(facts.called(first.queue), said, elsewhere(facts))
        return Line("Bottleneck", told, "warn")
    total, most = facts.blocked_ms, facts.held[0]
    parts: list[Part] = [facts.called(most.queue)]
    parts.append(f" blocked publishers for {quantity.duration(most.blocked_ms / 1000)} in sum (")
    parts.append(f"{quantity.share(most.blocked_ms / total)} of all blocked time)")
    if first is not None and first.queue == most.queue:
        parts.append(f", {_why(first)}")
        if first.worst is not None:
            step = first.worst
            when = quantity.span(facts.span.at(step), facts.span.at(step + 1))
            parts.append(f". It was worst {when}")
    others = len(facts.held) - 1
    if others:
        parts.append(f". {quantity.many(others, 'other queue')} blocked somebody, too")
    return Line("Bottleneck", sentence(*parts, ".", elsewhere(facts)), "bad")


def _why(each: Slowed) -> str:
    seconds = sum(value for _, value in each.seconds)
    key, most = each.seconds[0]
    share = f" for {quantity.share(most / seconds)} of its slow time" if most < seconds else ""
    return f"because {meaning(key).because}{share}"


def _cause(facts: Facts, most: Held) -> Line:
    if not most.by:
        said = sentence("Nobody brought load to ", facts.called(most.queue), " while it blocked.")
        return Line("Cause", said, "plain")
    key, value = most.by[0]
    who = facts.account(key)
    parts: list[Part] = [name(who.name), " is blamed for "]
    parts += [
        f"{quantity.share(value / most.blocked_ms)} of the waiting at ",
        facts.called(most.queue),
    ]
    parts += _rise(facts, key, most)
    nobody = 1 - sum(blamed for _, blamed in most.by) / most.blocked_ms
    if nobody >= NOBODY_SAID:
        parts.append(f". For {quantity.share(nobody)} of it nobody is blamed: in those minutes ")
        parts.append("nobody brought anything, nor in the hour before, and what waited was older")
    if len(most.by) > 1:
        second = facts.account(most.by[1][0])
        parts += [". Next is ", name(second.name)]
        parts.append(f" with {quantity.share(most.by[1][1] / most.blocked_ms)}")
    return Line("Cause", sentence(*parts, "."), "bad")


def _rise(facts: Facts, key: str, most: Held) -> list[Part]:
    """Say how much more than usual the account brought at its worst, and by which way."""
    rows = measure.of(facts.frames.accounts, most.queue)
    rows = rows[rows["origin_account"] == key]
    if rows.empty:
        return []
    rates = rows.groupby("step")["copies"].sum() / facts.span.step_s
    peak, usual = float(rates.max()), float(rates.median())
    parts: list[Part] = [f": at its peak it brought {quantity.rate(peak)}"]
    through = rows.loc[rows["copies"].idxmax(), "exchange"]
    if isinstance(through, str):
        parts += [" through ", name(through) if through else "the default exchange"]
    if usual > 0 and peak / usual >= WORTH_SAYING:
        parts.append(f", {peak / usual:.0f} times as much as usual")
    return parts


def _remedy(facts: Facts, first: Slowed) -> Line:
    key = first.seconds[0][0]
    queue = facts.called(first.queue)
    rows = measure.of(facts.advice(), first.queue)
    if key == CONSUMERS_SATURATED and len(rows):
        row = rows.iloc[0]
        now = 0 if pd.isna(row["consumers"]) else int(row["consumers"])
        text: list[Part] = [
            f"Run {int(row['advised'])} consumers on ",
            queue,
            f" instead of {now}: ",
        ]
        if not pd.isna(row["service_rate"]):  # as it is while nobody consumes
            text.append(f"one settles {quantity.rate(float(row['service_rate']))}, and ")
        text.append(f"{quantity.rate(float(row['arrival_rate_p95']))} arrived")
        text.append(f" on {quantity.instant(row['window_start'])}.")
        return Line("To do", sentence(*text), "warn")
    parts: list[Part] = ["At ", queue, f": {meaning(key).remedy}"]
    held = next((each for each in facts.held if each.queue == first.queue and each.by), None)
    if key == PUBLISHER_BURST and held is not None:
        parts += [" That is ", name(facts.account(held.by[0][0]).name), "."]
    return Line("To do", sentence(*parts), "warn")


def _ahead(facts: Facts) -> Line:
    alarm_s = float(facts.frames.nodes["alarm_ms"].fillna(0).sum()) / 1000
    rows = ranked(facts)
    parts: list[Part] = []
    tone = "plain"
    if not rows.empty:
        row = rows.iloc[0]
        weeks = float(row["weeks_to_limit"])
        share = quantity.share(float(row["used_share"]))
        parts += [called(facts, row), f" comes nearest its limit: {share} of it is usual"]
        growing = weeks == weeks and weeks <= SOON_WEEKS
        parts.append(
            f", and it is reached in {weeks_text(weeks)} as it grows. " if growing else ". "
        )
        tone = "warn" if growing else "plain"
    else:
        parts.append("No limit is known yet. ")
    if alarm_s:
        worst_node = facts.frames.nodes.groupby("node")["alarm_ms"].sum().idxmax()
        parts += [
            f"Alarms lasted {quantity.duration(alarm_s)}, most on ",
            name(str(worst_node)),
            ".",
        ]
        tone = "warn"
    else:
        parts.append("No node gave alarm.")
    return Line("Capacity", sentence(*parts), tone)
