"""`BrokerCluster`: nodes that share one catalog, and everything that they run on."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from headrace_operator.specs.cluster_config import BrokerConfig, FlowLimits, Listeners, unique_ports
from headrace_operator.specs.cluster_pod import (
    ClientService,
    DisruptionBudget,
    Monitoring,
    NetworkAccess,
    Pod,
    Probes,
    Resources,
    Storage,
)
from headrace_operator.specs.cluster_tls import Tls
from headrace_operator.specs.field import (
    IMMUTABLE,
    LIST_MAX,
    SET,
    ObjectName,
    RegularExpression,
    Rule,
    Spec,
    keyed,
)
from headrace_operator.specs.status import Status, Timestamp

NODES_MAX = 16  # of a cluster, as the broker has it; of nodes with shards, these together
SHARDS_MAX = 8  # processes of a node, as the broker has it
SHARDS_VERSION = 2  # cluster version from which on nodes may have shards
NAME_MAX = 40  # letters of a cluster's name: what is named after it stays within 63

DEFAULT_RESOURCES = Resources(requests={"cpu": "500m", "memory": "1Gi"}, limits={"memory": "1Gi"})


class PortedListeners(Listeners, frozen=True, kw_only=True):
    """Ports of nodes; those over TLS exist if `tls.clients.mode` says so."""

    RULES = (unique_ports(),)


class Scaling(Spec, frozen=True, kw_only=True):
    """Handling of queues when nodes are added.

    Attributes:
        grow_queues: whether replicated queues get replicas on nodes that come: Fill gives those
            that have fewer than they were declared with one, All gives every queue one.
        queue_pattern: queues that this is for.
    """

    grow_queues: Literal["None", "Fill", "All"] = "Fill"
    queue_pattern: RegularExpression = ".*"


class Rollout(Spec, frozen=True, kw_only=True):
    """Time limit of a rollout step.

    What takes longer is said in the status, and waited for anew; a pod is never stopped while a
    queue would lose its quorum by it.

    Attributes:
        drain_seconds: for the leaders of a node to move elsewhere.
        catch_up_seconds: for a node that was restarted to have everything again.
        move_seconds: for the replicas of a node that leaves to move elsewhere.
        finish_upgrade: whether the cluster version is raised by the operator once all nodes of a
            later release serve. Until it is raised, the release before can be put back.
    """

    drain_seconds: Annotated[int, Meta(ge=1, le=3600)] = 60
    catch_up_seconds: Annotated[int, Meta(ge=10, le=86_400)] = 900
    move_seconds: Annotated[int, Meta(ge=10, le=86_400)] = 3600
    finish_upgrade: Literal["Manual", "Automatic"] = "Manual"


class DefaultUser(Spec, frozen=True, kw_only=True):
    """The administrator that a new cluster begins with, by whom the operator speaks to it.

    Attributes:
        secret_name: a Secret with `username` and `password`; absent for one that is made, called
            `NAME-default-user`. A password that is changed there becomes the user's.
    """

    secret_name: Annotated[ObjectName, IMMUTABLE] | None = None


class BrokerClusterSpec(Spec, frozen=True, kw_only=True):
    """Wanted state of a cluster.

    Attributes:
        replicas: nodes. An odd number of them tolerates most for what it costs.
        shards: processes of each node, which use a core each. Absent, a cluster of up to four nodes
            is founded with two where the CPU limit is four cores or more, and with one otherwise.
            It may be raised, and never lowered. Replicas times shards are 16 at most.
        image: of the broker; absent for that which the operator was installed with.
        image_pull_policy: as in a pod.
        resources: what a pod asks for and may use.
        storage: where nodes keep their data.
        listeners: where nodes listen.
        tls: certificates.
        config: the broker's configuration file.
        flow_limits: limits of flow control, set at run time.
        pod: what is special about the pods.
        probes: how Kubernetes asks whether a node is well.
        service: the Service that clients connect to.
        disruption_budget: how many nodes may be taken away at once.
        network_policy: who may reach the cluster.
        monitoring: what Prometheus may read, and what its operator is told.
        scaling: what becomes of queues when nodes come.
        rollout: how long a step of a change is waited for.
        default_user: the administrator that the cluster begins with.
        allowed_namespaces: whose resources (queues, users and so on) may name this cluster besides
            those of its own namespace; `*` for all.
        cluster_domain: of the cluster's DNS, such as cluster.local, where names of Services are not
            found without.
        paused: the operator looks, and changes nothing, as with the annotation
            `headrace.dev/paused: "true"`.
    """

    RULES = (
        Rule(
            f"!has(self.shards) || self.replicas * self.shards <= {NODES_MAX}",
            f"replicas times shards are {NODES_MAX} at most",
        ),
        Rule(
            "!has(self.shards) || !has(oldSelf.shards) || self.shards >= oldSelf.shards",
            "shards cannot be lowered",
        ),
    )

    replicas: Annotated[int, Meta(ge=1, le=NODES_MAX)] = 3
    shards: Annotated[int, Meta(ge=1, le=SHARDS_MAX)] | None = None
    image: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    resources: Resources = DEFAULT_RESOURCES
    storage: Storage = Storage()
    listeners: PortedListeners = PortedListeners()
    tls: Tls = Tls()
    config: BrokerConfig = BrokerConfig()
    flow_limits: FlowLimits = FlowLimits()
    pod: Pod = Pod()
    probes: Probes = Probes()
    service: ClientService = ClientService()
    disruption_budget: DisruptionBudget = DisruptionBudget()
    network_policy: NetworkAccess = NetworkAccess()
    monitoring: Monitoring = Monitoring()
    scaling: Scaling = Scaling()
    rollout: Rollout = Rollout()
    default_user: DefaultUser = DefaultUser()
    allowed_namespaces: (
        Annotated[
            list[
                Annotated[str, Meta(max_length=63, pattern=r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$")]
            ],
            SET,
            Meta(max_length=LIST_MAX),
        ]
        | None
    ) = None
    cluster_domain: Annotated[ObjectName, IMMUTABLE] | None = None
    paused: bool = False

    def allows(self, own: str, namespace: str) -> bool:
        """Return whether resources of a namespace may name a cluster."""
        allowed = self.allowed_namespaces or []
        return namespace == own or "*" in allowed or namespace in allowed


class NodeStatus(Spec, frozen=True, kw_only=True):
    """One node.

    Attributes:
        name: of the node and its pod.
        id: in the cluster.
        state: as the broker says: running, draining, down, joining.
        ready: whether its pod is.
        config: hash of the configuration that it runs with.
        queues_led: queues that it leads.
        replicas: of queues that it has.
    """

    name: ObjectName
    id: Annotated[int, Meta(ge=1, le=1023)]
    state: Annotated[str, Meta(max_length=64)] = ""
    ready: bool = False
    config: Annotated[str, Meta(max_length=64)] = ""
    queues_led: Annotated[int, Meta(ge=0)] = 0
    replicas: Annotated[int, Meta(ge=0)] = 0


class AlarmStatus(Spec, frozen=True, kw_only=True):
    """One alarm that is on.

    Attributes:
        node: where.
        resource: memory or disk.
        stage: 1 while bodies leave memory, 2 while publishers are blocked.
        since: when it was set.
        message: the figures.
    """

    node: ObjectName
    resource: Annotated[str, Meta(max_length=64)]
    stage: Annotated[int, Meta(ge=1, le=2)] = 2
    since: Timestamp | None = None
    message: Annotated[str, Meta(max_length=1024)] = ""


class StepStatus(Spec, frozen=True, kw_only=True):
    """The step of a change that is under way.

    Attributes:
        name: what is done, for instance Drain, Restart, CatchUp, MoveReplicas, Forget.
        node: for which node.
        since: when it began.
        until: when its time is over, and the status says so.
        message: what is waited for.
    """

    name: Annotated[str, Meta(max_length=64)]
    node: Annotated[str, Meta(max_length=253)] = ""
    since: Timestamp | None = None
    until: Timestamp | None = None
    message: Annotated[str, Meta(max_length=1024)] = ""


class CertificateStatus(Spec, frozen=True, kw_only=True):
    """A certificate of the operator's.

    Attributes:
        name: of the Secret.
        not_after: when it ends.
        renew_at: when it is made anew.
    """

    name: ObjectName
    not_after: Timestamp
    renew_at: Timestamp


class BrokerClusterStatus(Status, frozen=True, kw_only=True):
    """State of a cluster.

    Attributes:
        replicas: pods that there are.
        ready_replicas: pods that are ready.
        selector: of the pods, as text.
        founders: nodes that the cluster was founded with. Until `formed` it is not scaled.
        shards: processes of each node.
        formed: whether the cluster has been founded.
        version: of the brokers.
        cluster_version: what all of them use; raising it ends an upgrade.
        nodes: the nodes.
        alarms: alarms that are on.
        step: what is being done.
        certificates: of the operator's authority.
        default_user_secret: the Secret with the administrator's name and password.
        client_service: the Service to connect to.
    """

    replicas: Annotated[int, Meta(ge=0)] = 0
    ready_replicas: Annotated[int, Meta(ge=0)] = 0
    selector: Annotated[str, Meta(max_length=1024)] | None = None
    founders: Annotated[int, Meta(ge=1, le=NODES_MAX)] | None = None
    shards: Annotated[int, Meta(ge=1, le=SHARDS_MAX)] = 1
    formed: bool = False
    version: Annotated[str, Meta(max_length=64)] | None = None
    cluster_version: Annotated[int, Meta(ge=1)] | None = None
    nodes: Annotated[list[NodeStatus], keyed("name"), Meta(max_length=LIST_MAX)] = field(
        default_factory=list
    )
    alarms: Annotated[list[AlarmStatus], keyed("node", "resource"), Meta(max_length=LIST_MAX)] = (
        field(default_factory=list)
    )
    step: StepStatus | None = None
    certificates: Annotated[list[CertificateStatus], keyed("name"), Meta(max_length=16)] = field(
        default_factory=list
    )
    default_user_secret: ObjectName | None = None
    client_service: ObjectName | None = None


# Of the whole resource: its pods and Services are named after it.
NAME_RULE = Rule(
    f"self.metadata.name.size() <= {NAME_MAX} && "
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    f"the name has at most {NAME_MAX} lower-case letters, digits and '-', and begins with a letter",
)
