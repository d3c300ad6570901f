"""Definitions of a cluster, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Counts of a queue.

    Attributes:
        oldest_ms: Unix time at which the oldest waiting message arrived, 0 without one.
        messages_delayed: that become available later; None where the broker does not tell.
        messages_dlx: dead letters that are kept until they have arrived, likewise.
    """

    messages_ready: int
    messages_unacknowledged: int
    consumers: int
    oldest_ms: int
    messages_delayed: int | None = None
    messages_dlx: int | None = None


@dataclass(frozen=True, slots=True)
class QueueFlowState:
    """Flow state of a queue; rates are messages per second, over the last 10 s.

    Attributes:
        saturated: it defers confirms until it has drained.
        consumers_busy: that hold all that they may.
        high_watermark: messages, 0 for none.
    """

    saturated: bool
    messages_withheld: int
    octets_ready: int
    octets_unacknowledged: int
    arrived: float
    delivered: float
    settled: float
    consumers_busy: int
    high_watermark: int
    low_watermark: int
    high_watermark_octets: int
    low_watermark_octets: int


@dataclass(frozen=True, slots=True)
class DeclaredQueue:
    """Result of declaring a queue.

    Attributes:
        created: it was not there before.
        type: "quorum" or "classic".
        counts: None when its leader has not answered.
    """

    name: str
    created: bool
    type: str
    counts: QueueCounts | None


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue.

    Attributes:
        type: "quorum" or "classic".
        policy: name of the policy that counts for it, "" for none.
        operator_policy: likewise.
        effective_definition: what both come to.
        leader: node, "" while there is none.
        members: nodes.
        counts: None when nobody who knows has answered.
        flow: None in listings, and when the leader has not answered.
    """

    vhost: str
    name: str
    type: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Mapping[str, Any]
    policy: str
    operator_policy: str
    effective_definition: Mapping[str, Any]
    leader: str
    members: tuple[str, ...]
    counts: QueueCounts | None
    flow: QueueFlowState | None


@dataclass(frozen=True, slots=True)
class DeletedQueue:
    """Result of deleting a queue.

    Attributes:
        deleted: it was there.
        messages: that waited and are gone with it.
    """

    deleted: bool
    messages: int


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
    """From an exchange to a queue, or to another exchange.

    Attributes:
        source: exchange.
        queue: "" when it leads to an exchange.
        exchange: "" when it leads to a queue.
    """

    vhost: str
    source: str
    queue: str = ""
    exchange: str = ""
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
    """A user.

    Attributes:
        loopback_only: may log in from the node's own machine only.
    """

    name: str
    tags: tuple[str, ...]
    has_password: bool
    loopback_only: bool
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
    """With which routing keys a user may publish to a topic exchange, and bind from it.

    Attributes:
        exchange: which need not be there.
        write: regular expression that is searched for in routing keys of messages.
        read: in those of bindings.
    """

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings for the queues and exchanges of a vhost whose names match a pattern.

    Attributes:
        apply_to: "all", "queues", "exchanges", "quorum_queues" or "classic_queues".
        operator: an operator policy, which bounds what the others set.
    """

    vhost: str
    name: str
    pattern: str
    definition: Mapping[str, Any]
    priority: int = 0
    apply_to: str = "all"
    operator: bool = False
