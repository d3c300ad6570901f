"""The parts of a BrokerCluster about its pods."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from headrace_operator.specs.field import (
    LIST_MAX,
    Annotations,
    IntOrQuantity,
    Labels,
    LocalReference,
    ObjectName,
    Quantity,
    Rule,
    Spec,
)

_ENDPOINT: Final = r"^https?://[A-Za-z0-9.:_\[\]-]{1,253}/?$"

Quantities = Annotated[dict[str, IntOrQuantity], Meta(max_length=16)]
Objects = Annotated[list[dict[str, Any]], Meta(max_length=LIST_MAX)]


class Resources(Spec, frozen=True, kw_only=True):
    """Resource requests and limits of a pod.

    Attributes:
        requests: by name, such as cpu and memory.
        limits: likewise; by the memory limit a node decides when it raises its memory alarm.
    """

    requests: Quantities | None = None
    limits: Quantities | None = None


class Storage(Spec, frozen=True, kw_only=True):
    """Storage of a node's data.

    Attributes:
        size: of each node's volume; may grow where the storage class allows it, and never shrinks.
        storage_class_name: of the volumes; absent for the cluster's default.
        ephemeral: an emptyDir in place of a volume. A pod that is moved has lost its data then, and
            its node joins again as a new member.
        when_deleted: what becomes of the volumes when the BrokerCluster is deleted.
    """

    RULES = (
        Rule(
            "quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0",
            "size cannot shrink: add a cluster with smaller volumes, or scale in",
        ),
        Rule("self.ephemeral == oldSelf.ephemeral", "ephemeral cannot be changed"),
        Rule(
            "has(self.storageClassName) == has(oldSelf.storageClassName) && "
            "(!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
            "storageClassName cannot be changed",
        ),
    )

    size: Quantity = "10Gi"
    storage_class_name: ObjectName | None = None
    ephemeral: bool = False
    when_deleted: Literal["Delete", "Retain"] = "Delete"


class Probes(Spec, frozen=True, kw_only=True):
    """Health probes of Kubernetes.

    Attributes:
        readiness: over which protocol it is asked whether a node takes clients. gRPC probes speak
            no TLS, so a cluster without listeners in the clear is asked over HTTP.
        period_seconds: between two questions.
        timeout_seconds: for an answer.
        startup_seconds: for the recovery of a node's log, before it is started anew.
        failure_threshold: unanswered questions after which a node counts as dead.
    """

    readiness: Literal["HTTP", "GRPC"] = "HTTP"
    period_seconds: Annotated[int, Meta(ge=1, le=300)] = 5
    timeout_seconds: Annotated[int, Meta(ge=1, le=60)] = 5
    startup_seconds: Annotated[int, Meta(ge=10, le=7200)] = 600
    failure_threshold: Annotated[int, Meta(ge=1, le=100)] = 6


class Pod(Spec, frozen=True, kw_only=True):
    """Settings of a cluster's pods.

    Attributes:
        labels: of the pods, besides those of the operator.
        annotations: of the pods.
        image_pull_secrets: for the image.
        node_selector: labels of the machines that pods may be on.
        tolerations: as in a pod.
        affinity: as in a pod, in place of `antiAffinity`.
        anti_affinity: whether two nodes of a cluster are kept on different machines: if possible,
            always, or not at all.
        topology_spread_constraints: as in a pod, in place of an even spread over zones.
        priority_class_name: as in a pod.
        service_account_name: an account that is there, in place of one made for the cluster. Pods
            do not speak to the API server.
        termination_grace_period_seconds: for a node to hand over its queues and to tell its
            clients; it needs some ten.
        pre_stop_sleep_seconds: between the moment when a pod is no endpoint any more and that when
            its node is told to stop, so that nobody is sent to it meanwhile.
        extra_env: variables of the container, such as HEADRACE_RAFT_TICK_MS; they replace those of
            the operator, but for HEADRACE_NODE_SHARDS.
        override: merged into the pod template at last, for what is not foreseen here. Lists of
            objects with names are merged by name; an empty list clears.
    """

    RULES = (
        Rule(
            "self.preStopSleepSeconds + 15 <= self.terminationGracePeriodSeconds",
            "terminationGracePeriodSeconds must be at least 15 more than preStopSleepSeconds",
        ),
    )

    labels: Labels | None = None
    annotations: Annotations | None = None
    image_pull_secrets: Annotated[list[LocalReference], Meta(max_length=16)] | None = None
    node_selector: Labels | None = None
    tolerations: Objects | None = None
    affinity: dict[str, Any] | None = None
    anti_affinity: Literal["Preferred", "Required", "None"] = "Preferred"
    topology_spread_constraints: Objects | None = None
    priority_class_name: ObjectName | None = None
    service_account_name: ObjectName | None = None
    termination_grace_period_seconds: Annotated[int, Meta(ge=15, le=3600)] = 60
    pre_stop_sleep_seconds: Annotated[int, Meta(ge=0, le=60)] = 5
    extra_env: Annotated[list[dict[str, Any]], Meta(max_length=LIST_MAX)] | None = None
    override: dict[str, Any] | None = None


class ClientService(Spec, frozen=True, kw_only=True):
    """The Service that clients connect to.

    Attributes:
        type: as in a Service.
        annotations: of the Service.
        labels: of the Service, besides those of the operator.
    """

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    annotations: Annotations | None = None
    labels: Labels | None = None


class DisruptionBudget(Spec, frozen=True, kw_only=True):
    """Number of nodes that may be evicted at once.

    Attributes:
        enabled: whether there is a PodDisruptionBudget. It allows one node at a time.
    """

    enabled: bool = True


class NetworkAccess(Spec, frozen=True, kw_only=True):
    """Network access to a cluster.

    Attributes:
        enabled: whether there is a NetworkPolicy: clients reach the listeners for clients, and only
            nodes of the cluster reach that between nodes.
        clients_from: as `from` in a NetworkPolicy; absent for everybody.
    """

    enabled: bool = True
    clients_from: Objects | None = None


class Tracing(Spec, frozen=True, kw_only=True):
    """Spans of messages, for OpenTelemetry.

    Attributes:
        endpoint: of a collector that takes OTLP over gRPC, such as http://collector:4317; absent
            for none.
        percent: of the traces that publishers sample, those that the broker makes spans of.
    """

    endpoint: Annotated[str, Meta(max_length=512, pattern=_ENDPOINT)] | None = None
    percent: Annotated[int, Meta(ge=0, le=100)] = 100


class Monitoring(Spec, frozen=True, kw_only=True):
    """Metrics for Prometheus, and objects of the Prometheus operator.

    Attributes:
        monitor: what it is told by. Its custom resources have to be there.
        interval: between two scrapes.
        per_object: whether there are figures of single queues and connections, too.
        anonymous: whether metrics are read without a log-in; else by the administrator's.
        labels: of the monitor, by which a Prometheus finds it.
        tracing: spans of messages.
    """

    monitor: Literal["None", "ServiceMonitor", "PodMonitor"] = "None"
    interval: Annotated[str, Meta(pattern="^[0-9]{1,4}(s|m)$")] = "15s"
    per_object: bool = False
    anonymous: bool = True
    labels: Labels | None = None
    tracing: Tracing = Tracing()
