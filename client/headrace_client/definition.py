"""Definitions of a cluster, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Counts of a queue."""

    messages_ready: int
    messages_unacknowledged: int
    consumers: int
    oldest_ms: int  # Unix time at which the oldest waiting message arrived, 0 without one
    # that become available later; None where the broker does not tell
    messages_delayed: int | None = None
    messages_dlx: int | None = None  # dead letters that are kept until they have arrived, likewise


@dataclass(frozen=True, slots=True)
class QueueFlowState:
    """Flow state of a queue; rates are messages per second, over the last 10 s."""

    saturated: bool  # it defers confirms until it has drained
    messages_withheld: int
    octets_ready: int
    octets_unacknowledged: int
    arrived: float
    delivered: float
    settled: float
    consumers_busy: int  # that hold all that they may
    high_watermark: int  # messages, 0 for none
    low_watermark: int
    high_watermark_octets: int
    low_watermark_octets: int


@dataclass(frozen=True, slots=True)
class DeclaredQueue:
    """Result of declaring a queue."""

    name: str
    created: bool  # it was not there before
    type: str  # "quorum" or "classic"
    counts: QueueCounts | None  # None when its leader has not answered


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue."""

    vhost: str
    name: str
    type: str  # "quorum" or "classic"
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Mapping[str, Any]
    policy: str  # name of the policy that counts for it, "" for none
    operator_policy: str  # likewise
    effective_definition: Mapping[str, Any]  # what both come to
    leader: str  # node, "" while there is none
    members: tuple[str, ...]  # nodes
    counts: QueueCounts | None  # None when nobody who knows has answered
    flow: QueueFlowState | None  # None in listings, and when the leader has not answered


@dataclass(frozen=True, slots=True)
class DeletedQueue:
    """Result of deleting a queue."""

    deleted: bool  # it was there
    messages: int  # that waited and are gone with it


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange; the default one has the name ""."""

    vhost: str
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, Any]
    policy: str


@dataclass(frozen=True, slots=True)
class Binding:
    """From an exchange to a queue, or to another exchange."""

    vhost: str
    source: str  # exchange
    queue: str = ""  # "" when it leads to an exchange
    exchange: str = ""  # "" when it leads to a queue
    routing_key: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Vhost:
    """A name space for exchanges and queues."""

    name: str
    description: str
    tags: tuple[str, ...]
    default_queue_type: str
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class User:
    """A user."""

    name: str
    tags: tuple[str, ...]
    has_password: bool
    loopback_only: bool  # may log in from the node's own machine only
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Permission:
    """Permission of a user in a vhost: regular expressions that are searched for in names."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """With which routing keys a user may publish to a topic exchange, and bind from it."""

    user: str
    vhost: str
    exchange: str  # which need not be there
    write: str  # regular expression that is searched for in routing keys of messages
    read: str  # in those of bindings


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings for the queues and exchanges of a vhost whose names match a pattern."""

    vhost: str
    name: str
    pattern: str
    definition: Mapping[str, Any]
    priority: int = 0
    apply_to: str = "all"  # "all", "queues", "exchanges", "quorum_queues" or "classic_queues"
    operator: bool = False  # an operator policy, which bounds what the others set
