"""Bottleneck of a queue in a minute: the first of CLASSES that holds.

The order is that of causes: an alarm stops everybody whatever consumers do, a log that does not
commit makes consumers wait too, and only then is it worth asking about consumers, about what they
are given, about what they make of it, and about who publishes.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace_pipeline.schema import analysis
from headrace_pipeline.schema.analysis import BOTTLENECKS
from headrace_pipeline.transforms.event_time import as_table

ALARM_MS: Final = 1_000  # ms of the minute; a shorter alarm stops publishers for less than it says
BLOCKED_SHARE: Final = 0.05  # of the window, for all connections together; 3 s in a minute
COMMIT_MS: Final = (
    100.0  # ms, in half of the seconds; a healthy disk takes 5-20, one slow sync is no cause
)
PENDING_SHARE: Final = 0.5  # of what may be handed over and not applied; it stays below 0.1 if well
BUSY_SHARE: Final = 0.9  # of consumers' time; what is left is for acknowledgements on their way
WAITING_SHARE: Final = 0.9  # of seconds in which messages waited; a burst fills fewer
HOLD_MS: Final = 300_000  # ms that a consumer has a message; longer and it is forgotten, or stuck
SERVICE_MS: Final = (
    5.0  # ms of a consumer for a message; with less, prefetch 1-2 waits on the network
)
PREFETCH_SMALL: Final = 2.0  # unacked messages of a consumer
FAILED_SHARE: Final = 0.01  # of deliveries that end as dead letters by failure
RETURNED_SHARE: Final = 0.1  # of deliveries that come back and are not settled
RETURNED_MIN: Final = 10  # messages; fewer are noise of looking at two moments
BURST: Final = 1.5  # rate that comes by rate that goes


def bottlenecks(queues: DataFrame, nodes: DataFrame) -> DataFrame:
    """Return BOTTLENECKS: rows for queues and windows in which a class holds.

    Args:
        queues: QUEUE_WINDOWS, of a minute.
        nodes: NODE_WINDOWS of the same windows; an alarm of one node stops publishers of all.
    """
    alarms = nodes.groupBy("window_start", "window_s").agg(
        *(fn.max(name).alias(name) for name in ("alarm_ms", "memory_alarm_ms", "disk_alarm_ms"))
    )
    rows = queues.join(fn.broadcast(alarms), ["window_start", "window_s"], "left")
    conditions = _conditions()
    first = _first_of({name: fn.lit(name) for name in conditions}, conditions)
    rows = rows.withColumn("bottleneck", first)
    rows = rows.where(fn.col("bottleneck").isNotNull())
    return as_table(rows.withColumn("because", _first_of(_sentences(), conditions)), BOTTLENECKS)


def _first_of(values: dict[str, Column], conditions: dict[str, Column]) -> Column:
    tried = [fn.when(conditions[name], values[name]) for name in analysis.CLASSES]
    return fn.coalesce(*tried)


def _conditions() -> dict[str, Column]:
    """Return by class whether it holds, apart from those before it; null is no."""
    waits = fn.col("waiting_share") >= WAITING_SHARE
    is_full = fn.col("busy_share") >= BUSY_SHARE
    held_up = waits & is_full & (fn.col("consumers_max") > 0)
    return {
        analysis.MEMORY_ALARM: fn.col("memory_alarm_ms") >= ALARM_MS,
        analysis.DISK_ALARM: fn.col("disk_alarm_ms") >= ALARM_MS,
        analysis.RAFT_COMMIT: _commits_slowly(),
        analysis.CONSUMERS_SATURATED: _nobody()
        | (held_up & (fn.col("settled") > 0) & ~_is_slow_ack()),
        analysis.PREFETCH_OR_SLOW_ACK: waits & (fn.col("consumers_max") > 0) & _is_slow_ack(),
        analysis.POISON_OR_CRASH: _fails(),
        analysis.PUBLISHER_BURST: _bursts(),
    }


def _nobody() -> Column:
    """Return whether publishers are stopped because there is no consumer; never null.

    A queue that nobody reads and that holds nobody up is a store, and all is well.
    """
    backlog = fn.coalesce("blocked_watermark_ms", fn.lit(0)) + fn.coalesce(
        "blocked_account_ms", fn.lit(0)
    )
    stopped = backlog >= fn.col("window_s") * 1000 * BLOCKED_SHARE
    above = fn.coalesce(fn.col("saturated_ms"), fn.lit(0)) > 0
    left = (fn.col("consumers_max") == 0) & (fn.col("ready_max") > 0)
    return fn.coalesce(left & (stopped | above), fn.lit(False))


def _commits_slowly() -> Column:
    """Return whether publishers wait for the queue's log, or it commits too late by itself."""
    stopped = fn.col("blocked_commit_ms") >= fn.col("window_s") * 1000 * BLOCKED_SHARE
    pending = fn.coalesce(fn.col("pending_share_p95") >= PENDING_SHARE, fn.lit(False))
    late = fn.coalesce(fn.col("commit_ms_p50") >= COMMIT_MS, fn.lit(False))
    moves = (fn.col("published") > 0) | (fn.col("blocked_ms") > 0)
    return (stopped & pending) | (late & moves)


