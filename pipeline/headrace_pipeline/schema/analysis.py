"""Tables of the analysis of telemetry: windows, blame, bottlenecks, advice, capacity.

Rows of windows begin with `window_start` and `window_s`, the length in seconds: one table holds
windows of both lengths of `WINDOWS_S`, so filter by `window_s`. Rates are per second. A mean rate
is what there was in the window by the window's length; `_p95` and `_max` are of single seconds,
those in which the broker told of the entity. `day` is that of `window_start`, in UTC.
"""

from __future__ import annotations

from typing import Final

from headrace_pipeline.schema.column import Column, Kind, Table
from headrace_pipeline.schema.log import DEBT_EDGES, FLOW_EVENTS, FLOW_SAMPLES

I64, I32, F64, TEXT = Kind.INT64, Kind.INT32, Kind.FLOAT64, Kind.UTF8
TIME: Final = Kind.TIMESTAMP

SHORT_S: Final = 10  # seconds; short enough that a burst is not lost in a mean
LONG_S: Final = 60  # seconds; bottlenecks and advice are about minutes
WINDOWS_S: Final = (SHORT_S, LONG_S)

_WINDOW: Final = (
    Column("window_start", TIME, required=True),
    Column("window_s", I32, required=True),
)
_DAY: Final = Column("day", Kind.DATE, required=True)
_QUEUE: Final = (Column("vhost", TEXT, required=True), Column("queue", TEXT, required=True))


def _columns(kind: Kind, *names: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name in names)


def _windowed(name: str, key: tuple[Column, ...], *columns: Column) -> Table:
    names = ("window_start", "window_s", *(column.name for column in key))
    return Table(name, (*_WINDOW, *key, *columns, _DAY), ("day",), names)


def _rates(*names: str) -> tuple[Column, ...]:
    """Mean, 95th percentile and peak, per second."""
    columns = [f"{name}_rate{of}" for name in names for of in ("", "_p95", "_max")]
    return _columns(F64, *columns)


# A queue in a window. Milliseconds that are blocked are summed over connections: two that are
# stopped all the time make 2,000 in a second.
QUEUE_WINDOWS: Final = _windowed(
    "queue_windows",
    _QUEUE,
    Column("leader", TEXT),  # the last node that told of it
    Column("samples", I64),  # seconds told of
    *_columns(I64, "published", "delivered", "settled"),  # messages in the window
    *_rates("published", "delivered", "settled"),
    Column("ready_first", I64),  # at the first and last second told of
    Column("ready_last", I64),
    *_columns(I64, "ready_max", "ready_octets_max", "oldest_ready_ms_max"),
    *_columns(
        F64, "ready_mean", "unacked_mean", "waiting_share"
    ),  # share of seconds with ready > 0
    *_columns(I64, "unacked_first", "unacked_last"),
    *_columns(I64, "consumers_min", "consumers_max"),
    *_columns(F64, "consumers_mean", "consumers_busy_mean", "busy_share"),  # busy of attached, 0-1
    *_columns(I64, "withheld_max", "saturated_ms"),
    *_columns(F64, "pending_share_p95", "pending_share_max"),  # of the limit on it, 0-1
    *_columns(I64, "pending_commands_max"),
    *_columns(F64, "commit_ms_p50", "commit_ms_p99"),  # the median second's, the worst second's
    *_columns(I64, "blocked_ms"),  # of publishers, by this queue
    *_columns(
        I64, "blocked_commit_ms", "blocked_account_ms", "blocked_watermark_ms"
    ),  # parts of it
    *_columns(I64, "blocked_connections"),  # how many were stopped by it at all
    *_columns(I64, "dead_lettered", "dead_lettered_failed"),  # failed: delivery limit, rejected
)

# Who brought what to which queue. `origin_account` is the ultimate cause.
ACCOUNT_WINDOWS: Final = _windowed(
    "account_windows",
    (*_QUEUE, Column("origin_account", TEXT, required=True)),
    *_columns(TEXT, "account_name", "account_kind", "user"),
    *_columns(I64, "copies", "octets", "replica_octets", "exchanges"),  # exchanges: how many
    Column("exchange", TEXT),  # that most came through
    *_columns(F64, "copies_rate", "octets_rate"),
    *_columns(I64, "charged_messages", "charged_octets", "repaid_messages", "repaid_octets"),
    *_columns(I64, "owed_messages_max", "owed_octets_max"),
    Column("cost_us", F64),  # of broker time, by the cost function of transforms/cost.py
    Column("blocked_ms", I64),  # for how long this account itself was stopped at this queue
)

