"""Telemetry in windows of 10 seconds and a minute.

Everything of a window comes from one grouping, of facts that have the same key: a queue's own
rows, those of connections that it stopped, and its dead letters. Only what lasts for longer than a
window, alarms and saturation, is joined.

`queue_windows` and `node_windows` of samples can stream, in append mode, with a watermark
(`in_stream`). Windows end then when any node tells of a later time: Spark takes filters below the
watermark, so in a stream they are not filtered but go through as facts without a key. A job that
must lose nothing when one node is read before another does not stream: see `transforms/horizon.py`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace_pipeline.schema.analysis import ACCOUNT_WINDOWS, NODE_WINDOWS, QUEUE_WINDOWS
from headrace_pipeline.schema.column import Table
from headrace_pipeline.transforms import episodes
from headrace_pipeline.transforms.cost import brought_us
from headrace_pipeline.transforms.event_time import column_or_null, window_of, windowed

P95: Final = 0.95
ACCURACY: Final = 1000  # of percentiles: exact up to so many samples, and a window has 60 a node
LATE_S: Final = 60  # s; nodes sync rows once a second, a source waits for none longer than this

# Limits, as samples name them in `blocked_by`, that are about a queue's Raft log; the last one is
# the former name of the one before it, in rows of earlier builds.
COMMIT_LIMITS: Final = ("credit", "queue-commands", "queue-pending-bytes", "queue-bytes")
ACCOUNT_LIMIT: Final = "account"
WATERMARK_LIMIT: Final = "watermark"

# Reasons of dead letters that are a failure to process.
FAILED: Final = ("rejected", "delivery_limit")

_MOVES: Final = ("published", "delivered", "settled")
_QUEUE: Final = (
    *_MOVES,
    *("elapsed_ms", "node", "ready", "ready_octets", "unacked", "oldest_ready_ms"),
    *("consumers", "consumers_busy", "withheld"),
)
_NEWER: Final = ("commit_ms_p50", "commit_ms_p99", "pending_commands", "consumer_busy_ms")
_NODE: Final = (
    *_MOVES,
    *("confirmed", "redelivered", "left_out", "memory_used", "memory_limit", "disk_free"),
    *("disk_limit", "cpu_ms", "loop_lag_ms", "connections", "channels", "queues"),
)


def in_stream(rows: DataFrame, late_s: int = LATE_S) -> DataFrame:
    """Return rows of a stream with the watermark that streaming windows need.

    Args:
        rows: of a log, streaming; without it windows of a stream would never end.
        late_s: seconds by which rows may come later than the newest one of any node.
    """
    return rows.withWatermark("at", f"{late_s} seconds")


def queue_windows(
    samples: DataFrame, events: DataFrame | None = None, seconds: int = 10
) -> DataFrame:
    """Return QUEUE_WINDOWS, `saturated_ms` left out.

    Args:
        samples: of the log FLOW_SAMPLES, streaming or not.
        events: of FLOW_EVENTS, for dead letters, not streaming; None for none.
        seconds: length of the windows.
    """
    facts = _queue_facts(samples)
    if events is None:
        facts = facts.withColumns(dict.fromkeys(("dead", "failed"), fn.lit(None).cast("long")))
    else:
        facts = facts.unionByName(_dead_letters(events), allowMissingColumns=True)
    grouped = facts.groupBy(window_of(fn.col("at"), seconds).alias("window"), "vhost", "queue")
    sums = [
        *_queue_moves(seconds),
        *_queue_holds(),
        *_queue_consumers(),
        *_queue_commits(),
        *_queue_stops(),
    ]
    rows = grouped.agg(*sums, fn.count("queue").alias("facts")).where(fn.col("facts") > 0)
    return windowed(rows, seconds, QUEUE_WINDOWS)


def with_saturation(windows: DataFrame, events: DataFrame) -> DataFrame:
    """Return QUEUE_WINDOWS with `saturated_ms`.

    Args:
        windows: of `queue_windows`, not streaming.
        events: of FLOW_EVENTS, from `episodes.EPISODE_S_MAX` before the first window.
    """
    found = episodes.intervals(events, episodes.SATURATION).drop("node", "id")
    sums = {"saturated_ms": fn.expr("true")}
    return _joined(windows, found, ["vhost", "queue"], sums, QUEUE_WINDOWS)


def account_windows(edges: DataFrame, samples: DataFrame, seconds: int = 10) -> DataFrame:
    """Return ACCOUNT_WINDOWS: who brought what to which queue, and was stopped there itself.

    Args:
        edges: of the log DEBT_EDGES, not streaming: it is idle when nobody publishes.
        samples: of FLOW_SAMPLES, for who was stopped.
        seconds: length of the windows.
    """
    facts = edges.unionByName(_stopped(samples), allowMissingColumns=True)
    window = window_of(fn.col("at"), seconds).alias("window")
    grouped = facts.groupBy(window, "vhost", "queue", "origin_account")
    summed = ("copies", "octets", "replica_octets", "charged_messages", "charged_octets")
    sums = [fn.sum(name).alias(name) for name in (*summed, "repaid_messages", "repaid_octets")]
    rows = grouped.agg(
        *sums,
        *(_last(name) for name in ("account_name", "account_kind", "user")),
        fn.size(fn.collect_set("exchange")).alias("exchanges"),
        fn.max_by("exchange", fn.struct("copies", "exchange")).alias("exchange"),
        fn.max("owed_messages").alias("owed_messages_max"),
        fn.max("owed_octets").alias("owed_octets_max"),
        fn.coalesce(fn.sum("stopped_ms"), fn.lit(0)).alias("blocked_ms"),
    )
    rows = rows.na.fill(0, [*summed, "repaid_messages", "repaid_octets"])
    rows = rows.withColumn("copies_rate", fn.col("copies") / seconds)
    rows = rows.withColumn("octets_rate", fn.col("octets") / seconds)
    cost = brought_us(*(fn.col(name) for name in summed))
    return windowed(rows.withColumn("cost_us", cost), seconds, ACCOUNT_WINDOWS)


def node_windows(samples: DataFrame, seconds: int = 10) -> DataFrame:
    """Return NODE_WINDOWS, alarms left out.

    Args:
        samples: of the log FLOW_SAMPLES, streaming or not.
        seconds: length of the windows.
    """
    is_node = fn.col("kind") == "node"
    skew = column_or_null(samples, "skew_ms", "long").alias("skew_ms")
    facts = samples.where(fn.col("kind").isin("node", "connection")).select(
        *("at", "node", "elapsed_ms"),
        fn.when(is_node, fn.lit(1)).alias("told"),
        *(fn.when(is_node, fn.col(name)).alias(name) for name in _NODE),
        skew,
        fn.when(~is_node, fn.col("blocked_ms")).alias("stopped_ms"),
        fn.when(~is_node & (fn.col("blocked_ms") > 0), fn.col("id")).alias("stopped"),
        fn.col("blocked_queue"),
    )
    grouped = facts.groupBy(window_of(fn.col("at"), seconds).alias("window"), "node")
    return windowed(grouped.agg(*_node_sums(seconds)), seconds, NODE_WINDOWS)


def with_alarms(windows: DataFrame, events: DataFrame) -> DataFrame:
    """Return NODE_WINDOWS with the time that alarms of the node itself took.

    Args:
        windows: of `node_windows`, not streaming.
        events: of FLOW_EVENTS, from `episodes.EPISODE_S_MAX` before the first window.
    """
    found = episodes.intervals(events, episodes.ALARMS).drop("id", "vhost", "queue")
    memory, disk = (fn.col("reason") == of for of in ("memory", "disk"))
    sums = {"memory_alarm_ms": memory, "disk_alarm_ms": disk, "alarm_ms": fn.expr("true")}
    return _joined(windows, found, ["node"], sums, NODE_WINDOWS)


def _joined(
    windows: DataFrame, found: DataFrame, on: list[str], sums: dict[str, Column], table: Table
) -> DataFrame:
    """Return windows with sums over episodes; alarms that overlap fill a window once."""
    lasted = episodes.over_windows(found, windows, on, sums)
    bound = fn.col("window_s").cast("long") * 1000
    for name in sums:
        lasted = lasted.withColumn(name, fn.least(fn.coalesce(fn.col(name), fn.lit(0)), bound))
    keys = ["window_start", "window_s", *on]
    rows = windows.drop(*sums).join(lasted, keys, "left").na.fill(0, list(sums))
    return rows.select(*table.names)


# Facts: rows with a queue's key.


def _queue_facts(samples: DataFrame) -> DataFrame:
    """Return queues' own rows, and those of publishers that were stopped by them."""
    is_queue, is_stop = fn.col("kind") == "queue", _is_stop()
    if not samples.isStreaming:
        samples = samples.where(is_queue | is_stop)
    shares = [_share(samples, name) for name in ("pending_octets", "pending_command_octets")]
    newer = {name: column_or_null(samples, name, "double") for name in _NEWER}
    own = {name: fn.col(name) for name in _QUEUE} | newer | {"pending_share": fn.greatest(*shares)}
    stops = {"account": "account", "stopped_ms": "blocked_ms", "stopped_by": "blocked_by"}
    vhost = fn.when(is_queue, fn.col("vhost")).when(is_stop, fn.col("blocked_vhost"))
    queue = fn.when(is_queue, fn.col("name")).when(is_stop, fn.col("blocked_queue"))
    return samples.select(
        "at",
        vhost.alias("vhost"),
        queue.alias("queue"),
        *(fn.when(is_queue, value).alias(name) for name, value in own.items()),
        *(fn.when(is_stop, fn.col(of)).alias(name) for name, of in stops.items()),
    )


