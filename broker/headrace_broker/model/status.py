"""Status of a node and its cluster, for people and programs."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace_broker.model.flow import RUNNING
from headrace_broker.model.flow_status import ActivityStatus, QueueFlow


class MessageCounters(msgspec.Struct, frozen=True):
    """Messages through this node's client connections since its start; never decreasing."""

    publish: int = 0  # taken from publishers
    confirm: int = 0  # confirmed to publishers
    deliver: int = 0  # handed to consumers and basic.get, first deliveries and repeated ones
    redeliver: int = 0  # the repeated ones of these
    ack: int = 0  # settled by consumers


class ObjectTotals(msgspec.Struct, frozen=True):
    """Connections, channels and consumers of this node; exchanges and queues of the cluster."""

    connections: int = 0
    channels: int = 0
    consumers: int = 0
    exchanges: int = 0
    queues: int = 0


class ReplicaStatus(msgspec.Struct, frozen=True):
    """One member of a replicated log."""

    node: str  # name of its node
    member: str  # its node's id, and behind a dot its data's generation unless the first
    role: str  # "voter", "learner" (has no vote, or none yet) or "leaving"


class DamageStatus(msgspec.Struct, frozen=True):
    """A damaged replica of the answering node, while it is rebuilt from the others."""

    what: str  # for instance "queue 'tasks' in vhost '/'"
    reason: str  # what is damaged, and where


class NodeStatus(msgspec.Struct, frozen=True):
    """A member of the cluster as this node sees it."""

    id: int
    name: str
    address: str  # host:port of its inter-node listener
    running: bool  # this node itself, or a peer that is heard from
    boot: int  # how often it was started; 0 while unknown. It jumps when the node loses its data.
    catalog: tuple[ReplicaStatus, ...] = ()  # its members; two while one replaces the other
    resources: ResourceStatus | None = None  # memory and disk, None if not told
    being_drained: bool = False  # it is to lead nothing and to take no clients
    clock: ClockStatus | None = None  # None while it was not measured


class ClockStatus(msgspec.Struct, frozen=True):
    """Offsets of a node's clocks from the median of the wall clocks heard by the answering node."""

    skew_ms: int  # its wall clock less the median
    bound_ms: int  # by how much that may be wrong
    lead_ms: int  # the time by which its queues go, less the median
    warning: str = ""  # what is wrong with that, "" for nothing


class ResourceStatus(msgspec.Struct, frozen=True):
    """Memory and disk of a node, as it reported them last; names are those of RabbitMQ."""

    mem_used: int  # bytes
    mem_limit: int  # bytes from which publishers are blocked
    mem_total: int  # bytes that it may use
    mem_stage: int  # 0, 1 (scarce: bodies leave memory, limits shrink) or 2 (alarm)
    mem_alarm: bool  # publishers are blocked for want of memory
    disk_free: int  # bytes
    disk_free_limit: int  # bytes below which publishers are blocked
    disk_free_alarm: bool  # publishers are blocked for want of disk


class WatermarkStatus(msgspec.Struct, frozen=True):
    """Fill level of a queue in relation to its watermark."""

    saturated: bool = False  # it defers them now, of what comes
    deferred: int = 0  # messages whose confirms it defers
    byte_count: int = 0  # of the bodies of all messages that it holds
    high: int = 0  # messages that it may hold, 0 for any number
    low: int = 0  # at which it gives the confirms again
    high_bytes: int = 0  # as `high`, in bytes
    low_bytes: int = 0  # likewise


class QueueStatus(msgspec.Struct, frozen=True):
    """A queue; counts are those of the replica on this node, which may lag behind its leader's."""

    vhost: str
    name: str
    kind: str  # as in model.definition
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: dict[str, Any]
    leader: str  # name of the node that leads it, "" while there is none
    members: tuple[str, ...]  # names of the nodes that hold it
    counts: QueueCounts | None = None  # what is in it; None without a replica here
    # members of its log, none if kept in memory; None where that is not known
    replicas: tuple[ReplicaStatus, ...] | None = None
    # log position up to which the replica here is a snapshot; None without one that has a log
    snapshot_index: int | None = None
    head_timestamp: int = -1  # the property `timestamp` of the oldest ready message, -1 without
    policy: str = ""  # name of the policy that counts for it, "" for none
    operator_policy: str = ""  # likewise
    definition: dict[str, Any] = {}  # what both come to
    delivery_limit: int = -1  # failed deliveries that a message survives, negative for any number
    flow: QueueFlow | None = None  # flow control by its leader, None where nothing moves in it


class QueueCounts(msgspec.Struct, frozen=True, array_like=True):
    """Ready messages, unsettled messages and attached consumers of a queue."""

    ready: int
    unsettled: int
    consumers: int
    oldest_ms: int = 0  # Unix time at which the oldest ready message arrived, 0 without one
    watermark: WatermarkStatus = WatermarkStatus()  # whether it holds too much
    leased: int = 0  # those of the unsettled ones that groups hold
    archived: int = 0  # settled messages that are kept
    archived_bytes: int = 0  # of their bodies
    delayed: int = 0  # messages that become available later
    dead: int = 0  # dead letters that are kept until they have arrived

    @property
    def held(self) -> int:
        """Messages that have not left for good."""
        return self.ready + self.unsettled + self.delayed + self.dead

    @property
    def is_empty(self) -> bool:
        """True if a delete with `if-empty` passes; unsettled messages do not count in RabbitMQ."""
        return self.held == self.unsettled


