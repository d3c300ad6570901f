"""The parts of a BrokerCluster about the broker's configuration.

Names and ranges are those of the broker's configuration file, in camel case; a test holds them
together. What is absent has the broker's own default, but for what follows from the size of the
pod: see `builders.config_file`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from headrace_operator.specs.field import INTEGER_MAX, Port, Rule, Spec

MIB: Final = 1 << 20
GIB: Final = 1 << 30
BYTES_MAX: Final = 1 << 50
MESSAGES_MAX: Final = 1_000_000_000

Messages = Annotated[int, Meta(ge=1, le=MESSAGES_MAX)]
Bytes = Annotated[int, Meta(ge=1, le=BYTES_MAX)]
# Bytes, or a fraction of the memory limit as text, "0.6": schemas of Kubernetes do without floats.
Watermark = Annotated[
    int | str, Meta(extra_json_schema={"pattern": r"^(0\.[0-9]{1,9}|1\.0{1,9})$", "minimum": 0})
]
DiskWatermark = Annotated[
    int | str, Meta(extra_json_schema={"pattern": r"^[0-9]{1,3}\.[0-9]{1,9}$", "minimum": 0})
]


class Listeners(Spec, frozen=True, kw_only=True):
    """Listeners of nodes; those over TLS exist if `tls.clients.mode` says so.

    Attributes:
        bind_address: of this machine; `$(HEADRACE_POD_IP)` stands for the pod's own address.
        amqp: AMQP 0-9-1 in the clear.
        amqps: AMQP 0-9-1 over TLS.
        http: the HTTP API, the page, probes and metrics, in the clear.
        https: the same over TLS.
        grpc: the gRPC API in the clear.
        grpcs: the same over TLS.
        metrics: what Prometheus reads, in the clear.
        cluster: between nodes.
        frames: between nodes, for what they replicate, unless that uses gRPC.
    """

    bind_address: Annotated[
        str,
        Meta(
            pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+|\[?\$\(HEADRACE_POD_IP\)\]?)$",
            max_length=64,
        ),
    ] = "0.0.0.0"  # noqa: S104 - a pod is reached by nobody whom the NetworkPolicy does not let in
    amqp: Port = 5672
    amqps: Port = 5671
    http: Port = 15672
    https: Port = 15671
    grpc: Port = 7672
    grpcs: Port = 7671
    metrics: Port = 15692
    cluster: Port = 7100
    frames: Port = 7101


class RaftConfig(Spec, frozen=True, kw_only=True):
    """Timing of the replicated logs.

    Attributes:
        tick_ms: milliseconds of one tick.
        election_ticks: ticks without a leader after which a follower campaigns, at least.
        heartbeat_ticks: ticks between two heartbeats of a leader.
        quiesce_ticks: idle ticks after which a queue's replicas fall silent; 0 for never.
        disk_stall_ms: milliseconds in which no step of a write ends, after which a node hands over
            what it leads until its disk answers again.
    """

    tick_ms: Annotated[int, Meta(ge=10, le=1000)] | None = None
    election_ticks: Annotated[int, Meta(ge=3, le=100)] | None = None
    heartbeat_ticks: Annotated[int, Meta(ge=1, le=50)] | None = None
    quiesce_ticks: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    disk_stall_ms: Annotated[int, Meta(ge=100, le=600_000)] | None = None


class LimitsConfig(Spec, frozen=True, kw_only=True):
    """Limits on clients.

    Attributes:
        frame_bytes_max: bytes of an AMQP frame.
        connections_max: open connections of a listener for AMQP, and as many of gRPC's.
        channels_max: channels of a connection.
        message_bytes_max: bytes of a message's body.
    """

    frame_bytes_max: Annotated[int, Meta(ge=4096, le=131_072)] | None = None
    connections_max: Annotated[int, Meta(ge=1, le=16_384)] | None = None
    channels_max: Annotated[int, Meta(ge=1, le=65535)] | None = None
    message_bytes_max: Annotated[int, Meta(ge=1024, le=512 * MIB)] | None = None


class LogConfig(Spec, frozen=True, kw_only=True):
    """The log that all queues of a node share.

    Attributes:
        segment_bytes: of one file, a multiple of 4096.
        cache_bytes: entries that are kept in memory; absent for 64 MiB, or an eighth of a
            small memory limit.
        snapshot_every_bytes: of a queue's entries, after which its log is cut.
    """

    segment_bytes: Annotated[int, Meta(ge=MIB, le=GIB, multiple_of=4096)] | None = None
    cache_bytes: Annotated[int, Meta(ge=MIB, le=64 * GIB)] | None = None
    snapshot_every_bytes: Annotated[int, Meta(ge=64 << 10, le=GIB)] | None = None


class LoggingConfig(Spec, frozen=True, kw_only=True):
    """Logging of nodes.

    Attributes:
        format: JSON for programs, or lines for people.
        level: the least that is written.
    """

    format: Literal["json", "human"] = "json"
    level: Literal["debug", "info", "warning", "error"] = "info"


class ClusterConfig(Spec, frozen=True, kw_only=True):
    """Behaviour of nodes towards each other.

    Attributes:
        balance_leaders: leaders of queues spread over the nodes by themselves, slowly.
        transport: way of what nodes replicate: a connection to the port `frames` of each, or gRPC,
            which needs the port `cluster` alone, for a service mesh for example.
    """

    balance_leaders: bool | None = None
    transport: Literal["frames", "grpc"] | None = None


class TelemetryConfig(Spec, frozen=True, kw_only=True):
    """Telemetry of each second, in logs on the nodes' volumes.

    Attributes:
        enabled: whether anything is noted.
        bytes_max: bytes of these logs of a node.
        age_hours_max: hours after which what was noted goes.
        entities_max: queues, connections and accounts that are noted one by one.
    """

    enabled: bool | None = None
    bytes_max: Annotated[int, Meta(ge=4 * MIB, le=64 * GIB)] | None = None
    age_hours_max: Annotated[int, Meta(ge=1, le=8760)] | None = None
    entities_max: Annotated[int, Meta(ge=10, le=10_000)] | None = None


class BrokerConfig(Spec, frozen=True, kw_only=True):
    """The broker's configuration file. A change restarts the nodes, one after the other.

    Attributes:
        raft: timing of the replicated logs.
        limits: what a client may ask for.
        log: the log that all queues of a node share.
        logging: what a node writes about itself.
        cluster: what nodes do for each other.
        telemetry: what nodes note of themselves each second.
    """

    RULES = (
        Rule(
            "(has(self.raft.heartbeatTicks) ? self.raft.heartbeatTicks : 1) < "
            "(has(self.raft.electionTicks) ? self.raft.electionTicks : 10)",
            "raft.heartbeatTicks must be less than raft.electionTicks",
        ),
        Rule(
            "!has(self.log.segmentBytes) || self.log.segmentBytes >= 67108864 || "
            "self.log.segmentBytes >= 2 * (1048576 + "
            "(has(self.limits.messageBytesMax) ? self.limits.messageBytesMax : 16777216))",
            "log.segmentBytes must be 64 MiB or at least twice limits.messageBytesMax and a MiB",
        ),
    )

    raft: RaftConfig = RaftConfig()
    limits: LimitsConfig = LimitsConfig()
    log: LogConfig = LogConfig()
    logging: LoggingConfig = LoggingConfig()
    cluster: ClusterConfig = ClusterConfig()
    telemetry: TelemetryConfig = TelemetryConfig()


class FlowLimits(Spec, frozen=True, kw_only=True):
    """Limits of flow control. They are set at run time, for all nodes at once, without a restart.

    Attributes:
        account_messages: what a connection has caused and is not done yet, in messages.
        account_bytes: the same in bytes.
        credit: publishes given to a channel in advance.
        credit_more: publishes after which a channel is given as many again.
        queue_commands: batches of a channel that a queue has not applied.
        queue_pending_bytes: bytes of a node's publishers that one queue has not applied.
        connection_buffer_bytes: bytes of publishes held for a connection.
        node_buffer_bytes: bytes of publishes that a node holds for all connections.
        intake_messages: publishes passed on in one turn of the loop while consumers wait.
        intake_bytes: the same in bytes.
        blocked_after_ms: a client is told when it was held for so long; 0 for never.
        leaderless_ms: publishes are refused when no leader of their queue was reachable for so
            long; 0 for never.
        memory_high_watermark: bytes, or a fraction of the memory limit such as "0.6", from which
            publishers are blocked in the whole cluster.
        memory_paging_watermark: likewise, from which bodies leave memory.
        disk_free_limit: bytes, or a multiple of the memory limit such as "1.0", below which
            publishers are blocked; absent for 2 GiB, or a tenth of a volume of less than 20 GiB.
    """

    account_messages: Messages | None = None
    account_bytes: Bytes | None = None
    credit: Messages | None = None
    credit_more: Messages | None = None
    queue_commands: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    queue_pending_bytes: Bytes | None = None
    connection_buffer_bytes: Bytes | None = None
    node_buffer_bytes: Annotated[int, Meta(ge=MIB, le=BYTES_MAX)] | None = None
    intake_messages: Messages | None = None
    intake_bytes: Bytes | None = None
    blocked_after_ms: Annotated[int, Meta(ge=0, le=INTEGER_MAX)] | None = None
    leaderless_ms: Annotated[int, Meta(ge=0, le=INTEGER_MAX)] | None = None
    memory_high_watermark: Watermark | None = None
    memory_paging_watermark: Watermark | None = None
    disk_free_limit: DiskWatermark | None = None


def unique_ports() -> Rule:
    """Return the rule that no two listeners share a port."""
    names = ("amqp", "amqps", "http", "https", "grpc", "grpcs", "metrics", "cluster", "frames")
    ports = ", ".join(f"self.{name}" for name in names)
    return Rule(
        f"[{ports}].all(port, [{ports}].exists_one(other, other == port))",
        "no two listeners can have one port",
    )
