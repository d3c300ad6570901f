"""Status of a node and its cluster, for people and programs."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace_broker.model.flow import RUNNING
from headrace_broker.model.flow_status import ActivityStatus, QueueFlow


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
        resources: memory and disk, None of a node that has not told them.
        being_drained: it is to lead nothing and to take no clients.
        clock: None while it was not measured.
    """

    id: int
    name: str
    address: str
    running: bool
    boot: int
    catalog: tuple[ReplicaStatus, ...] = ()
    quarantined: tuple[DamageStatus, ...] = ()
    resources: ResourceStatus | None = None
    being_drained: bool = False
    clock: ClockStatus | None = None


class ClockStatus(msgspec.Struct, frozen=True):
    """Offsets of a node's clocks from the median of the wall clocks that the answering node hears.

    Attributes:
        skew_ms: its wall clock less the median.
        bound_ms: by how much that may be wrong.
        lead_ms: the time by which its queues go, less the median.
        warning: what is wrong with that, "" for nothing.
    """

    skew_ms: int
    bound_ms: int
    lead_ms: int
    warning: str = ""


class ResourceStatus(msgspec.Struct, frozen=True):
    """Memory and disk of a node, as it reported them last; names are those of RabbitMQ.

    Attributes:
        mem_used: bytes.
        mem_limit: bytes from which publishers are blocked.
        mem_total: bytes that it may use.
        mem_stage: 0, 1 (scarce: bodies leave memory, limits shrink) or 2 (alarm).
        mem_alarm: publishers are blocked for want of memory.
        disk_free: bytes.
        disk_free_limit: bytes below which publishers are blocked.
        disk_free_alarm: publishers are blocked for want of disk.
    """

    mem_used: int
    mem_limit: int
    mem_total: int
    mem_stage: int
    mem_alarm: bool
    disk_free: int
    disk_free_limit: int
    disk_free_alarm: bool


class WatermarkStatus(msgspec.Struct, frozen=True):
    """Fill level of a queue in relation to its watermark.

    Attributes:
        saturated: it withholds them now, of what comes.
        withheld: messages whose confirms it withholds.
        octets: of the bodies of all messages that it holds.
        high: messages that it may hold, 0 for any number.
        low: at which it gives the confirms again.
        high_octets: as `high`, in octets.
        low_octets: likewise.
    """

    saturated: bool = False
    withheld: int = 0
    octets: int = 0
    high: int = 0
    low: int = 0
    high_octets: int = 0
    low_octets: int = 0