def _is_stop() -> Column:
    """Return whether a row is of a connection that a queue has stopped."""
    stops = (fn.col("kind") == "connection") & (fn.col("blocked_ms") > 0)
    return stops & fn.col("blocked_queue").isNotNull()


def _stopped(samples: DataFrame) -> DataFrame:
    """Return the stopped publishers of each queue, by account."""
    return samples.where(_is_stop()).select(
        "at",
        fn.col("blocked_vhost").alias("vhost"),
        fn.col("blocked_queue").alias("queue"),
        fn.col("account").alias("origin_account"),
        fn.col("name").alias("account_name"),
        *("account_kind", "user"),
        fn.col("blocked_ms").alias("stopped_ms"),
    )


def _share(samples: DataFrame, name: str) -> Column:
    """Return pending work as a share of its limit; null if unknown."""
    most = column_or_null(samples, f"{name}_max", "double")
    return fn.when(most > 0, column_or_null(samples, name, "double") / most)


def _dead_letters(events: DataFrame) -> DataFrame:
    found = events.where((fn.col("event") == "dead_lettered") & fn.col("queue").isNotNull())
    failed = fn.when(fn.col("reason").isin(*FAILED), fn.col("messages"))
    return found.select(
        *("at", "vhost", "queue"), fn.col("messages").alias("dead"), failed.alias("failed")
    )


