"""What a node tells about itself and its cluster to people and programs."""

from __future__ import annotations

from typing import Any

import msgspec


class MessageCounters(msgspec.Struct, frozen=True):
    """Messages through this node's client connections since its start; never decreasing.

    Attributes:
        publish: taken from publishers.
        confirm: confirmed to publishers.
        deliver: handed to consumers and basic.get, first deliveries and repeated ones.
        redeliver: the repeated ones of these.
        ack: settled by consumers.
    """

    publish: int = 0
    confirm: int = 0
    deliver: int = 0
    redeliver: int = 0
    ack: int = 0


class ObjectTotals(msgspec.Struct, frozen=True):
    """Connections, channels and consumers of this node; exchanges and queues of the cluster."""

    connections: int = 0
    channels: int = 0
    consumers: int = 0
    exchanges: int = 0
    queues: int = 0


class NodeStatus(msgspec.Struct, frozen=True):
    """A member of the cluster as this node sees it.

    Attributes:
        address: host:port of its inter-node listener.
        running: this node itself, or a peer that is heard from.
        boot: how often it was started; 0 while unknown.
    """

    id: int
    name: str
    address: str
    running: bool
    boot: int


class QueueStatus(msgspec.Struct, frozen=True):
    """A queue; counts are those of the replica on this node, which may lag behind its leader's.

    Attributes:
        kind: as in model.definition.
        leader: name of the node that leads it, "" while there is none.
        members: names of the nodes that hold it.
        has_counts: whether this node holds a replica, so that the numbers say something.
    """

    vhost: str
    name: str
    kind: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: dict[str, Any]
    leader: str
    members: tuple[str, ...]
    has_counts: bool = True
    messages_ready: int = 0
    messages_unacknowledged: int = 0
    consumers: int = 0


class Overview(msgspec.Struct, frozen=True):
    """One node's summary.

    Attributes:
        leader: name of the node that leads the catalog (group 0), "" while there is none.
        messages_ready: in the queues that this node leads, so that a sum over nodes is the
            cluster's.
        messages_unacknowledged: likewise.
    """

    cluster_name: str
    node: str
    leader: str
    nodes: tuple[NodeStatus, ...]
    totals: ObjectTotals
    counters: MessageCounters
    messages_ready: int
    messages_unacknowledged: int
