"""Answers about queues, exchanges, connections and nodes: types for the API's description.

The objects themselves are made by the modules that answer; tests hold them against these types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired

import msgspec
from msgspec import UNSET, UnsetType
from typing_extensions import TypedDict

from headrace_broker.management.view.figures import LENGTHS
from headrace_broker.model.stats import (
    BYTE_FIGURES,
    CLIENT_FIGURES,
    EXCHANGE_FIGURES,
    NODE_FIGURES,
    NODE_OWN_FIGURES,
    QUEUE_MOVES,
)
from headrace_broker.model.status import LeaseGroupStatus


class SampleView(TypedDict):
    """Value of a figure at a time, Unix milliseconds."""

    sample: int
    timestamp: int


class DetailsView(TypedDict):
    """Change of a figure: `rate` per second over the last five seconds; more with an age."""

    rate: float
    samples: NotRequired[list[SampleView]]
    avg: NotRequired[float]
    avg_rate: NotRequired[float]


def _figures(names: Sequence[str]) -> dict[str, Any]:
    """Return fields `X` and `X_details`."""
    found: dict[str, Any] = {}
    for name in names:
        found[name] = int
        found[f"{name}_details"] = DetailsView
    return found


def _view(name: str, doc: str, fields: dict[str, Any]) -> Any:
    """Return a type whose fields may all be absent."""
    rows = [(field, kind | UnsetType, UNSET) for field, kind in fields.items()]
    return msgspec.defstruct(name, rows, namespace={"__doc__": doc}, module=__name__)


def _optional(kind: Any) -> Any:
    return kind | None


class WindowsView(TypedDict):
    """A figure over the last 1, 10 and 60 s."""

    last_1s: float
    last_10s: float
    last_60s: float


class LimitShareView(TypedDict):
    """For which part of the time a limit was the one that stopped, and the queue behind it."""

    last_1s: float
    last_10s: float
    last_60s: float
    queue: str | None


class FlowView(TypedDict):
    """Limits that stop a connection or channel."""

    limit: str | None
    queue: str | None
    since_ms: int | None
    stopped: WindowsView
    by_limit: dict[str, LimitShareView]


class QueueFlowView(TypedDict):
    """Rates of a queue, messages a second."""

    state: str
    saturated: bool
    messages_deferred: int
    behind: bool
    arrived: WindowsView
    delivered: WindowsView
    settled: WindowsView


class WatermarksView(TypedDict):
    """Messages and bytes from which a queue defers confirms, and down to which."""

    high: int
    low: int
    high_bytes: int
    low_bytes: int


class ReplicaView(TypedDict):
    """A member of a queue's log."""

    node: str
    member: str
    role: str


ClientStatsView = _view(
    "ClientStatsView",
    "What has passed a connection, a channel or a vhost.",
    _figures([*CLIENT_FIGURES, "deliver_get"]),
)
ExchangeStatsView = _view(
    "ExchangeStatsView", "What was published to an exchange.", _figures(EXCHANGE_FIGURES)
)
QueueStatsView = _view("QueueStatsView", "What moved in a queue.", _figures(QUEUE_MOVES))
TotalStatsView = _view(
    "TotalStatsView", "What moved in the cluster.", _figures([*CLIENT_FIGURES, "deliver_get"])
)
ChurnView = _view("ChurnView", "What came and went.", _figures(NODE_FIGURES[7:14]))
LengthsView = _view("LengthsView", "Messages in queues.", _figures(LENGTHS))


class PeerView(TypedDict):
    """A client."""

    name: str
    peer_host: str
    peer_port: int


class ChannelDetailsView(TypedDict, total=False):
    """A consumer's channel; empty for a group that leases messages."""

    id: str
    name: str
    number: int
    node: str
    connection_name: str
    peer_host: str
    peer_port: int
    user: str


class NamedQueueView(TypedDict):
    """A queue's name."""

    name: str
    vhost: str


class ConsumerView(TypedDict):
    """A consumer; `active` is null where only the queue's leader knows."""

    consumer_tag: str
    queue: NamedQueueView
    channel_details: ChannelDetailsView
    ack_required: bool
    exclusive: bool
    prefetch_count: int
    arguments: dict[str, Any]
    active: bool | None
    lease_group: NotRequired[LeaseGroupStatus]