def _hold_ms() -> Column:
    """Return how long a consumer has a message, by Little's law; null while none is settled."""
    return (
        fn.col("unacked_mean")
        * 1000.0
        / fn.when(fn.col("settled_rate") > 0, fn.col("settled_rate"))
    )


def _service_ms() -> Column:
    """Return how long a consumer that is busy works for a message."""
    rate = fn.when(fn.col("settled_rate") > 0, fn.col("settled_rate"))
    return fn.col("consumers_busy_mean") * 1000.0 / rate


def _is_slow_ack() -> Column:
    """Return whether consumers hold messages without working on them all the time."""
    holds = fn.col("unacked_mean") > 0
    stuck = holds & (fn.col("settled") == 0)
    slow = _hold_ms() >= HOLD_MS
    each = fn.col("unacked_mean") / fn.col("consumers_mean")
    starved = (each <= PREFETCH_SMALL) & (_service_ms() < SERVICE_MS)
    return reduce(
        lambda a, b: a | fn.coalesce(b, fn.lit(False)),
        (slow, starved),
        fn.coalesce(stuck, fn.lit(False)),
    )


def _fails() -> Column:
    """Return whether deliveries return, end as dead letters, or have no consumer."""
    held = fn.coalesce(fn.col("unacked_last") - fn.col("unacked_first"), fn.lit(0))
    returned = fn.col("delivered") - fn.col("settled") - held
    enough = (returned >= RETURNED_MIN) & (returned >= fn.col("delivered") * RETURNED_SHARE)
    failed = fn.col("dead_lettered_failed")
    poison = (failed > 0) & (failed >= fn.col("delivered") * FAILED_SHARE)
    gone = (
        (fn.col("consumers_min") == 0) & (fn.col("consumers_max") > 0) & (fn.col("ready_max") > 0)
    )
    none = fn.lit(False)
    return fn.coalesce(enough, none) | fn.coalesce(poison, none) | fn.coalesce(gone, none)


def _bursts() -> Column:
    """Return whether more came than goes: publishers were stopped, or what waits grew."""
    stopped = fn.col("blocked_ms") >= fn.col("window_s") * 1000 * BLOCKED_SHARE
    above = fn.coalesce(fn.col("saturated_ms"), fn.lit(0)) > 0
    grows = fn.col("ready_last") > fn.col("ready_first")
    more = (fn.col("published_rate_p95") >= fn.col("settled_rate") * BURST) & (
        fn.col("published") > 0
    )
    return (
        stopped | above | fn.coalesce(grows & more & (fn.col("consumers_max") > 0), fn.lit(False))
    )


def _sentences() -> dict[str, Column]:
    def rate(name: str) -> Column:
        return fn.round(fn.col(name)).cast("long")

    def say(text: str, *values: Column) -> Column:
        return fn.format_string(
            text, *(fn.coalesce(each.cast("string"), fn.lit("?")) for each in values)
        )

    seconds = fn.round(fn.col("blocked_ms") / 1000, 1)
    percent = fn.round(fn.col("busy_share") * 100).cast("int")
    busy = say(
        "%s consumers are busy %s %% of the time, %s/s come and %s/s go, %s wait",
        rate("consumers_mean"),
        percent,
        rate("published_rate"),
        rate("settled_rate"),
        fn.col("ready_last"),
    )
    return {
        analysis.MEMORY_ALARM: say("memory was low for %s ms", fn.col("memory_alarm_ms")),
        analysis.DISK_ALARM: say("the disk was full for %s ms", fn.col("disk_alarm_ms")),
        analysis.RAFT_COMMIT: say(
            "the log keeps publishers waiting: %s s in sum, commits take up to %s ms, "
            "%s %% of what may be pending is",
            seconds,
            fn.round("commit_ms_p99", 1),
            fn.round(fn.col("pending_share_p95") * 100).cast("int"),
        ),
        analysis.CONSUMERS_SATURATED: fn.when(
            _nobody(),
            say(
                "nobody consumes: %s/s come, %s wait, publishers were stopped for %s s in sum",
                rate("published_rate"),
                fn.col("ready_last"),
                seconds,
            ),
        ).otherwise(busy),
        analysis.PREFETCH_OR_SLOW_ACK: say(
            "%s consumers hold %s messages and settle %s/s",
            rate("consumers_mean"),
            rate("unacked_mean"),
            rate("settled_rate"),
        ),
        analysis.POISON_OR_CRASH: say(
            "of %s deliveries %s were settled, %s failed for good; %s to %s consumers",
            *(fn.col(name) for name in ("delivered", "settled", "dead_lettered_failed")),
            *(fn.col(name) for name in ("consumers_min", "consumers_max")),
        ),
        analysis.PUBLISHER_BURST: say(
            "%s/s came at the peak and %s/s go; publishers were stopped for %s s in sum",
            rate("published_rate_max"),
            rate("settled_rate"),
            seconds,
        ),
    }
