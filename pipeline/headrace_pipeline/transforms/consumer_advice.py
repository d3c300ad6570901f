"""Advice on numbers of consumers, from windows of a minute.

Each queue's minutes are gone through in order, for what is advised depends on what was
(`transforms/advice_rule.py`). The same tables give the same advice, however often and in whatever
pieces they are gone through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema

from headrace_pipeline.schema.analysis import CONSUMER_ADVICE, LONG_S
from headrace_pipeline.transforms.advice_rule import (
    DRAIN_S,
    FALL_MINUTES,
    VALID_S,
    Advised,
    Load,
    advise,
    wanted,
)
from headrace_pipeline.transforms.event_time import as_table, utc_day

HISTORY_S: Final = FALL_MINUTES * LONG_S  # s; windows before the first minute that are asked about

_ROWS: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("vhost", "queue", "bottleneck", "because")),
        *((name, pa.int64()) for name in ("minute", "began", "advised", "consumers", "baseline")),
        *((name, pa.int64()) for name in ("backlog", "wanted")),
        *((name, pa.float64()) for name in ("arrival_rate_p95", "service_rate")),
    ]
)

Row = dict[str, Any]


def consumer_advice(
    queues: DataFrame,
    bottlenecks: DataFrame,
    given: DataFrame,
    since: datetime,
    drain_s: int = DRAIN_S,
    valid_s: int = VALID_S,
) -> DataFrame:
    """Return CONSUMER_ADVICE for minutes from `since` on.

    Args:
        queues: QUEUE_WINDOWS of a minute, from HISTORY_S before `since` on.
        bottlenecks: BOTTLENECKS of the same minutes.
        given: CONSUMER_ADVICE of before `since` that may be valid still; the newest row counts.
        since: first minute to advise after; aware.
        drain_s: time in seconds in which a backlog should be gone.
        valid_s: seconds for which advice holds.
    """
    keys = ["window_start", "vhost", "queue"]
    found = queues.join(bottlenecks.select(*keys, "bottleneck"), keys, "left")
    service = fn.when(
        fn.col("consumers_busy_mean") > 0, fn.col("settled_rate") / fn.col("consumers_busy_mean")
    )
    minutes = found.select(
        fn.col("vhost"),
        fn.col("queue"),
        (fn.unix_seconds("window_start") / LONG_S).cast("long").alias("minute"),
        fn.col("bottleneck"),
        fn.coalesce(fn.round("consumers_mean"), fn.lit(0)).cast("long").alias("consumers"),
        fn.coalesce("published_rate_p95", fn.lit(0.0)).alias("arrival"),
        fn.coalesce("ready_last", fn.lit(0)).alias("backlog"),
        service.alias("service"),
    )
    before = given.select(
        "vhost",
        "queue",
        (fn.unix_seconds("window_start") / LONG_S).cast("long").alias("minute"),
        fn.col("advised").alias("value"),
        "baseline",
        (fn.unix_seconds("began_at") / LONG_S).cast("long").alias("began"),
    )
    first = int(since.timestamp()) // LONG_S
    together = minutes.groupBy("vhost", "queue").cogroup(before.groupBy("vhost", "queue"))
    rows = together.applyInArrow(_advise_all(first, drain_s, valid_s), from_arrow_schema(_ROWS))
    start = fn.timestamp_seconds(fn.col("minute") * LONG_S)
    made = {
        "window_start": start,
        "window_s": fn.lit(LONG_S),
        "began_at": fn.timestamp_seconds(fn.col("began") * LONG_S),
        "valid_until": fn.timestamp_seconds(fn.col("minute") * LONG_S + LONG_S + valid_s),
        "drain_s": fn.lit(drain_s),
        "day": utc_day(start),
    }
    return as_table(rows, CONSUMER_ADVICE, made)


def _advise_all(first: int, drain_s: int, valid_s: int) -> Callable[[pa.Table, pa.Table], pa.Table]:
    def of_queue(minutes: pa.Table, before: pa.Table) -> pa.Table:
        history = sorted(map(_load, minutes.to_pylist()))
        advised = sorted(
            Advised(*(row[name] for name in Advised._fields)) for row in before.to_pylist()
        )
        given = advised[-1] if advised else None
        rows = _gone_through(history, given, first, drain_s, valid_s)
        whose = (minutes if minutes.num_rows else before).slice(0, 1).to_pylist()[0]
        of = {"vhost": whose["vhost"], "queue": whose["queue"]}
        return pa.Table.from_pylist([row | of for row in rows], schema=_ROWS)

    return of_queue


def _load(row: Row) -> Load:
    return Load(*(row[name] for name in Load._fields))


def _gone_through(
    history: list[Load], given: Advised | None, first: int, drain_s: int, valid_s: int
) -> Iterator[Row]:
    for at, load in enumerate(history):
        if load.minute < first:
            continue
        recent = [each for each in history[: at + 1] if each.minute > load.minute - FALL_MINUTES]
        given = advise(recent, given, drain_s, valid_s)
        if given is not None:
            yield _row(load, given, drain_s)


def _row(load: Load, given: Advised, drain_s: int) -> Row:
    return {
        "minute": load.minute,
        "began": given.began,
        "advised": given.value,
        "consumers": load.consumers,
        "baseline": given.baseline,
        "arrival_rate_p95": load.arrival,
        "service_rate": load.service,
        "backlog": load.backlog,
        "wanted": wanted(load, drain_s),
        "bottleneck": load.bottleneck,
        "because": _sentence(load, given, drain_s),
    }


def _sentence(load: Load, given: Advised, drain_s: int) -> str:
    figures = f"{load.arrival:.0f}/s come, {load.backlog} wait and should be gone in {drain_s} s"
    if load.service:
        figures += f", a busy consumer settles {load.service:.1f}/s"
    if load.consumers >= given.value:
        return f"as long as {figures}, {given.value} are needed"
    return f"{load.consumers} consumers are too few: {figures}"
