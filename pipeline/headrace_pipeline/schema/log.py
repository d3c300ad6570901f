"""Rows of the logs that brokers keep, as the source `headrace_log` gives them.

Each row begins with where it stands: shard, incarnation and index name it for ever. What follows is
what the broker says; docs/telemetry.md and docs/archive.md say what each column means.
"""

from __future__ import annotations

from typing import Final

from headrace_pipeline.schema.column import Column, Kind, Table

I64, I32, TEXT, BYTES, FLAG = Kind.INT64, Kind.INT32, Kind.UTF8, Kind.BINARY, Kind.BOOL
TIME: Final = Kind.TIMESTAMP


def _log(name: str, index: str, *columns: Column) -> Table:
    where = (
        Column("shard", TEXT, required=True),
        Column("incarnation", I64, required=True),
        Column(index, I64, required=True),
    )
    return Table(name, where + columns, key=("shard", "incarnation", index))


def _columns(kind: Kind, *names: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name in names)


ARCHIVE: Final = _log(
    "archive",
    "archive_index",
    *_columns(TEXT, "vhost", "queue"),
    *_columns(I64, "queue_incarnation", "raft_term", "raft_index", "queue_message_id"),
    *_columns(TEXT, "exchange", "routing_key", "message_id", "correlation_id"),
    *_columns(TEXT, "content_type", "content_encoding"),
    Column("priority", I32),
    Column("headers", TEXT),
    *_columns(BYTES, "properties", "payload"),
    Column("payload_bytes", I64),
    *_columns(TIME, "published_at", "enqueued_at", "first_delivered_at", "settled_at"),
    *_columns(TEXT, "outcome", "reason"),
    *_columns(I32, "acquired_count", "delivery_count"),
    *_columns(TEXT, "publisher_account", "consumer_account", "origin_account"),
)

FLOW_SAMPLES: Final = _log(
    "flow_samples",
    "row_index",
    Column("at", TIME, required=True),
    Column("elapsed_ms", I64),
    *_columns(TEXT, "node", "kind", "id", "name", "vhost", "user", "account", "account_kind"),
    *_columns(I64, "published", "published_octets", "confirmed", "delivered", "redelivered"),
    *_columns(I64, "settled", "blocked_ms"),
    *_columns(TEXT, "blocked_by", "blocked_vhost", "blocked_queue", "state"),
    *_columns(I64, "held_messages", "held_octets", "credit_left", "pending_octets"),
    *_columns(I64, "pending_octets_max", "ready", "ready_octets", "unacked", "unacked_octets"),
    *_columns(I64, "oldest_ready_ms", "consumers", "consumers_busy"),
    Column("saturated", FLAG),
    *_columns(I64, "withheld", "high_messages", "high_octets", "debt_messages", "debt_octets"),
    *_columns(I64, "debt_messages_max", "debt_octets_max"),
    Column("in_debt", FLAG),
    *_columns(I64, "memory_used", "memory_limit", "disk_free", "disk_limit", "cpu_ms"),
    *_columns(I64, "loop_lag_ms", "connections", "channels", "queues", "left_out"),
    Column("pending_commands", I64, since=2),
    Column("pending_command_octets", I64, since=2),
    Column("pending_command_octets_max", I64, since=2),
    Column("commit_ms_p50", Kind.FLOAT64, since=2),
    Column("commit_ms_p99", Kind.FLOAT64, since=2),
    Column("consumer_busy_ms", I64, since=2),
)

FLOW_EVENTS: Final = _log(
    "flow_events",
    "row_index",
    Column("at", TIME, required=True),
    *_columns(TEXT, "node", "event", "kind", "id", "name", "episode"),
    Column("started_at", TIME),
    *_columns(I64, "duration_ms", "blocked_ms"),
    *_columns(TEXT, "reason", "vhost", "queue", "user", "account"),
    Column("messages", I64),
)

DEBT_EDGES: Final = _log(
    "debt_edges",
    "row_index",
    Column("at", TIME, required=True),
    Column("elapsed_ms", I64),
    *_columns(TEXT, "node", "account", "account_kind", "account_name", "user", "origin_account"),
    *_columns(TEXT, "exchange", "vhost", "queue"),
    *_columns(I64, "copies", "octets", "replica_octets", "charged_messages", "charged_octets"),
    *_columns(I64, "repaid_messages", "repaid_octets", "owed_messages", "owed_octets"),
)

QUEUE_EVENTS: Final = _log(
    "queue_events",
    "row_index",
    Column("at", TIME, required=True),
    *_columns(TEXT, "node", "event", "vhost", "queue"),
    Column("queue_incarnation", I64),
    *_columns(TEXT, "kind", "leader", "member", "detail"),
)

# Columns that the broker calls otherwise, by log: broker's name to ours. That of queue events would
# be taken for the shard's.
RENAMED: Final = {"queue_events": {"incarnation": "queue_incarnation"}}

# By the value of the option `log`.
LOGS: Final = {
    each.name: each for each in (ARCHIVE, FLOW_SAMPLES, FLOW_EVENTS, DEBT_EDGES, QUEUE_EVENTS)
}