ConnectionView = _view(
    "ConnectionView",
    "A client connection.",
    {
        **dict.fromkeys(
            ("id", "name", "node", "type", "protocol", "user", "vhost", "auth_mechanism"), str
        ),
        **dict.fromkeys(("host", "peer_host", "state"), str),
        "user_provided_name": _optional(str),
        **dict.fromkeys(("port", "peer_port", "buffered_bytes", "channels", "channel_max"), int),
        **dict.fromkeys(("frame_max", "timeout", "connected_at"), int),
        "ssl": bool,
        **dict.fromkeys(("ssl_protocol", "ssl_cipher", "peer_cert_subject"), _optional(str)),
        **dict.fromkeys(("peer_cert_issuer", "peer_cert_validity"), _optional(str)),
        "client_properties": dict[str, Any],
        "flow": FlowView,
        "message_stats": ClientStatsView,
        **_figures(BYTE_FIGURES),
    },
)
ChannelView = _view(
    "ChannelView",
    "A channel of a connection.",
    {
        **dict.fromkeys(("id", "name", "node", "user", "vhost", "state"), str),
        **dict.fromkeys(("number", "prefetch_count", "global_prefetch_count"), int),
        **dict.fromkeys(("consumer_count", "messages_unacknowledged"), int),
        "messages_unconfirmed": int,
        "confirm": bool,
        "connection_details": PeerView,
        "flow": FlowView,
        "message_stats": ClientStatsView,
    },
)
ExchangeView = _view(
    "ExchangeView",
    "An exchange.",
    {
        **dict.fromkeys(("vhost", "name", "type"), str),
        **dict.fromkeys(("durable", "auto_delete", "internal"), bool),
        "arguments": dict[str, Any],
        "unknown_arguments": list[str],
        "policy": _optional(str),
        "message_stats": ExchangeStatsView,
    },
)
QueueView = _view(
    "QueueView",
    "A queue; counts lack while nobody who knows them answers.",
    {
        **dict.fromkeys(("vhost", "name", "type", "node", "leader", "state"), str),
        **dict.fromkeys(("durable", "exclusive", "auto_delete"), bool),
        **dict.fromkeys(("arguments", "effective_policy_definition"), dict[str, Any]),
        **dict.fromkeys(("policy", "operator_policy"), _optional(str)),
        **dict.fromkeys(("members", "unknown_arguments"), list[str]),
        "delivery_limit": int | str,
        "flow": QueueFlowView,
        **_figures(LENGTHS),
        **dict.fromkeys(("messages_delayed", "messages_dlx", "message_bytes", "consumers"), int),
        **dict.fromkeys(("confirms_deferred", "archived_messages", "archived_message_bytes"), int),
        "saturated": bool,
        "watermarks": WatermarksView,
        "replicas": list[ReplicaView],
        "snapshot_index": int,
        **dict.fromkeys(("oldest_message_age_ms", "head_message_timestamp"), _optional(int)),
        "message_stats": QueueStatsView,
    },
)


class ContentView(TypedDict):
    """Target and content of a message; long bodies are cut."""

    exchange: str
    routing_key: str
    properties: dict[str, Any]
    properties_problem: NotRequired[str]
    redelivered: bool
    payload: str
    payload_bytes: int
    payload_encoding: str
    truncated: NotRequired[bool]


class FetchedView(ContentView):
    """A message that was taken, and how many were left."""

    message_count: int


class WaitingView(ContentView):
    """A message that waits."""

    id: int
    arrived_at_ms: int
    age_ms: int
    priority: int
    acquired_count: int
    delivery_count: int


class WaitingPageView(TypedDict):
    """Messages that wait, and where the next page begins; null at the end."""

    messages: list[WaitingView]
    next_after: int | None


class MovedView(TypedDict):
    """Outcome of a move of messages: their ids."""

    moved: list[int]
    missing: list[int]
    unrouted: list[int]
    refused: list[int]


class VhostMetadataView(TypedDict):
    """Metadata of a vhost."""

    description: str
    tags: list[str]
    default_queue_type: str