class QueueStatus(msgspec.Struct, frozen=True):
    """A queue; counts are those of the replica on this node, which may lag behind its leader's.

    Attributes:
        kind: as in model.definition.
        leader: name of the node that leads it, "" while there is none.
        members: names of the nodes that hold it.
        has_counts: whether this node holds a replica, so that what follows says something.
        replicas: members of its log; none for a queue that is kept in memory.
        messages_delayed: that become available later; None where the leader does not tell.
        messages_dlx: dead letters that are kept until they have arrived, likewise.
        oldest_ms: Unix time at which the oldest ready message arrived, 0 without one.
        head_timestamp: the property `timestamp` of the oldest ready message, -1 without.
        snapshot_index: log position up to which this node's replica is a snapshot, without log.
        policy: name of the policy that counts for it, "" for none.
        operator_policy: likewise.
        definition: what both come to.
        delivery_limit: failed deliveries that a message survives, negative for any number.
        watermark: as the counts.
        flow: what its leader says of its flow control, None where nothing moves in it.
        archived: settled messages that are kept.
        archived_octets: of their bodies.
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
    oldest_ms: int = 0
    head_timestamp: int = -1
    policy: str = ""
    operator_policy: str = ""
    definition: dict[str, Any] = {}
    delivery_limit: int = -1
    watermark: WatermarkStatus = WatermarkStatus()
    flow: QueueFlow | None = None
    archived: int = 0
    archived_octets: int = 0
    messages_delayed: int | None = None
    messages_dlx: int | None = None

    @property
    def messages(self) -> int:
        """All messages that it holds, as far as its leader tells."""
        later = (self.messages_delayed or 0) + (self.messages_dlx or 0)
        return self.messages_ready + self.messages_unacknowledged + later


class LedQueue(msgspec.Struct, frozen=True):
    """A queue that the answering node leads.

    Attributes:
        group: incarnation id.
        candidates: node ids of its other voters that answer and lack little of its log.
        busy: something has moved in it within the last minute, or that is not known.
        chosen: an administrator chose this leader not long ago.
    """

    group: int
    candidates: tuple[int, ...]
    busy: bool = True
    chosen: bool = False


class NodeLoad(msgspec.Struct, frozen=True):
    """Load of the answering node.

    Attributes:
        leaders: queues that it leads, and the catalog if it leads that.
        connections: of clients.
        alone: of what it leads, that which has no other replica that could.
        unfit: why it should get no more leaders, "" where it may; a node of before this was told
            does not say "".
        unheard: node ids of the cluster's nodes that it does not hear.
    """

    leaders: int
    connections: int
    alone: int = 0
    unfit: str = "runs an older version"
    unheard: tuple[int, ...] = ()


class MemberStatus(msgspec.Struct, frozen=True):
    """A replica as its queue's leader knows it.

    Attributes:
        node: node id.
        member: its id, as in ReplicaStatus.
        role: likewise.
        leader: whether it leads.
        online: whether it answers.
        match: highest log position known to be on its disk.
        lag: entries of the log that it lacks.
        fetching: it needs the leader's snapshot first.
    """

    node: int
    member: str
    role: str
    leader: bool
    online: bool
    match: int
    lag: int
    fetching: bool


class Overview(msgspec.Struct, frozen=True):
    """One node's summary.

    Attributes:
        leader: name of the node that leads the catalog (group 0), "" while there is none.
        messages_ready: in the queues that this node leads, so that a sum over nodes is the
            cluster's.
        messages_unacknowledged: likewise.
        messages_delayed: that become available later, likewise.
        messages_dlx: dead letters that are kept until they have arrived, likewise.
    """

    cluster_name: str
    node: str
    leader: str
    nodes: tuple[NodeStatus, ...]
    totals: ObjectTotals
    counters: MessageCounters
    messages_ready: int
    messages_unacknowledged: int
    messages_delayed: int = 0
    messages_dlx: int = 0


class ConsumerStatus(msgspec.Struct, frozen=True):
    """A consumer as the node knows it that its connection is on.

    Attributes:
        prefetch_count: how many deliveries may be unsettled, 0 for no limit.
        arguments: with values that JSON has.
    """

    tag: str
    queue: str
    ack_required: bool
    exclusive: bool
    prefetch_count: int
    arguments: dict[str, Any] = {}


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
        octets: of their bodies.
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
    octets: int


class ChannelStatus(msgspec.Struct, frozen=True):
    """A channel, likewise.

    Attributes:
        number: 1 to channel_max.
        prefetch_count: for consumers that come, 0 for no limit.
        global_prefetch_count: of the whole channel, likewise.
        confirm: in confirm mode.
        messages_unacknowledged: deliveries that the client has not settled.
        messages_unconfirmed: groups of publishes that wait for their confirm.
        state: RUNNING or FLOW of `model.flow`, or its connection's.
        flow: what stops it.
        counts: what has passed it (`model.stats.CLIENT_FIGURES`).
        rates: by how much these grew per second at last, () where that is not known.
        credit_left: publishes that it may be handed, None where it has no credit.
    """

    number: int
    prefetch_count: int
    global_prefetch_count: int
    confirm: bool
    messages_unacknowledged: int
    messages_unconfirmed: int
    consumers: tuple[ConsumerStatus, ...] = ()
    state: str = RUNNING
    flow: ActivityStatus = ActivityStatus()
    counts: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    credit_left: int | None = None


class ConnectionStatus(msgspec.Struct, frozen=True):
    """A client connection.

    Attributes:
        node: name of the node that it is on.
        id: unique in the cluster for ever.
        name: "peer -> local".
        connected_at_ms: Unix time.
        state: "running", "flow", "blocking" or "blocked".
        client_properties: with values that JSON has.
        protocol: for people.
        tls: what its handshake agreed, None in the clear.
        channels: how many are open.
        flow: what stops it.
        held_octets: of publishes that were read and wait.
        counts: what has passed it (`model.stats.CONNECTION_FIGURES`).
        rates: by how much these grew per second at last, () where that is not known.
    """

    node: str
    id: str
    name: str
    user: str
    vhost: str
    mechanism: str
    connected_at_ms: int
    state: str
    channel_max: int
    frame_max: int
    heartbeat_s: int
    channels: int
    client_properties: dict[str, Any] = {}
    tls: TlsStatus | None = None
    flow: ActivityStatus = ActivityStatus()
    held_octets: int = 0
    protocol: str = "AMQP 0-9-1"
    counts: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()

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
