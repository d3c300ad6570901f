"""Columns of the telemetry logs; docs/telemetry.md says what each means.

Columns are only ever added, at the end, and the version grows with them: what was written before
can be read for ever.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace_broker.codecs.column_block import (
    BOOL,
    FLOAT64,
    INT64,
    TIMESTAMP_MS,
    UTF8,
    Column,
    Schema,
)

FLOW_SAMPLES: Final = "flow_samples"
FLOW_EVENTS: Final = "flow_events"
DEBT_EDGES: Final = "debt_edges"
QUEUE_EVENTS: Final = "queue_events"

# Kinds of entities in samples and events.
NODE: Final = "node"
QUEUE: Final = "queue"
CONNECTION: Final = "connection"
CHANNEL: Final = "channel"
ACCOUNT: Final = "account"


class Sample(NamedTuple):
    """One row of FLOW_SAMPLES; None for what an entity has not."""

    at: int
    elapsed_ms: int
    node: str
    kind: str
    id: str
    name: str
    vhost: str | None = None
    user: str | None = None
    account: str | None = None
    account_kind: str | None = None
    published: int | None = None
    published_octets: int | None = None
    confirmed: int | None = None
    delivered: int | None = None
    redelivered: int | None = None
    settled: int | None = None
    blocked_ms: int | None = None
    blocked_by: str | None = None
    blocked_vhost: str | None = None
    blocked_queue: str | None = None
    state: str | None = None
    held_messages: int | None = None
    held_octets: int | None = None
    credit_left: int | None = None
    pending_octets: int | None = None
    pending_octets_max: int | None = None
    ready: int | None = None
    ready_octets: int | None = None
    unacked: int | None = None
    unacked_octets: int | None = None
    oldest_ready_ms: int | None = None
    consumers: int | None = None
    consumers_busy: int | None = None
    saturated: bool | None = None
    withheld: int | None = None
    high_messages: int | None = None
    high_octets: int | None = None
    debt_messages: int | None = None
    debt_octets: int | None = None
    debt_messages_max: int | None = None
    debt_octets_max: int | None = None
    in_debt: bool | None = None
    memory_used: int | None = None
    memory_limit: int | None = None
    disk_free: int | None = None
    disk_limit: int | None = None
    cpu_ms: int | None = None
    loop_lag_ms: int | None = None
    connections: int | None = None
    channels: int | None = None
    queues: int | None = None
    left_out: int | None = None
    # Since version 2
    pending_commands: int | None = None
    pending_command_octets: int | None = None
    pending_command_octets_max: int | None = None
    commit_ms_p50: float | None = None
    commit_ms_p99: float | None = None
    consumer_busy_ms: int | None = None


class FlowEvent(NamedTuple):
    """One row of FLOW_EVENTS."""

    at: int
    node: str
    event: str
    kind: str
    id: str
    name: str
    episode: str | None = None
    started_at: int | None = None
    duration_ms: int | None = None
    blocked_ms: int | None = None
    reason: str | None = None
    vhost: str | None = None
    queue: str | None = None
    user: str | None = None
    account: str | None = None
    messages: int | None = None


class DebtEdge(NamedTuple):
    """One row of DEBT_EDGES."""

    at: int
    elapsed_ms: int
    node: str
    account: str
    account_kind: str
    account_name: str
    user: str
    origin_account: str
    exchange: str | None
    vhost: str
    queue: str
    copies: int
    octets: int
    replica_octets: int
    charged_messages: int | None = None
    charged_octets: int | None = None
    repaid_messages: int | None = None
    repaid_octets: int | None = None
    owed_messages: int | None = None
    owed_octets: int | None = None


class QueueEvent(NamedTuple):
    """One row of QUEUE_EVENTS."""

    at: int
    node: str
    event: str
    vhost: str
    queue: str
    incarnation: int
    kind: str
    leader: str | None = None
    member: str | None = None
    detail: str | None = None


Row = Sample | FlowEvent | DebtEdge | QueueEvent

_TIMES: Final = frozenset({"at", "started_at"})
_FLAGS: Final = frozenset({"saturated", "in_debt"})
_FRACTIONS: Final = frozenset({"commit_ms_p50", "commit_ms_p99"})
_TEXTS: Final = frozenset(
    {
        *("node", "kind", "id", "name", "vhost", "user", "account", "account_kind", "account_name"),
        *("blocked_by", "blocked_vhost", "blocked_queue", "state", "event", "episode", "reason"),
        *("queue", "origin_account", "exchange", "leader", "member", "detail"),
    }
)


def _column(name: str) -> Column:
    if name in _TIMES:
        return name, TIMESTAMP_MS
    if name in _FLAGS:
        return name, BOOL
    if name in _FRACTIONS:
        return name, FLOAT64
    return name, UTF8 if name in _TEXTS else INT64


SCHEMAS: Final = {
    log: Schema(version, tuple(map(_column, kind._fields)))
    for log, version, kind in (
        (FLOW_SAMPLES, 2, Sample),
        (FLOW_EVENTS, 1, FlowEvent),
        (DEBT_EDGES, 1, DebtEdge),
        (QUEUE_EVENTS, 1, QueueEvent),
    )
}