# Sums.


def _last(name: str) -> Column:
    """Return the last value that is not null; of two at once the greater, so that it is settled."""
    return fn.max_by(name, fn.when(fn.col(name).isNotNull(), fn.struct("at", name))).alias(name)


def _first(name: str) -> Column:
    return fn.min_by(name, fn.when(fn.col(name).isNotNull(), fn.struct("at", name))).alias(name)


def _p95(value: Column) -> Column:
    return fn.percentile_approx(value, P95, ACCURACY)


def _moves(seconds: int) -> list[Column]:
    sums = []
    for name in _MOVES:
        total = fn.coalesce(fn.sum(name), fn.lit(0))
        each = fn.col(name) * 1000.0 / fn.col("elapsed_ms")
        sums += [
            total.alias(name),
            (total / seconds).alias(f"{name}_rate"),
            _p95(each).alias(f"{name}_rate_p95"),
            fn.max(each).alias(f"{name}_rate_max"),
        ]
    return sums


def _queue_moves(seconds: int) -> list[Column]:
    samples = fn.count("ready").alias("samples")
    return [_last("node").alias("leader"), samples, *_moves(seconds)]


def _queue_holds() -> list[Column]:
    return [
        _first("ready").alias("ready_first"),
        _last("ready").alias("ready_last"),
        fn.max("ready").alias("ready_max"),
        fn.max("ready_octets").alias("ready_octets_max"),
        fn.max("oldest_ready_ms").alias("oldest_ready_ms_max"),
        fn.avg("ready").alias("ready_mean"),
        fn.avg((fn.col("ready") > 0).cast("int")).alias("waiting_share"),
        fn.avg("unacked").alias("unacked_mean"),
        _first("unacked").alias("unacked_first"),
        _last("unacked").alias("unacked_last"),
        fn.max("withheld").alias("withheld_max"),
    ]


