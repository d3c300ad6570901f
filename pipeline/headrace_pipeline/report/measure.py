"""Figures of a report: sums, ranks and series of the frames, without any words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pandas as pd

from headrace_pipeline.report.frames import Frames, Span, long_windows

Queue = tuple[str, str]  # vhost and name

QUEUE: Final = ["vhost", "queue"]
PART: Final = 0.9  # of its seconds: a step of which less is told is a part of one


class Account(NamedTuple):
    """An account that brought load."""

    id: str  # `origin_account`
    name: str  # for people
    blamed_ms: float  # of others' time and its own


class Held(NamedTuple):
    """A queue at which publishers were stopped."""

    queue: Queue  # vhost and name
    blocked_ms: float  # of publishers, in sum
    by: tuple[tuple[str, float], ...]  # ids of those blamed, with their milliseconds, most first


class Slowed(NamedTuple):
    """A queue that was a bottleneck."""

    queue: Queue  # vhost and name
    seconds: tuple[tuple[str, float], ...]  # by class, most first
    because: str | None  # the latest sentence with figures of its first class
    # number of the step in which its publishers were blocked most, None where never
    worst: int | None


def prepare(frames: Frames, span: Span) -> Frames:
    """Return the frames' rows of the span, each with the number of its `step`."""

    def of_span(frame: pd.DataFrame) -> pd.DataFrame:
        rows = long_windows(frame, span)
        return rows.assign(step=span.numbers(rows["window_start"]))

    windowed = {key: of_span(rows) for key, rows in frames._asdict().items() if key != "capacity"}
    return frames._replace(**windowed)


def covered(frames: Frames, span: Span) -> list[bool]:
    """Return for each step whether any node told anything."""
    told = set(frames.nodes.loc[frames.nodes["samples"] > 0, "step"])
    return [step in told for step in range(span.steps)]


def seconds(frames: Frames, span: Span) -> list[float]:
    """Return by how many seconds the counts of each step are divided to get rates.

    Those of the step, unless it is told of in part only, as the last one may be: that would look
    like a fall.
    """
    by_node = frames.nodes.groupby(["step", "node"])["samples"].sum()
    told = by_node.groupby(level="step").max().reindex(range(span.steps)).fillna(0)
    return [
        float(value) if 0 < value < PART * span.step_s else float(span.step_s)
        for value in told.tolist()
    ]


def by_step(
    rows: pd.DataFrame, column: str, how: str, span: Span, known: Sequence[bool]
) -> list[float | None]:
    """Return one value for each step: 0 where nothing moved, None without data.

    Args:
        rows: with `step`.
        column: whose values are taken.
        how: "sum" or "max" of them.
        span: of the steps.
        known: of `covered`.
    """
    found = rows.groupby("step")[column].agg(how)
    found = found.reindex(range(span.steps))
    return [
        float(value) if pd.notna(value) else (0.0 if is_known else None)
        for value, is_known in zip(found, known, strict=True)
    ]


def busiest(frames: Frames, at_most: int) -> list[Queue]:
    """Return queues by arrivals and content, those that stopped publishers first.

    A queue is ranked by the better of two ranks: messages published, and milliseconds blocked.
    """
    sums = frames.queues.groupby(QUEUE)[["published", "blocked_ms"]].sum()
    if sums.empty:
        return []
    published = sums["published"].rank(ascending=False, method="first")
    blocked = sums["blocked_ms"].rank(ascending=False, method="first")
    blocked = blocked.where(sums["blocked_ms"] > 0)
    best = pd.concat([published, blocked], axis=1).min(axis=1)
    order = sums.assign(best=best).sort_values(["best", "blocked_ms"], ascending=[True, False])
    return [_queue(key) for key in order.index[:at_most]]


def of(frame: pd.DataFrame, queue: Queue) -> pd.DataFrame:
    """Return the rows of a queue."""
    return frame[(frame["vhost"] == queue[0]) & (frame["queue"] == queue[1])]


def accounts(frames: Frames) -> list[Account]:
    """Return everybody that is blamed, most first, with names that tell them apart."""
    sums = frames.blame.groupby("origin_account", sort=True).agg(
        blamed_ms=("blamed_ms", "sum"), account_name=("account_name", "last")
    )
    sums = sums.sort_values("blamed_ms", ascending=False, kind="stable")
    names = sums["account_name"].where(sums["account_name"].notna(), sums.index.to_series())
    twice = names.duplicated(keep=False)
    return [
        Account(
            str(key),
            f"{names[key]} ({key})" if twice[key] and names[key] != key else str(names[key]),
            float(sums["blamed_ms"][key]),
        )
        for key in sums.index
    ]


def held(frames: Frames) -> list[Held]:
    """Return the queues at which publishers were stopped, most first."""
    sums = frames.queues.groupby(QUEUE)["blocked_ms"].sum()
    sums = sums[sums > 0].sort_values(ascending=False, kind="stable")
    blamed = frames.blame.groupby([*QUEUE, "origin_account"])["blamed_ms"].sum()
    by: dict[Queue, list[tuple[str, float]]] = {}
    for (vhost, queue, account), value in blamed.items():
        by.setdefault((vhost, queue), []).append((str(account), float(value)))
    found = []
    for key, total in sums.items():
        queue = _queue(key)
        ranked = sorted(by.get(queue, []), key=lambda pair: (-pair[1], pair[0]))
        found.append(Held(queue, float(total), tuple(ranked)))
    return found


def slowed(frames: Frames) -> list[Slowed]:
    """Return the queues that were bottlenecks: by blocked time, then by how long, most first."""
    rows = frames.bottlenecks
    seconds = rows.groupby([*QUEUE, "bottleneck"])["window_s"].sum()
    by: dict[Queue, list[tuple[str, float]]] = {}
    for (vhost, queue, bottleneck), value in seconds.items():
        by.setdefault((vhost, queue), []).append((str(bottleneck), float(value)))
    blocked = frames.queues.groupby([*QUEUE, "step"])["blocked_ms"].sum()
    total = {_queue(key): float(v) for key, v in blocked.groupby(level=QUEUE).sum().items()}
    worst = {
        _queue(key): int(at[2])
        for key, at in blocked[blocked > 0].groupby(level=QUEUE).idxmax().items()
    }
    found = []
    for queue, classes in by.items():
        ranked = tuple(sorted(classes, key=lambda pair: (-pair[1], pair[0])))
        said = of(rows, queue)
        said = said[(said["bottleneck"] == ranked[0][0]) & said["because"].notna()]
        because = str(said.sort_values("window_start")["because"].iloc[-1]) if len(said) else None
        found.append(Slowed(queue, ranked, because, worst.get(queue)))
    return sorted(
        found,
        key=lambda each: (
            -total.get(each.queue, 0.0),
            -sum(seconds for _, seconds in each.seconds),
            each.queue,
        ),
    )


def classes_by_step(rows: pd.DataFrame) -> dict[int, tuple[str, float]]:
    """Return for each step of a queue's bottlenecks the class of most of it, and its seconds."""
    seconds = rows.groupby(["step", "bottleneck"])["window_s"].sum()
    first: dict[int, tuple[str, float]] = {}
    for (step, bottleneck), value in seconds.items():
        if value > first.get(int(step), ("", 0.0))[1]:
            first[int(step)] = (str(bottleneck), float(value))
    return first


def _queue(key: object) -> Queue:
    assert isinstance(key, tuple)
    return str(key[0]), str(key[1])
