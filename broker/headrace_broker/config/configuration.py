"""The configuration of one node: a TOML file, overridden by the environment.

Every key `[section] key` may be overridden by the variable `HEADRACE_SECTION_KEY`, for instance
HEADRACE_RAFT_TICK_MS=50; HEADRACE_CLUSTER_NODES is written `1=n1@host:port,2=n2@host:port`, and
HEADRACE_HTTP_HOSTS `a.example,*.b.example`.
Unknown keys and values out of range are refused, naming the key and what is allowed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_type_hints

import msgspec
from msgspec import Meta, Struct

from headrace_broker.config.cluster import unproven_problem
from headrace_broker.config.default_user import DefaultUserSection, default_user_problem
from headrace_broker.config.explanation import explain, kinds
from headrace_broker.config.http import HttpSection
from headrace_broker.config.metrics import MetricsSection, TracingSection
from headrace_broker.config.telemetry import TelemetrySection, advertised_address
from headrace_broker.config.tls import (
    ClusterTlsSection,
    File,
    TlsSection,
    cluster_tls_problem,
    tls_problem,
)
from headrace_broker.model import limits
from headrace_broker.model.flow_parameter import (
    DISK_FREE,
    PARAMETERS,
    Value,
    attribute_name,
    parameter_problem,
    stored_value,
)
from headrace_broker.model.shard import Shards, shards_problem
from headrace_raftlog.model import limits as log_limits

ENVIRONMENT_PREFIX: Final = "HEADRACE_"
# A pod's zone, "" for unknown. No name of a key: releases before that key would refuse it.
POD_ZONE: Final = "HEADRACE_POD_ZONE"
MIB: Final = 1 << 20
GIB: Final = 1 << 30
BLOCK_BYTES: Final = 4096  # a log file is a whole number of them

Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit",
    ),
]
OptionalName = Annotated[
    str,
    Meta(
        pattern=r"^$|^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description=(
            "empty, or 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"
        ),
    ),
]
Address = Annotated[
    str,
    Meta(
        pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$",
        description="HOST:PORT, an IPv6 host in brackets",
    ),
]
OptionalAddress = Annotated[
    str,
    Meta(
        pattern=r"^$|^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$",
        description="HOST:PORT, an IPv6 host in brackets, or empty for none",
    ),
]
# Checked by `model.flow_parameter`, which knows the limits of each.
FlowLimit = Annotated[int | None, Meta(description="an integer")]
Watermark = Annotated[
    int | float | None, Meta(description="bytes, or a fraction of the memory limit from 0.0 to 1.0")
]
NodeId = Annotated[int, Meta(ge=1, le=log_limits.NODE_ID_MAX)]


class ConfigError(Exception):
    """The configuration is refused; the text names source, key and the allowed values."""


class NodeSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Identity of this node."""

    # unique in the cluster for ever; never give a lost node's id to its successor. Where it is not
    # given, it is that of the node of this name in `cluster.nodes`.
    id: NodeId
    name: Name  # unique in the cluster, for people
    # directory of its log; created when missing, belongs to one node
    data_dir: Annotated[str, Meta(min_length=1, max_length=4096, description="a directory")]
    # what fails as a whole with the nodes in it, such as an availability zone or a rack, "" for
    # unknown; replicas of queues are spread over zones
    zone: OptionalName = ""
    # processes, each with a log and a core of its own, that are one node to clients: 1 to 8, or
    # "auto" for half of the cores, with fewer than four cores one
    shards: Annotated[Shards, Meta(description="'auto' or an integer from 1 to 8")] = 1