def _queue_consumers() -> list[Column]:
    """Busy consumers: by their busy time, if the broker reports it, or from samples."""
    attached_ms = fn.col("consumers") * fn.col("elapsed_ms")
    busy = fn.coalesce(fn.col("consumer_busy_ms") / fn.col("elapsed_ms"), fn.col("consumers_busy"))
    busy_ms = fn.coalesce("consumer_busy_ms", fn.col("consumers_busy") * fn.col("elapsed_ms"))
    known_ms = fn.sum(fn.when(busy_ms.isNotNull(), attached_ms))
    share = fn.when(known_ms > 0, fn.least(fn.sum(busy_ms) / known_ms, fn.lit(1.0)))
    return [
        fn.min("consumers").alias("consumers_min"),
        fn.max("consumers").alias("consumers_max"),
        fn.avg("consumers").alias("consumers_mean"),
        fn.avg(busy).alias("consumers_busy_mean"),
        share.alias("busy_share"),
    ]


def _queue_commits() -> list[Column]:
    return [
        _p95(fn.col("pending_share")).alias("pending_share_p95"),
        fn.max("pending_share").alias("pending_share_max"),
        fn.max("pending_commands").alias("pending_commands_max"),
        fn.percentile_approx("commit_ms_p50", 0.5, ACCURACY).alias("commit_ms_p50"),
        fn.max("commit_ms_p99").alias("commit_ms_p99"),
    ]


def _queue_stops() -> list[Column]:
    def total(name: str, which: Column | None = None) -> Column:
        value = fn.col(name) if which is None else fn.when(which, fn.col(name))
        return fn.coalesce(fn.sum(value), fn.lit(0))

    by = fn.col("stopped_by")
    return [
        total("stopped_ms").alias("blocked_ms"),
        total("stopped_ms", by.isin(*COMMIT_LIMITS)).alias("blocked_commit_ms"),
        total("stopped_ms", by == ACCOUNT_LIMIT).alias("blocked_account_ms"),
        total("stopped_ms", by == WATERMARK_LIMIT).alias("blocked_watermark_ms"),
        fn.size(fn.collect_set("account")).alias("blocked_connections"),
        total("dead").alias("dead_lettered"),
        total("failed").alias("dead_lettered_failed"),
    ]


def _node_sums(seconds: int) -> list[Column]:
    share = fn.col("cpu_ms") / fn.col("elapsed_ms")
    told = [
        *((f"{name}_max", fn.max(name)) for name in ("memory_used", "connections", "channels")),
        ("queues_max", fn.max("queues")),
        ("disk_free_min", fn.min("disk_free")),
        *((name, fn.coalesce(fn.sum(name), fn.lit(0))) for name in ("confirmed", "redelivered")),
        ("left_out", fn.coalesce(fn.sum("left_out"), fn.lit(0))),
        ("skew_ms", fn.coalesce(fn.max("skew_ms"), fn.lit(0))),
        (
            "cpu_share",
            fn.sum("cpu_ms") / fn.sum(fn.when(fn.col("told") == 1, fn.col("elapsed_ms"))),
        ),
        ("cpu_share_p95", _p95(share)),
        ("loop_lag_ms_p95", _p95(fn.col("loop_lag_ms"))),
        ("loop_lag_ms_max", fn.max("loop_lag_ms")),
        ("blocked_ms", fn.coalesce(fn.sum("stopped_ms"), fn.lit(0))),
        ("blocked_connections", fn.size(fn.collect_set("stopped"))),
    ]
    elsewhere = fn.sum(fn.when(fn.col("blocked_queue").isNull(), fn.col("stopped_ms")))
    told.append(("blocked_elsewhere_ms", fn.coalesce(elsewhere, fn.lit(0))))
    sums = [value.alias(name) for name, value in told]
    limits = [_last("memory_limit"), _last("disk_limit")]
    return [fn.count("told").alias("samples"), *_moves(seconds), *limits, *sums]
