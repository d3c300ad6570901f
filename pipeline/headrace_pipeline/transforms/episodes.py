"""Alarms and saturation: events that begin and end, laid over windows.

The broker pairs them: an end has the `episode` of its beginning. One that was open when its node
was killed has no end; it is over when the node, started anew, tells of anything: an episode is
NODE-BOOT-NUMBER, and boots count up.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

ALARMS: Final = ("alarm_set", "alarm_cleared")
SATURATION: Final = ("saturated", "saturation_cleared")
EPISODE_S_MAX: Final = 21_600  # s; an open one is looked for so far back: alarms last minutes


def _boot() -> Column:
    """Return which start of its node an episode is of."""
    parts = fn.split("episode", "-")
    return fn.element_at(parts, -2).cast("long")


def intervals(events: DataFrame, pair: tuple[str, str]) -> DataFrame:
    """Return one row for each episode: node, id, vhost, queue, reason, started_at, ended_at.

    `ended_at` is null for one that goes on.

    Args:
        events: of the log, those of EPISODE_S_MAX before the first window as well.
        pair: ALARMS or SATURATION.
    """
    paired = events.where(fn.col("episode").isNotNull()).withColumn("boot", _boot())
    later = Window.partitionBy("node").orderBy("boot").rangeBetween(1, Window.unboundedFollowing)
    told = paired.withColumn("next_boot_at", fn.min("at").over(later))
    begins, ends = (fn.col("event") == each for each in pair)
    return (
        told.where(fn.col("event").isin(*pair))
        .groupBy("node", "episode")
        .agg(
            *(fn.max(name).alias(name) for name in ("id", "vhost", "queue", "reason")),
            fn.min("started_at").alias("started_at"),
            fn.min(fn.when(begins, fn.col("at"))).alias("begun_at"),
            fn.min(fn.when(ends, fn.col("at"))).alias("told_at"),
            fn.min("next_boot_at").alias("next_boot_at"),
        )
        .select(
            *("node", "id", "vhost", "queue", "reason"),
            fn.coalesce("started_at", "begun_at").alias("started_at"),
            fn.coalesce("told_at", "next_boot_at").alias("ended_at"),
        )
    )


def over_windows(
    episodes: DataFrame, windows: DataFrame, on: list[str], millis: dict[str, Column]
) -> DataFrame:
    """Return for each window how long it was in an episode, in milliseconds.

    Two episodes at once count once each; of one entity and reason there is never more than one.

    Args:
        episodes: of `intervals`.
        windows: `window_start`, `window_s` and the columns of `on`, no row twice.
        on: names of columns that both have.
        millis: by name of the sum, which episodes count for it.
    """
    starts = fn.unix_millis("window_start")
    ends = starts + fn.col("window_s") * 1000
    begun = fn.unix_millis("started_at")
    over = fn.coalesce(fn.unix_millis("ended_at"), ends)
    lasted = fn.least(over, ends) - fn.greatest(begun, starts)
    joined = windows.select("window_start", "window_s", *on).join(episodes, on)
    met = joined.where((begun < ends) & (over > starts))
    sums = [fn.sum(fn.when(which, lasted)).alias(name) for name, which in millis.items()]
    return met.groupBy("window_start", "window_s", *on).agg(*sums)
