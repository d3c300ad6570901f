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


class ReplicaStatus(msgspec.Struct, frozen=True):
    """One member of a replicated log.

    Attributes:
        node: name of its node.
        member: its id: that of its node, and behind a dot the generation of its data unless that
            is the node's first.
        role: "voter", "learner" (has no vote, or none yet) or "leaving".
    """

    node: str
    member: str
    role: str


class DamageStatus(msgspec.Struct, frozen=True):
    """A replica of the answering node that was found damaged and is being rebuilt from the others.

    Attributes:
        what: for instance "queue 'tasks' in vhost '/'".
        reason: what is damaged, and where.
    """

    what: str
    reason: str


class NodeStatus(msgspec.Struct, frozen=True):
    """A member of the cluster as this node sees it.

    Attributes:
        address: host:port of its inter-node listener.
        running: this node itself, or a peer that is heard from.
        boot: how often it was started; 0 while unknown. It jumps when the node loses its data.
        catalog: its members in the catalog's log; two while one replaces the other.
        quarantined: of the answering node only, empty for the others.
    """

    id: int
    name: str
    address: str
    running: bool
    boot: int
    catalog: tuple[ReplicaStatus, ...] = ()
    quarantined: tuple[DamageStatus, ...] = ()


class QueueStatus(msgspec.Struct, frozen=True):
    """A queue; counts are those of the replica on this node, which may lag behind its leader's.

    Attributes:
        kind: as in model.definition.
        leader: name of the node that leads it, "" while there is none.
        members: names of the nodes that hold it.
        has_counts: whether this node holds a replica, so that what follows says something.
        replicas: members of its log; none for a queue that is kept in memory.
        snapshot_index: log position up to which this node's replica is a snapshot, without log.
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
    replicas: tuple[ReplicaStatus, ...] = ()
    snapshot_index: int = 0


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