NODE_WINDOWS: Final = _windowed(
    "node_windows",
    (Column("node", TEXT, required=True),),
    Column("samples", I64),  # seconds told of: fewer than window_s where the node was down
    *_columns(I64, "published", "confirmed", "delivered", "redelivered", "settled"),
    *_rates("published", "delivered", "settled"),
    *_columns(I64, "memory_used_max", "memory_limit", "disk_free_min", "disk_limit"),
    *_columns(F64, "cpu_share", "cpu_share_p95"),  # of one processor
    *_columns(F64, "loop_lag_ms_p95", "loop_lag_ms_max"),
    *_columns(I64, "connections_max", "channels_max", "queues_max", "left_out"),
    Column("skew_ms", I64),  # by which its clock was ahead of ours at most, 0 for not
    *_columns(I64, "alarm_ms", "memory_alarm_ms", "disk_alarm_ms"),  # own alarms
    *_columns(I64, "blocked_ms", "blocked_elsewhere_ms"),  # of its connections; by no queue
    *_columns(I64, "blocked_connections"),
)

# One row for each account that brought load to a queue at which somebody was stopped, or owes there
# what it brought earlier. Shares of a queue and window sum to 1, and `blamed_ms` to `blocked_ms`.
BLAME: Final = _windowed(
    "blame",
    (*_QUEUE, Column("origin_account", TEXT, required=True)),
    *_columns(TEXT, "account_name", "account_kind", "user"),
    Column("blocked_ms", I64),  # at this queue, of everybody
    *_columns(F64, "cost_us", "share", "blamed_ms"),
    Column("queue_rank", I32),  # at this queue in this window, 1 for the worst
    Column("window_blamed_ms", F64),  # of this account at all queues
    Column("window_rank", I32),  # of this account by that, 1 for the worst
)

# Classes of BOTTLENECKS, in the order in which they are tried.
MEMORY_ALARM: Final = "memory_alarm"
DISK_ALARM: Final = "disk_alarm"
RAFT_COMMIT: Final = "raft_commit"
CONSUMERS_SATURATED: Final = "consumers_saturated"
PREFETCH_OR_SLOW_ACK: Final = "prefetch_or_slow_ack"
POISON_OR_CRASH: Final = "poison_or_crash"
PUBLISHER_BURST: Final = "publisher_burst"
CLASSES: Final = (
    MEMORY_ALARM,
    DISK_ALARM,
    RAFT_COMMIT,
    CONSUMERS_SATURATED,
    PREFETCH_OR_SLOW_ACK,
    POISON_OR_CRASH,
    PUBLISHER_BURST,
)

# A queue in a minute in which something held it up; others have no row.
BOTTLENECKS: Final = _windowed(
    "bottlenecks",
    _QUEUE,
    Column("bottleneck", TEXT, required=True),  # of CLASSES
    Column("because", TEXT),  # a sentence with the figures
    *_columns(I64, "blocked_ms", "saturated_ms", "alarm_ms", "ready_max"),
    *_columns(F64, "published_rate", "settled_rate", "busy_share", "commit_ms_p99"),
)

# One row for each minute in which advice was given or renewed.
CONSUMER_ADVICE: Final = _windowed(
    "consumer_advice",
    _QUEUE,
    Column("advised", I64, required=True),  # consumers
    Column("consumers", I64),  # that there were
    Column("baseline", I64),  # that there were when this advice began
    Column("began_at", TIME),  # start of the first minute of this advice without a gap
    Column("valid_until", TIME, required=True),
    *_columns(F64, "arrival_rate_p95", "service_rate"),  # L95; mu, of one busy consumer
    Column("backlog", I64),
    Column("drain_s", I32),  # T, in which the backlog should be gone
    Column("wanted", I64),  # by the formula in this minute, before hysteresis
    Column("bottleneck", TEXT),  # of this minute, null for none
    Column("because", TEXT),
)

# Peaks against what was measured as the limit; made from windows when asked for, and not kept.
CAPACITY: Final = Table(
    "capacity",
    (
        Column("kind", TEXT, required=True),  # node or queue
        Column("vhost", TEXT),
        Column("name", TEXT, required=True),
        Column("measure", TEXT, required=True),  # published_rate, memory_used, disk_used, ...
        *_columns(F64, "peak", "p95", "limit", "used_share"),  # used_share: p95 by limit
        Column("limit_from", TEXT),  # given, measured or configured
        *_columns(F64, "growth_per_week", "weeks_to_limit"),  # null: not growing, or not known
        Column("days", I64),  # with data
    ),
    key=("kind", "vhost", "name", "measure"),
)


def _landed(log: Table) -> Table:
    more = (_DAY, Column("landed_at", TIME, required=True), Column("skew_ms", I64))
    return log._replace(columns=more + log.columns, partition_by=("day",))


# Rows of logs as they have come, of which windows are made once they are complete. `at` is never
# later than `landed_at`: the clock of a node that is ahead is set back, by `skew_ms`.
LANDED: Final = {each.name: _landed(each) for each in (FLOW_SAMPLES, FLOW_EVENTS, DEBT_EDGES)}

# What the job `flow` keeps, by name.
ANALYSIS: Final = {
    each.name: each
    for each in (QUEUE_WINDOWS, ACCOUNT_WINDOWS, NODE_WINDOWS, BLAME, BOTTLENECKS, CONSUMER_ADVICE)
}