class ClusterNode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One member of the cluster, and where the others reach it (gRPC)."""

    id: NodeId
    name: Name
    address: Address


class ClusterSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cluster."""

    name: Name = "headrace"  # the same on all its nodes
    admit_nodes: bool = False  # nodes that nobody has announced may join the running cluster
    # leaders of queues are spread over the nodes by themselves, slowly; what the node says counts
    # that leads the catalog
    balance_leaders: bool = True
    # a secret on its first line, which nodes prove to each other to know; one on the second line is
    # accepted as well. Empty for none, which is allowed where only this machine reaches the nodes,
    # or with `cluster_tls`.
    join_secret_file: File = ""
    # refuse nodes without the proof. Without it those of a running cluster can be given a secret
    # one after the other.
    join_secret_required: bool = True
    listen: OptionalAddress = ""  # where the others reach this node, "" for its address in `nodes`
    # way of what nodes replicate: `frames`, a TCP connection to a second port, which costs less, or
    # `grpc`, the port of `listen` alone, for a service mesh or a firewall with one rule. Nodes of a
    # cluster may differ.
    transport: Literal["frames", "grpc"] = "frames"
    # port on the same host to which the others send what they replicate, 0 for any that is free; a
    # firewall between nodes needs to know it. With transport `grpc` it is not listened on.
    frames_port: Annotated[int, Meta(ge=0, le=65535, description="0 to 65535")] = 0
    # this node, and those that it turns to when it has no data yet. A new cluster is founded by the
    # nodes that stand here, the same ones on each. Once it is, its catalog alone says who belongs
    # to it and where they are.
    nodes: Annotated[
        tuple[ClusterNode, ...], Meta(min_length=1, max_length=64, description="1 to 64 nodes")
    ]


class ListenersSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Addresses of this node for clients; port 0 takes any free one."""

    amqp: OptionalAddress = "127.0.0.1:5672"  # AMQP in the clear, empty for none
    amqps: OptionalAddress = ""  # AMQP over TLS, empty for none; needs the section `tls`
    http: OptionalAddress = "127.0.0.1:15672"  # the HTTP API in the clear, empty for none
    https: OptionalAddress = ""  # the same over TLS, empty for none; needs the section `tls`
    grpc: OptionalAddress = "127.0.0.1:7672"  # the gRPC API in the clear, empty for none
    grpcs: OptionalAddress = ""  # the same over TLS, empty for none; needs the section `tls`
    # what Prometheus reads, in the clear and apart from the HTTP API, which has it too; empty for
    # none
    metrics: OptionalAddress = ""

    def secure(self) -> tuple[str, ...]:
        """Return the names of the listeners that speak TLS and are there."""
        return tuple([name for name in ("amqps", "https", "grpcs") if getattr(self, name)])

    def shared(self) -> tuple[str, ...]:
        """Return the addresses that all processes of a node know, "" for listeners that are off."""
        return self.amqp, self.amqps, self.grpc, self.grpcs, self.metrics


LISTENERS: Final = ("amqp", "amqps", "http", "https", "grpc", "grpcs", "metrics")


class RaftSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timing of the replicated logs."""

    # milliseconds of one tick of the logical clock
    tick_ms: Annotated[int, Meta(ge=10, le=1000)] = 100
    # a follower campaigns after n to 2n ticks without a leader
    election_ticks: Annotated[int, Meta(ge=3, le=100)] = 10
    # ticks between a leader's heartbeats, less than election_ticks
    heartbeat_ticks: Annotated[int, Meta(ge=1, le=50)] = 1
    # idle ticks after which a queue's replicas fall silent; 0 never
    quiesce_ticks: Annotated[int, Meta(ge=0, le=10_000)] = 20
    # milliseconds in which no step of a write ends, after which the node hands over what it leads
    # until its disk answers again; more than an ordinary stall takes
    disk_stall_ms: Annotated[int, Meta(ge=100, le=600_000)] = 5000


class LimitsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on clients, and thresholds at which the node stops accepting.

    What stands behind `disk_free_bytes_min` are limits of flow control that can be changed at run
    time: see `model.flow_parameter` for units, ranges, defaults and reasons.
    """

    # bytes of an AMQP frame offered at connection.tune
    frame_bytes_max: Annotated[int, Meta(ge=4096, le=limits.FRAME_BYTES_MAX)] = (
        limits.FRAME_BYTES_MAX
    )
    # open connections of a listener for AMQP, and as many of gRPC's
    connections_max: Annotated[int, Meta(ge=1, le=limits.CONNECTIONS_MAX)] = limits.CONNECTIONS_MAX
    # channels per connection offered at connection.tune
    channels_max: Annotated[int, Meta(ge=1, le=65535)] = limits.CHANNELS_MAX
    # bytes of one body; with its head it is one entry of a log. What clients may send is the least
    # of that of all nodes, which each takes at least MESSAGE_BYTES_PLAIN.
    message_bytes_max: Annotated[int, Meta(ge=1024, le=limits.MESSAGE_BYTES_CEILING)] = (
        limits.MESSAGE_BYTES_MAX
    )
    # free bytes on the data directory's device below which nothing new is accepted
    disk_free_bytes_min: Annotated[int, Meta(ge=0, le=1 << 50)] = limits.DISK_FREE_LIMIT
    memory_high_watermark: Watermark = None
    memory_paging_watermark: Watermark = None
    account_messages: FlowLimit = None
    account_bytes: FlowLimit = None
    credit: FlowLimit = None
    credit_more: FlowLimit = None
    queue_commands: FlowLimit = None
    queue_pending_bytes: FlowLimit = None
    connection_buffer_bytes: FlowLimit = None
    node_buffer_bytes: FlowLimit = None
    intake_messages: FlowLimit = None
    intake_bytes: FlowLimit = None
    blocked_after_ms: FlowLimit = None
    leaderless_ms: FlowLimit = None

    def flow(self) -> dict[str, Value]:
        """Return the flow-control limits given here, as stored; ValueError out of range."""
        found: dict[str, Value] = {DISK_FREE: self.disk_free_bytes_min}
        for name in PARAMETERS:
            given = getattr(self, attribute_name(name), None)
            if given is None:
                continue
            value = stored_value(given)
            problem = parameter_problem(name, given if value is None else value)
            if problem or value is None:
                raise ValueError(problem.replace(name, attribute_name(name), 1))
            found[name] = value
        return found


class LogSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The node's shared log."""

    # size of one preallocated log file, at least twice the largest message of up to
    # MESSAGE_BYTES_PLAIN with what goes with it. Larger ones get files of their own.
    segment_bytes: Annotated[int, Meta(ge=MIB, le=GIB, multiple_of=BLOCK_BYTES)] = (
        log_limits.SEGMENT_BYTES_DEFAULT
    )
    # entries kept in memory for followers and consumers, in bytes
    cache_bytes: Annotated[int, Meta(ge=MIB, le=64 * GIB)] = log_limits.ENTRY_CACHE_BYTES_DEFAULT
    # a queue's log is cut after so many bytes of entries, at least; what is settled leaves the disk
    # then
    snapshot_every_bytes: Annotated[int, Meta(ge=64 << 10, le=GIB)] = (
        log_limits.SNAPSHOT_EVERY_BYTES
    )


class LoggingSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Logging of a node."""

    format: Literal["human", "json"] = "human"  # lines for people, or JSON for programs
    # who changed what goes into this file too; empty for none
    audit_file: Annotated[
        str, Meta(max_length=4096, description="the path of a file, or empty for none")
    ] = ""


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a node is told at its start."""

    node: NodeSection
    cluster: ClusterSection
    listeners: ListenersSection = msgspec.field(default_factory=ListenersSection)
    default_user: DefaultUserSection = msgspec.field(default_factory=DefaultUserSection)
    tls: TlsSection = msgspec.field(default_factory=TlsSection)
    cluster_tls: ClusterTlsSection = msgspec.field(default_factory=ClusterTlsSection)
    raft: RaftSection = msgspec.field(default_factory=RaftSection)
    limits: LimitsSection = msgspec.field(default_factory=LimitsSection)
    log: LogSection = msgspec.field(default_factory=LogSection)
    http: HttpSection = msgspec.field(default_factory=HttpSection)
    logging: LoggingSection = msgspec.field(default_factory=LoggingSection)
    metrics: MetricsSection = msgspec.field(default_factory=MetricsSection)
    tracing: TracingSection = msgspec.field(default_factory=TracingSection)
    telemetry: TelemetrySection = msgspec.field(default_factory=TelemetrySection)

    @property
    def address(self) -> str:
        """This node's inter-node (gRPC) address."""
        return next(node.address for node in self.cluster.nodes if node.id == self.node.id)

    @property
    def grpc_address(self) -> str:
        """Address of this node's gRPC listener for others, "" without one."""
        return advertised_address(self.listeners.grpc or self.listeners.grpcs, self.address)