class LedQueue(msgspec.Struct, frozen=True):
    """A queue that the answering node leads."""

    group: int  # incarnation id
    candidates: tuple[int, ...]  # node ids of other voters that answer and lack little of its log
    busy: bool = True  # something has moved in it within the last minute, or that is not known
    chosen: bool = False  # somebody had it led here by hand not long ago


class NodeLoad(msgspec.Struct, frozen=True):
    """Load of the answering node."""

    leaders: int  # queues that it leads, and the catalog if it leads that
    connections: int  # of clients
    alone: int = 0  # of what it leads, that which has no other replica that could
    # why it should get no more leaders, "" where it may; a node of before this was told does not
    # say ""
    unfit: str = "runs an older version"
    unheard: tuple[int, ...] = ()  # node ids of the cluster's nodes that it does not hear


class MemberStatus(msgspec.Struct, frozen=True):
    """A replica as its queue's leader knows it."""

    node: int  # node id
    member: str  # its id, as in ReplicaStatus
    role: str  # likewise
    leader: bool  # whether it leads
    online: bool  # whether it answers
    match: int  # highest log position known to be on its disk
    lag: int  # entries of the log that it lacks
    fetching: bool  # it needs the leader's snapshot first


class Overview(msgspec.Struct, frozen=True):
    """A cluster, as one of its nodes knows it at once."""

    cluster_name: str
    node: str
    leader: str  # name of the node that leads the catalog (group 0), "" while there is none
    nodes: tuple[NodeStatus, ...]


class ConsumerStatus(msgspec.Struct, frozen=True):
    """A consumer as the node knows it that its connection is on."""

    tag: str
    queue: str
    ack_required: bool
    exclusive: bool
    prefetch_count: int  # how many deliveries may be unsettled, 0 for no limit
    arguments: dict[str, Any] = {}  # with values that JSON has


class LeaseGroupStatus(msgspec.Struct, frozen=True):
    """A group that leases messages, as its queue's leader knows it.

    Attributes:
        node: that leads the queue.
        epoch: of who opened it last.
        next_lease: number of its next lease.
        settled: everything up to this lease is settled.
        deadline_ms: Unix time at which what it holds expires, 0 when it holds nothing.
        leases: that it holds.
        messages: in these.
        byte_count: of their bodies.
    """

    vhost: str
    queue: str
    name: str
    node: str
    epoch: int
    next_lease: int
    settled: int
    deadline_ms: int
    leases: int
    messages: int
    byte_count: int


class ChannelStatus(msgspec.Struct, frozen=True):
    """A channel, likewise."""

    number: int  # 1 to channel_max
    prefetch_count: int  # for consumers that come, 0 for no limit
    global_prefetch_count: int  # of the whole channel, likewise
    confirm: bool  # in confirm mode
    messages_unacknowledged: int  # deliveries that the client has not settled
    messages_unconfirmed: int  # groups of publishes that wait for their confirm
    consumers: tuple[ConsumerStatus, ...] = ()
    state: str = RUNNING  # RUNNING or FLOW of `model.flow`, or its connection's
    flow: ActivityStatus = ActivityStatus()  # what stops it
    counts: tuple[int, ...] = ()  # what has passed it (`model.stats.CLIENT_FIGURES`)
    rates: tuple[float, ...] = ()  # by how much these grew per second at last, () if not known
    credit_left: int | None = None  # publishes that it may be handed, None where it has no credit


class ConnectionStatus(msgspec.Struct, frozen=True):
    """A client connection."""

    node: str  # name of the node that it is on
    id: str  # unique in the cluster for ever
    name: str  # "peer -> local"
    user: str
    vhost: str
    mechanism: str
    connected_at_ms: int  # Unix time
    state: str  # "running", "flow", "blocking" or "blocked"
    channel_max: int
    frame_max: int
    heartbeat_s: int
    channels: int  # how many are open
    client_properties: dict[str, Any] = {}  # with values that JSON has
    tls: TlsStatus | None = None  # what its handshake agreed, None in the clear
    flow: ActivityStatus = ActivityStatus()  # what stops it
    buffered_bytes: int = 0  # of publishes that were read and wait
    protocol: str = "AMQP 0-9-1"  # for people
    counts: tuple[int, ...] = ()  # what has passed it (`model.stats.CONNECTION_FIGURES`)
    rates: tuple[float, ...] = ()  # by how much these grew per second at last, () if not known

    @property
    def user_provided_name(self) -> str:
        """Name that the client gives itself, "" for none."""
        found = self.client_properties.get("connection_name")
        return found if isinstance(found, str) else ""

    @property
    def peer(self) -> tuple[str, int]:
        """Host and port of the client, ("", 0) where they are not known."""
        return _endpoint(self.name.partition(" -> ")[0])

    @property
    def local(self) -> tuple[str, int]:
        """Host and port of the node's end, likewise."""
        return _endpoint(self.name.partition(" -> ")[2])


class TlsStatus(msgspec.Struct, frozen=True):
    """See `model.tls.TlsSession`."""

    version: str
    cipher: str
    subject: str
    issuer: str
    not_after: str


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return (host, int(port)) if port.isdigit() else ("", 0)
