"""Windows of a minute put together to longer ones, with only the columns that a report draws.

A week of 1,000 queues has ten million minutes; a plot has some hundred steps.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace_pipeline.schema.analysis import (
    ACCOUNT_WINDOWS,
    BLAME,
    BOTTLENECKS,
    CONSUMER_ADVICE,
    LONG_S,
    NODE_WINDOWS,
    QUEUE_WINDOWS,
)
from headrace_pipeline.schema.column import Table
from headrace_pipeline.transforms.event_time import as_table, utc_day

_SUM: Final = "sum"
_MAX: Final = "max"
_LAST: Final = "last"

# By name of the table: column -> how those of several windows become one.
_HOW: Final = {
    QUEUE_WINDOWS.name: {
        **dict.fromkeys(("samples", "published", "delivered", "settled"), _SUM),
        **dict.fromkeys(("blocked_ms", "saturated_ms", "dead_lettered"), _SUM),
        **dict.fromkeys(("published_rate_max", "ready_max", "oldest_ready_ms_max"), _MAX),
        **dict.fromkeys(("leader", "ready_last"), _LAST),
    },
    ACCOUNT_WINDOWS.name: {
        **dict.fromkeys(("copies", "octets"), _SUM),
        **dict.fromkeys(("account_name", "account_kind", "user", "exchange"), _LAST),
    },
    NODE_WINDOWS.name: {
        **dict.fromkeys(("samples", "published", "left_out"), _SUM),
        **dict.fromkeys(("alarm_ms", "memory_alarm_ms", "disk_alarm_ms"), _SUM),
        "blocked_elsewhere_ms": _SUM,
        **dict.fromkeys(("skew_ms", "loop_lag_ms_max"), _MAX),
    },
    BLAME.name: {
        **dict.fromkeys(("blamed_ms", "cost_us"), _SUM),
        **dict.fromkeys(("account_name", "account_kind", "user"), _LAST),
    },
}


def condense(windows: DataFrame, table: Table, step_s: int) -> DataFrame:
    """Return rows of a table for steps, in place of minutes.

    Args:
        windows: rows of the table; those of other lengths than a minute are left out.
        table: QUEUE_WINDOWS, ACCOUNT_WINDOWS, NODE_WINDOWS or BLAME.
        step_s: length of a step in seconds, a multiple of a minute; steps begin at midnight.

    Returns:
        The table's columns; those for which there is no rule are null.
    """
    key = [name for name in table.key if name not in ("window_start", "window_s")]
    sums = [_by(how, name).alias(name) for name, how in _HOW[table.name].items()]
    grouped = _minutes(windows, step_s).groupBy("step", *key).agg(*sums)
    return _as_windows(grouped, table, fn.lit(step_s))


def condense_bottlenecks(bottlenecks: DataFrame, step_s: int) -> DataFrame:
    """Return BOTTLENECKS with one row for each queue, step and class.

    `window_s` is how many seconds of the step the class held.
    """
    grouped = _minutes(bottlenecks, step_s).groupBy("step", "vhost", "queue", "bottleneck")
    rows = grouped.agg(
        fn.sum("window_s").alias("held_s"),
        fn.sum("blocked_ms").alias("blocked_ms"),
        _by(_LAST, "because").alias("because"),
    )
    return _as_windows(rows, BOTTLENECKS, fn.col("held_s"))


def condense_advice(advice: DataFrame, step_s: int) -> DataFrame:
    """Return CONSUMER_ADVICE with one row for each queue and step: that which changes most."""
    change = fn.abs(fn.col("advised") - fn.coalesce("consumers", fn.lit(0)))
    rank = fn.struct(change, fn.coalesce("arrival_rate_p95", fn.lit(0.0)), "window_start")
    whole = fn.struct(*CONSUMER_ADVICE.names)
    grouped = _minutes(advice, step_s).groupBy("step", "vhost", "queue")
    return as_table(
        grouped.agg(fn.max_by(whole, rank).alias("row")).select("row.*"), CONSUMER_ADVICE
    )


def _minutes(windows: DataFrame, step_s: int) -> DataFrame:
    step = fn.floor(fn.unix_seconds("window_start") / step_s) * step_s
    return windows.where(fn.col("window_s") == LONG_S).withColumn(
        "step", fn.timestamp_seconds(step)
    )


def _by(how: str, name: str) -> Column:
    if how == _SUM:
        return fn.sum(name)
    if how == _MAX:
        return fn.max(name)
    return fn.max_by(name, fn.when(fn.col(name).isNotNull(), fn.col("window_start")))


def _as_windows(rows: DataFrame, table: Table, length: Column) -> DataFrame:
    start = fn.col("step")
    given = {"window_start": start, "window_s": length, "day": utc_day(start)}
    return as_table(rows, table, given)