def split_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT without an IPv6 host's brackets; ValueError without a valid port."""
    host, _, port = address.rpartition(":")
    if not host or int(port) > 65535:
        raise ValueError(f"{address}: port must be 0 to 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)


def load_config(path: Path | None, environment: Mapping[str, str]) -> Config:
    """Read a node's configuration.

    Args:
        path: the TOML file, or None when the environment says everything.
        environment: usually os.environ.

    Raises:
        ConfigError: file unreadable, key unknown or missing, value of the wrong type or out of
            range, or values that contradict each other.
    """
    data: dict[str, Any] = {}
    if path is not None:
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not valid TOML: {error}") from error
    sources = _override(data, environment)
    _identify(data, environment.get(POD_ZONE, ""), sources)
    try:
        config = msgspec.convert(data, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(explain(Config, str(error), data, sources, path)) from None
    _cross_check(config)
    return config


def _override(data: dict[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """Put HEADRACE_* values into `data`; return key path -> variable for error texts."""
    sections = get_type_hints(Config, include_extras=True)
    sources: dict[str, str] = {}
    for variable in sorted(environment):
        section, key = _place(variable.removeprefix(ENVIRONMENT_PREFIX).lower(), sections)
        if not variable.startswith(ENVIRONMENT_PREFIX) or not key:
            continue  # another program's, or one of ours that is no key (HEADRACE_NO_COMPILE)
        table = data.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{section}: must be a table, [{section}]")
        table[key] = _environment_value(sections[section], section, key, environment[variable])
        sources[f"{section}.{key}"] = variable
    return sources


def _identify(data: dict[str, Any], pod_zone: str, sources: dict[str, str]) -> None:
    """Give a node the zone of its pod, and the id of the node of its name, where it says none."""
    try:
        own = data["node"]
        if "zone" not in own:
            own["zone"] = pod_zone
            sources["node.zone"] = POD_ZONE
        nodes = data["cluster"]["nodes"]
        found = [node["id"] for node in nodes if node["name"] == own["name"]]
    except (KeyError, TypeError):
        return  # what is missing or wrong is said by the checks to come
    if "id" not in own and len(found) == 1:
        own["id"] = found[0]


def _place(name: str, sections: Collection[str]) -> tuple[str, str]:
    """Return section and key of a variable, of the longest section that fits; "" for none."""
    fitting = [section for section in sections if name.startswith(f"{section}_")]
    section = max(fitting, key=len, default="")
    return section, name.removeprefix(f"{section}_") if section else ""


def _environment_value(section_type: Any, section: str, key: str, text: str) -> Any:
    if (section, key) == ("cluster", "nodes"):
        return [_environment_node(item) for item in text.split(",")]
    if (section, key) == ("http", "hosts"):
        return [item.strip() for item in text.split(",") if item.strip()]
    known = get_type_hints(section_type, include_extras=True)
    found = kinds(known.get(key))
    if int in found and re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if float in found and re.fullmatch(r"-?[0-9]{1,18}\.[0-9]{1,18}", text):
        return float(text)
    if bool in found:
        return {"true": True, "false": False}.get(text.lower(), text)
    return text


def _environment_node(item: str) -> dict[str, Any]:
    match = re.fullmatch(r"\s*([0-9]{1,6})=([^@]+)@(.+?)\s*", item)
    if match is None:
        raise ConfigError(f"HEADRACE_CLUSTER_NODES: {item!r} is not ID=NAME@HOST:PORT")
    return {"id": int(match[1]), "name": match[2], "address": match[3]}


def _cross_check(config: Config) -> None:
    """Refuse values that are allowed one by one but not together."""
    nodes = config.cluster.nodes
    for key in ("id", "name", "address"):
        values = [getattr(node, key) for node in nodes]
        twice = sorted({str(value) for value in values if values.count(value) > 1})
        if twice:
            raise ConfigError(f"cluster.nodes: {key} {', '.join(twice)} is given twice")
    own = next((node for node in nodes if node.id == config.node.id), None)
    if own is None:
        ids = ", ".join(str(node.id) for node in nodes)
        raise ConfigError(f"node.id: {config.node.id} is not in cluster.nodes; there are {ids}")
    if own.name != config.node.name:
        raise ConfigError(
            f"node.name: {config.node.name!r} is called {own.name!r} in cluster.nodes"
        )
    if config.raft.heartbeat_ticks >= config.raft.election_ticks:
        raise ConfigError(
            f"raft.heartbeat_ticks: {config.raft.heartbeat_ticks} must be less than "
            f"raft.election_ticks, {config.raft.election_ticks}"
        )
    usual = min(config.limits.message_bytes_max, limits.MESSAGE_BYTES_PLAIN)
    largest = max(usual, limits.COMMAND_BYTES_MAX)
    needed = 2 * (largest + limits.ENTRY_OVERHEAD_BYTES)
    if config.log.segment_bytes < needed:
        raise ConfigError(
            f"log.segment_bytes: {config.log.segment_bytes} must be at least {needed} for "
            f"limits.message_bytes_max, {config.limits.message_bytes_max}"
        )
    try:
        config.limits.flow()
    except ValueError as error:
        raise ConfigError(f"limits.{error}") from None
    problem = (
        tls_problem(config.tls, config.listeners.secure())
        or cluster_tls_problem(config.cluster_tls)
        or default_user_problem(config.default_user)
        or shards_problem(config.node.shards, config.node.id, config.listeners.shared())
    )
    if problem:
        raise ConfigError(problem)
    _check_places(config)
    problem = _join_problem(config)
    if problem:
        raise ConfigError(problem)


def _join_problem(config: Config) -> str:
    """Return why nodes may not know each other as the configuration says, "" when they may."""
    cluster = config.cluster
    if not cluster.join_secret_required and not cluster.join_secret_file:
        return "cluster.join_secret_required: has no use without cluster.join_secret_file"
    places = {f"cluster.nodes {node.name}": node.address for node in cluster.nodes}
    if cluster.listen:
        places["cluster.listen"] = cluster.listen
    proven = cluster.join_secret_file or config.cluster_tls.certificate_file
    return unproven_problem(places, bool(proven))


def _check_places(config: Config) -> None:
    """Refuse ports that cannot be, and addresses that two listeners would share."""
    listeners = config.listeners
    for plain in ("amqp", "http"):
        if not getattr(listeners, plain) and not getattr(listeners, f"{plain}s"):
            raise ConfigError(f"listeners.{plain}: must not be empty when listeners.{plain}s is")
    places = {f"cluster.nodes {node.name}": node.address for node in config.cluster.nodes}
    own = {name: str(getattr(listeners, name)) for name in LISTENERS}
    for name, address in own.items():
        if not address:
            continue
        twin = next((key for key, other in own.items() if other == address and key != name), None)
        if twin is not None and not address.endswith(":0"):
            raise ConfigError(f"listeners.{twin}: {address} is that of listeners.{name} too")
        places[f"listeners.{name}"] = address
    if config.cluster.listen:
        places["cluster.listen"] = config.cluster.listen
    for key, address in places.items():
        try:
            _, port = split_address(address)
        except ValueError as error:
            raise ConfigError(f"{key}: {error}") from None
        if port == 0 and key.startswith("cluster"):
            raise ConfigError(f"{key}: {address}: port must be 1 to 65535")
