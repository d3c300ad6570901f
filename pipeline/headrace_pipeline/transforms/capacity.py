"""Distance of nodes and queues from their limits, and when they will reach them.

The limit of a rate, the *knee*, is what was measured: given by somebody who ran a benchmark, or
found in the windows themselves, as the rate at which an entity was when it was at its limit. That
of memory and disk is configured. An entity that never was at its limit has none.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace_pipeline.schema.analysis import CAPACITY
from headrace_pipeline.transforms.event_time import as_table

P95: Final = 0.95
ACCURACY: Final = 10_000  # of percentiles, over a week of minutes
CPU_SHARE: Final = (
    0.9  # of one processor, which is all that a node's loop can use: it is at its limit
)
LAG_MS: Final = 250.0  # ms; a loop that comes so late has more to do than it can
BLOCKED_SHARE: Final = 0.05  # of a window: somebody waits for this queue
KNEE_MINUTES: Final = 5  # minutes at the limit, from which its rate is measured; fewer are chance
DAYS_LEAST: Final = 7  # days with data for a trend: fewer may be a working week's first half
GROWTH_LEAST: Final = 0.01  # of the level, per week; less is no growth and gives no date


def capacity(nodes: DataFrame, queues: DataFrame, knees: DataFrame | None = None) -> DataFrame:
    """Return CAPACITY.

    Args:
        nodes: NODE_WINDOWS of a minute, of days or weeks.
        queues: QUEUE_WINDOWS likewise.
        knees: `kind`, `vhost` (null for nodes), `name`, `knee` in messages/s, as measured by a
            benchmark; they count before what is found here. None for none.
    """
    node = nodes.withColumn("vhost", fn.lit(None).cast("string"))
    node = node.withColumnRenamed("node", "name").withColumn("kind", fn.lit("node"))
    queue = queues.withColumnRenamed("queue", "name").withColumn("kind", fn.lit("queue"))
    is_busy = (fn.col("cpu_share_p95") >= CPU_SHARE) | (fn.col("loop_lag_ms_p95") >= LAG_MS)
    waits = fn.col("blocked_ms") - fn.col("blocked_watermark_ms")
    is_stopped = waits >= fn.col("window_s") * 1000 * BLOCKED_SHARE
    rates = _rates(node, is_busy).unionByName(_rates(queue, is_stopped))
    memory = _levels(node, "memory_used", fn.col("memory_used_max"), fn.col("memory_limit"))
    disk = _levels(node, "disk_free", -fn.col("disk_free_min"), -fn.col("disk_limit"))
    if knees is not None:
        rates = _given(rates, knees)
    together = rates.unionByName(memory).unionByName(disk)
    return as_table(_with_trend(together), CAPACITY)


def _with_trend(rows: DataFrame) -> DataFrame:
    """Return one row for each entity and measure, from days."""
    entity = ("kind", "vhost", "name", "measure")
    per_day = rows.groupBy(*entity, "day").agg(
        fn.max("peak").alias("peak"),
        fn.percentile_approx("value", P95, ACCURACY).alias("p95"),
        fn.max("limit").alias("limit"),
        fn.max("limit_from").alias("limit_from"),
    )
    day = fn.unix_date("day").cast("double")
    found = per_day.groupBy(*entity).agg(
        fn.max("peak").alias("peak"),
        fn.max_by("p95", "day").alias("now"),
        fn.percentile_approx("p95", P95, ACCURACY).alias("p95"),
        fn.max_by("limit", "day").alias("limit"),
        fn.max("limit_from").alias("limit_from"),
        (fn.regr_slope("p95", day) * 7).alias("growth"),
        fn.avg("p95").alias("level"),
        fn.count("day").alias("days"),
    )
    known = fn.col("days") >= DAYS_LEAST
    grows = known & (fn.col("growth") > fn.abs("level") * GROWTH_LEAST)
    left = fn.greatest(fn.col("limit") - fn.col("p95"), fn.lit(0.0))
    found = found.withColumn("weeks_to_limit", fn.when(grows, left / fn.col("growth")))
    return _signed(found.withColumn("growth_per_week", fn.when(known, fn.col("growth"))))


def _signed(rows: DataFrame) -> DataFrame:
    """Return a falling measure, which was counted below zero until here, with its real sign."""
    less = fn.col("limit") < 0
    share = fn.when(less, fn.col("limit") / fn.col("p95")).otherwise(
        fn.col("p95") / fn.col("limit")
    )
    rows = rows.withColumn("used_share", fn.when(fn.col("p95") != 0, share))
    for name in ("peak", "p95", "growth_per_week", "limit"):  # limit is asked about, so comes last
        rows = rows.withColumn(name, fn.when(less, -fn.col(name)).otherwise(fn.col(name)))
    return rows


def _rates(windows: DataFrame, at_limit: Column) -> DataFrame:
    """Return published rates, with the median of those at the limit as the measured one."""
    entity = ["kind", "vhost", "name"]
    there = windows.where(at_limit & (fn.col("published_rate") > 0)).groupBy(*entity)
    knees = there.agg(
        fn.percentile_approx("published_rate", 0.5, ACCURACY).alias("limit"),
        fn.count("published_rate").alias("minutes"),
    ).where(fn.col("minutes") >= KNEE_MINUTES)
    same = fn.expr(" and ".join(f"w.{name} <=> k.{name}" for name in entity))
    rows = windows.alias("w").join(knees.alias("k"), same, "left")
    return rows.select(
        *(f"w.{name}" for name in entity),
        fn.col("w.day").alias("day"),
        fn.lit("published_rate").alias("measure"),
        fn.col("w.published_rate").alias("value"),
        fn.col("w.published_rate_max").alias("peak"),
        fn.col("k.limit").alias("limit"),
        fn.when(fn.col("k.limit").isNotNull(), fn.lit("measured")).alias("limit_from"),
    )


def _given(rates: DataFrame, knees: DataFrame) -> DataFrame:
    entity = ("kind", "vhost", "name")
    same = fn.expr(" and ".join(f"r.{name} <=> g.{name}" for name in entity))
    rows = rates.alias("r").join(fn.broadcast(knees).alias("g"), same, "left")
    is_given = fn.col("g.knee").isNotNull()
    return rows.select(
        *(f"r.{name}" for name in (*entity, "day", "measure", "value", "peak")),
        fn.coalesce("g.knee", "r.limit").alias("limit"),
        fn.when(is_given, fn.lit("given")).otherwise(fn.col("r.limit_from")).alias("limit_from"),
    )


def _levels(windows: DataFrame, measure: str, value: Column, limit: Column) -> DataFrame:
    """Return what fills up, with its configured limit."""
    rows = windows.where(value.isNotNull() & (limit != 0))
    return rows.select(
        *("kind", "vhost", "name", "day"),
        fn.lit(measure).alias("measure"),
        value.cast("double").alias("value"),
        value.cast("double").alias("peak"),
        limit.cast("double").alias("limit"),
        fn.lit("configured").alias("limit_from"),
    )