VhostView = _view(
    "VhostView",
    "A vhost.",
    {
        **dict.fromkeys(("name", "description", "default_queue_type"), str),
        "tags": list[str],
        "metadata": VhostMetadataView,
        "tracing": bool,
        **_figures(LENGTHS),
        **_figures(BYTE_FIGURES),
        "message_stats": ClientStatsView,
        "cluster_state": dict[str, str],
    },
)


class DamageView(TypedDict):
    """A replica that is being rebuilt."""

    what: str
    reason: str


class KindView(TypedDict):
    """A way to log in, or a kind of exchange."""

    name: str
    description: str
    enabled: bool


class ApplicationView(TypedDict):
    """Running application."""

    name: str
    description: str
    version: str


class ContextView(TypedDict):
    """Address of a node's HTTP listener."""

    description: str
    path: str
    ip: str
    port: str
    node: NotRequired[str]
    protocol: NotRequired[str]


class ListenerView(TypedDict):
    """Address of a listener."""

    node: str
    protocol: str
    ip_address: str
    port: int
    tls: bool
    socket_opts: dict[str, Any]


class ShardView(TypedDict, total=False):
    """A process of a node."""

    name: str
    id: int
    address: str
    running: bool
    being_drained: bool
    boot: int
    os_pid: str
    loop_lag_ms: int


NodeView = _view(
    "NodeView",
    "A node; what it tells of itself lacks while it does not answer.",
    {
        **dict.fromkeys(("name", "type", "address", "os_pid", "version", "rates_mode"), str),
        "db_dir": str,
        **dict.fromkeys(("id", "boot", "uptime", "processors", "run_queue", "loop_lag_ms"), int),
        **dict.fromkeys(("fd_total", "sockets_total", "proc_total", "gc_num"), int),
        **dict.fromkeys(("context_switches", "mem_limit", "mem_total", "mem_stage"), int),
        "disk_free_limit": int,
        **dict.fromkeys(("clock_skew_ms", "clock_skew_bound_ms", "queue_clock_lead_ms"), int),
        "clock_warning": str,
        **dict.fromkeys(("running", "being_drained", "mem_alarm", "disk_free_alarm"), bool),
        **dict.fromkeys(("partitions", "cluster_links", "enabled_plugins"), list[str]),
        "catalog": list[ReplicaView],
        "quarantined": list[DamageView],
        **dict.fromkeys(("exchange_types", "auth_mechanisms"), list[KindView]),
        "applications": list[ApplicationView],
        "contexts": list[ContextView],
        "shards": list[ShardView],
        **_figures(NODE_OWN_FIGURES),
    },
)


class AttemptsView(TypedDict):
    """Log-ins over a protocol."""

    protocol: str
    auth_attempts: int
    auth_attempts_succeeded: int
    auth_attempts_failed: int


class MemorySumView(TypedDict):
    """Memory of a node in bytes."""

    rss: int
    allocated: int
    erlang: int


class MemoryView(TypedDict):
    """Memory of a node, and its limit."""

    total: MemorySumView
    limit: int
    available: int
    strategy: str


class NodeMemoryView(TypedDict):
    """Memory of a node."""

    memory: MemoryView


class ObjectsView(TypedDict):
    """Counts of objects."""

    connections: int
    channels: int
    consumers: int
    exchanges: int
    queues: int


class LocalView(TypedDict):
    """Figures of the answering node alone, over its processes."""

    object_totals: ObjectsView
    queue_totals: dict[str, int]
    message_stats: dict[str, Any]


OverviewView = _view(
    "OverviewView",
    "The cluster in short.",
    {
        **dict.fromkeys(("product_name", "product_version", "management_version"), str),
        **dict.fromkeys(
            ("headrace_version", "rabbitmq_version", "rates_mode", "cluster_name", "node"), str
        ),
        "leader": str,
        **dict.fromkeys(("compiled", "disable_stats", "enable_queue_totals"), bool),
        "sample_retention_policies": dict[str, list[int]],
        **dict.fromkeys(("exchange_types", "auth_mechanisms"), list[KindView]),
        "nodes": list[dict[str, Any]],
        "statistics_db_event_queue": int,
        "object_totals": ObjectsView,
        "local": LocalView | None,
        "queue_totals": LengthsView,
        "message_stats": TotalStatsView,
        "churn_rates": ChurnView,
        "listeners": list[ListenerView],
        "contexts": list[ContextView],
    },
)
