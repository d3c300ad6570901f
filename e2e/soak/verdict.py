"""Verdicts of a soak: each says what it rests on, and none is good on too little data."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from e2e.soak.growth import Points, Trend, quantile, trend
from e2e.soak.recording import DOWN, FAULTS, LINK, Latency, NodeSample, Probe, Recording

WATCHED: Final = "n1"  # the node that is never killed: its growth is that of one process
WARM_UP_PART: Final = 1 / 3  # of the time; pools, caches and logs fill in it
GROWTH_SECONDS_MIN: Final = 1800.0  # after warm-up, for a verdict about growth
CONFIRMED_MIN: Final = 1000  # messages, for a verdict about loss
BUCKET_SECONDS: Final = 10.0  # of latencies
FLOOR_PART: Final = 0.1  # of publishes: those that waited for the least
MIB: Final = 1 << 20


class State(enum.StrEnum):
    """Outcome of a rule."""

    HOLDS = "holds"
    BROKEN = "broken"
    OPEN = "open"


class Verdict(msgspec.Struct, frozen=True):
    """A rule and its outcome."""

    rule: str
    state: State
    text: str


class Rule(msgspec.Struct, frozen=True):
    """A bound of growth."""

    name: str
    unit: str
    per_unit: float  # of the sample's own unit
    limit: float  # units an hour
    points: Callable[[Recording], list[tuple[float, float]]]
    # see `trend`
    typical: Callable[[Sequence[float]], float] = statistics.fmean
    covariate: Callable[[Recording], Points] = lambda _: ()


def verdicts(recording: Recording) -> list[Verdict]:
    """Return all verdicts about a soak."""
    return [
        _loss(recording),
        _problems(recording),
        _backups(recording),
        *(_growth(recording, rule) for rule in RULES),
    ]


def _loss(recording: Recording) -> Verdict:
    rule = "confirmed messages of the healthy client come back, and no others"
    text = (
        f"{recording.confirmed:,} confirmed, {recording.missing:,} missing, "
        f"{recording.invented:,} never published"
    )
    if recording.missing or recording.invented:
        return Verdict(rule, State.BROKEN, text)
    if recording.confirmed < CONFIRMED_MIN:
        return Verdict(rule, State.OPEN, f"{text}; {CONFIRMED_MIN:,} are needed for a verdict")
    return Verdict(rule, State.HOLDS, text)


def _problems(recording: Recording) -> Verdict:
    rule = "no node ends by itself, fails to stop, or logs a traceback"
    restarts = sum(each.kind == DOWN for each in recording.intervals)
    if recording.problems:
        return Verdict(rule, State.BROKEN, "; ".join(recording.problems[:5]))
    if not restarts:
        return Verdict(rule, State.OPEN, "no node was killed")
    return Verdict(rule, State.HOLDS, f"{restarts} times killed and started again")


def _backups(recording: Recording) -> Verdict:
    rule = "backups end well, and verify"
    made = sum(each.kind == "backup" for each in recording.intervals)
    if recording.backups_failed:
        failed = recording.backups_failed
        return Verdict(rule, State.BROKEN, f"{len(failed)} of {made}: {failed[0]}")
    return Verdict(rule, State.HOLDS if made else State.OPEN, f"{made} made")


def _growth(recording: Recording, rule: Rule) -> Verdict:
    name = f"{rule.name} grows by less than {rule.limit:g} {rule.unit} an hour"
    begin = recording.duration * WARM_UP_PART
    points = [(at, value / rule.per_unit) for at, value in rule.points(recording) if at >= begin]
    covariate = rule.covariate(recording)
    found = trend(points, rule.typical, covariate=covariate)
    if found is None:
        return Verdict(name, State.OPEN, f"{len(points)} samples after warm-up are too few")
    state, why = judge(found, rule.limit)
    held = " at a constant sync time of the disk" if covariate else ""
    text = (
        f"{found.per_hour:+.2f} ± {found.half_width:.2f} {rule.unit} an hour{held} (95 %), "
        f"mean {found.mean:.2f} {rule.unit}, over {found.seconds / 60:.1f} min after warm-up"
    )
    return Verdict(name, state, f"{text}; {why}" if why else text)


def judge(found: Trend, limit: float) -> tuple[State, str]:
    """Compare a trend with a limit an hour; say why there is no verdict, "" if there is one."""
    if found.seconds < GROWTH_SECONDS_MIN:
        return State.OPEN, f"{GROWTH_SECONDS_MIN / 60:.0f} min are needed for a verdict"
    if found.per_hour + found.half_width < limit:
        return State.HOLDS, ""
    if found.per_hour - found.half_width > limit:
        return State.BROKEN, ""
    return State.OPEN, "the uncertainty covers the limit: run longer"


def _of_watched(
    value: Callable[[NodeSample], float],
) -> Callable[[Recording], list[tuple[float, float]]]:
    return lambda recording: [
        (each.at, value(each)) for each in recording.samples if each.node == WATCHED
    ]


def latency_buckets(
    latencies: Sequence[Latency | Probe], part: float, seconds: float = BUCKET_SECONDS
) -> list[tuple[float, float]]:
    """Return (middle of a bucket, quantile) in seconds."""
    buckets: dict[int, list[float]] = {}
    for each in latencies:
        buckets.setdefault(int(each.at / seconds), []).append(each.seconds)
    return [
        ((number + 0.5) * seconds, quantile(values, part))
        for number, values in sorted(buckets.items())
    ]


def during(recording: Recording, at: float, kinds: Sequence[str]) -> bool:
    """Return whether any interval of these kinds was in force at a time."""
    return any(each.kind in kinds and each.begin <= at <= each.end for each in recording.intervals)


def _sync_times(recording: Recording) -> Points:
    return [(each.at, each.seconds) for each in recording.probes]


def _latency_rule(name: str, part: float) -> Rule:
    """Return the rule of a quantile, at a constant sync time of the host's disk.

    Medians of blocks: what a fault costs at its onset is shown by the table of latencies, as is
    what a slow link costs. That takes more than half of a block in a soak of an hour, so publishes
    of its time are left out.
    """
    return Rule(
        *(f"{name} latency of the healthy client", "ms", 0.001, 1.0),
        lambda recording: latency_buckets(
            [each for each in recording.latencies if not during(recording, each.at, [LINK])], part
        ),
        statistics.median,
        _sync_times,
    )


RULES: Final = (
    Rule(f"memory of {WATCHED}", "MiB", MIB, 16.0, _of_watched(lambda each: each.resident_bytes)),
    Rule(f"file handles of {WATCHED}", "handles", 1.0, 10.0, _of_watched(lambda e: e.descriptors)),
    Rule(f"data of {WATCHED}", "MiB", MIB, 128.0, _of_watched(lambda each: each.store_bytes)),
    _latency_rule("median", 0.5),
    _latency_rule("10th percentile of the", FLOOR_PART),
    # What nodes cost the disk more and more is no growth at a constant sync time, but it is here.
    Rule(
        *("sync time of the disk below the nodes", "ms", 0.001, 1.0),
        lambda recording: latency_buckets(recording.probes, 0.5),
        statistics.median,
    ),
)


class Row(msgspec.Struct, frozen=True):
    """Latencies of the healthy client while something was in force."""

    name: str
    count: int
    failed: int
    p50: float  # seconds
    p99: float
    longest: float


def latency_rows(recording: Recording) -> list[Row]:
    """Return latencies of all time, without any fault, and during each kind of fault."""
    every = recording.latencies
    rows = [
        ("all the time", every),
        ("no fault, no backup", [e for e in every if not during(recording, e.at, FAULTS)]),
        *((kind, [e for e in every if during(recording, e.at, [kind])]) for kind in FAULTS),
    ]
    return [_row(name, latencies) for name, latencies in rows if latencies]


def _row(name: str, latencies: Sequence[Latency]) -> Row:
    values = [each.seconds for each in latencies]
    failed = sum(not each.confirmed for each in latencies)
    return Row(
        name, len(values), failed, quantile(values, 0.5), quantile(values, 0.99), max(values)
    )


def down_part(recording: Recording) -> float:
    """Return the part of the time in which a node was down or not ready again."""
    down = sum(each.end - each.begin for each in recording.intervals if each.kind == DOWN)
    return down / recording.duration if recording.duration else 0.0
