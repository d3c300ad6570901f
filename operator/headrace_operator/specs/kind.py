"""The custom resources: names, specs, statuses, and the columns that `kubectl get` shows."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from headrace_operator.specs.access import PermissionSpec, UserSpec, UserStatus, VhostSpec
from headrace_operator.specs.cluster import NAME_RULE, BrokerClusterSpec, BrokerClusterStatus
from headrace_operator.specs.field import Rule
from headrace_operator.specs.pipeline_run import NAME_RULE as RUN_NAME_RULE
from headrace_operator.specs.pipeline_run import PipelineRunSpec, PipelineRunStatus
from headrace_operator.specs.policy import PolicySpec
from headrace_operator.specs.scaler import ConsumerScalerSpec, ConsumerScalerStatus
from headrace_operator.specs.status import Status
from headrace_operator.specs.topology import BindingSpec, ExchangeSpec, QueueSpec, QueueStatus

GROUP: Final = "headrace.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

# Of all resources.
FINALIZER: Final = f"{GROUP}/finalizer"
PAUSED_ANNOTATION: Final = f"{GROUP}/paused"
FIELD_MANAGER: Final = "headrace-operator"


def is_paused(body: dict[str, Any]) -> bool:
    """Return whether a person has the operator change nothing of a resource."""
    annotations = body["metadata"].get("annotations") or {}
    return bool(annotations.get(PAUSED_ANNOTATION) == "true")


class Column(NamedTuple):
    """A column of `kubectl get`.

    Attributes:
        name: its heading.
        path: JSONPath of its values.
        type: of its values.
        wide: whether it is shown with `-o wide` only.
    """

    name: str
    path: str
    type: str = "string"
    wide: bool = False


class Kind(NamedTuple):
    """A custom resource.

    Attributes:
        name: its kind.
        plural: in paths and commands.
        short_names: for commands.
        description: a sentence.
        spec: what is wanted.
        status: what is.
        columns: of `kubectl get`, besides Ready, the reason and the age.
        rules: of the whole resource.
        scaled: whether `kubectl scale` works.
    """

    name: str
    plural: str
    short_names: tuple[str, ...]
    description: str
    spec: type[msgspec.Struct]
    status: type[msgspec.Struct] = Status
    columns: tuple[Column, ...] = ()
    rules: tuple[Rule, ...] = ()
    scaled: bool = False

    @property
    def singular(self) -> str:
        """The name in lower case."""
        return self.name.lower()

    def owner(self, name: str, uid: str) -> dict[str, Any]:
        """Return the reference by which Kubernetes deletes what belongs to a resource with it."""
        return {
            "apiVersion": API_VERSION,
            "kind": self.name,
            "name": name,
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


_CLUSTER: Final = Column("Cluster", ".spec.clusterRef.name")
_VHOST: Final = Column("Vhost", ".spec.vhost")

BROKER_CLUSTER: Final = Kind(
    "BrokerCluster",
    "brokerclusters",
    ("hrc",),
    "Nodes that share one catalog, and everything that they run on.",
    BrokerClusterSpec,
    BrokerClusterStatus,
    (
        Column("Replicas", ".spec.replicas", "integer"),
        Column("Nodes ready", ".status.readyReplicas", "integer"),
        Column("Version", ".status.version"),
        Column("Step", ".status.step.name", wide=True),
    ),
    (NAME_RULE,),
    scaled=True,
)
VHOST: Final = Kind(
    "Vhost",
    "vhosts",
    ("hrv",),
    "A name space of exchanges, queues and permissions.",
    VhostSpec,
    columns=(_CLUSTER,),
)
USER: Final = Kind(
    "User",
    "users",
    ("hru",),
    "Somebody who may log in.",
    UserSpec,
    UserStatus,
    (_CLUSTER, Column("Username", ".status.username")),
)
PERMISSION: Final = Kind(
    "Permission",
    "permissions",
    ("hrp",),
    "What a user may do in a vhost.",
    PermissionSpec,
    columns=(
        _CLUSTER,
        _VHOST,
        Column("User", ".spec.user"),
        Column("User ref", ".spec.userRef.name"),
    ),
)
EXCHANGE: Final = Kind(
    "Exchange",
    "exchanges",
    ("hrx",),
    "What messages are published to.",
    ExchangeSpec,
    columns=(_CLUSTER, _VHOST, Column("Type", ".spec.type")),
)
QUEUE: Final = Kind(
    "Queue",
    "queues",
    ("hrq",),
    "Where messages wait.",
    QueueSpec,
    QueueStatus,
    (
        _CLUSTER,
        _VHOST,
        Column("Type", ".spec.type"),
        Column("Messages", ".status.messages", "integer"),
        Column("Consumers", ".status.consumers", "integer", wide=True),
        Column("Leader", ".status.leader", wide=True),
    ),
)
BINDING: Final = Kind(
    "Binding",
    "bindings",
    ("hrb",),
    "Which messages of an exchange go where.",
    BindingSpec,
    columns=(
        _CLUSTER,
        _VHOST,
        Column("Source", ".spec.source"),
        Column("Queue", ".spec.destination.queue"),
        Column("Exchange", ".spec.destination.exchange", wide=True),
        Column("Routing key", ".spec.routingKey"),
    ),
)
POLICY: Final = Kind(
    "Policy",
    "policies",
    ("hrpol",),
    "Settings for the queues and exchanges whose names match a pattern.",
    PolicySpec,
    columns=(
        _CLUSTER,
        _VHOST,
        Column("Pattern", ".spec.pattern"),
        Column("Apply to", ".spec.applyTo"),
        Column("Priority", ".spec.priority", "integer"),
    ),
)
CONSUMER_SCALER: Final = Kind(
    "ConsumerScaler",
    "consumerscalers",
    ("hrs",),
    "More consumers while queues fill, fewer once they are empty.",
    ConsumerScalerSpec,
    ConsumerScalerStatus,
    (
        _CLUSTER,
        Column("Target", ".spec.targetRef.name"),
        Column("Min", ".spec.minReplicas", "integer"),
        Column("Max", ".spec.maxReplicas", "integer"),
        Column("Replicas", ".status.desiredReplicas", "integer"),
        Column("Backlog", ".status.backlog", "integer"),
        Column("Alarm", ".status.alarmStage", "integer", wide=True),
    ),
)
PIPELINE_RUN: Final = Kind(
    "PipelineRun",
    "pipelineruns",
    ("hrpr",),
    "A job of the data pipeline.",
    PipelineRunSpec,
    PipelineRunStatus,
    (_CLUSTER, Column("Job", ".spec.job"), Column("Phase", ".status.phase")),
    (RUN_NAME_RULE,),
)

KINDS: Final = (
    BROKER_CLUSTER,
    VHOST,
    USER,
    PERMISSION,
    EXCHANGE,
    QUEUE,
    BINDING,
    POLICY,
    CONSUMER_SCALER,
    PIPELINE_RUN,
)
