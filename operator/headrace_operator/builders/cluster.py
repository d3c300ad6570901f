"""A cluster as the builders see it: its resource, and how all that belongs to it is called."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from headrace_operator.specs.cluster import BrokerClusterSpec
from headrace_operator.specs.kind import BROKER_CLUSTER, GROUP

Manifest = dict[str, Any]

APP: Final = "headrace"
COMPONENT: Final = "broker"
OPERATOR: Final = "headrace-operator"
CLUSTER_LABEL: Final = f"{GROUP}/cluster"
SHARD_PORTS: Final = 100  # between the ports of a shard and those of the next, as the broker has it
CONFIG_HASH_ANNOTATION: Final = f"{GROUP}/config-hash"


class Cluster(NamedTuple):
    """A BrokerCluster, with values that are decided elsewhere.

    Attributes:
        name: of the resource.
        namespace: of the resource.
        uid: of the resource.
        spec: what is wanted.
        default_image: of brokers whose spec names none.
        replicas: pods that there should be now: `spec.replicas` but while the cluster is founded,
            or nodes come and go, one after the other.
        nodes: nodes that the configuration names, at least `replicas`. All founders have to be
            given the same ones, so it is not changed before the cluster is founded.
        claim_size: of volumes in the StatefulSet that is there, which cannot be changed in it; ""
            for that of the spec. Volumes that are to grow are told so themselves.
        proof_required: nodes refuse those that do not prove to know the join secret; not before all
            pods have it.
        shards: processes of each node.
    """

    name: str
    namespace: str
    uid: str
    spec: BrokerClusterSpec
    default_image: str
    replicas: int
    nodes: int
    claim_size: str = ""
    proof_required: bool = True
    shards: int = 1

    @property
    def image(self) -> str:
        """The broker's image."""
        return self.spec.image or self.default_image

    @property
    def node_service(self) -> str:
        """The headless Service, which gives each node a name."""
        return f"{self.name}-nodes"

    @property
    def client_service(self) -> str:
        """The Service that clients connect to."""
        return self.name

    @property
    def config_map(self) -> str:
        """The ConfigMap with the configuration file."""
        return f"{self.name}-config"

    @property
    def default_user_secret(self) -> str:
        """The Secret with the administrator's name and password."""
        return self.spec.default_user.secret_name or f"{self.name}-default-user"

    @property
    def join_secret(self) -> str:
        """The Secret by which nodes know each other."""
        return f"{self.name}-join"

    @property
    def node_authority_secret(self) -> str:
        """The Secret with the authority of nodes' certificates, which no pod is given."""
        return f"{self.name}-node-ca"

    @property
    def node_tls_secret(self) -> str:
        """The Secret with the certificates that nodes show each other."""
        return self.spec.tls.internal.secret_name or f"{self.name}-node-tls"

    @property
    def client_authority_secret(self) -> str:
        """The Secret with the authority of the certificates that clients are shown."""
        return f"{self.name}-client-ca"

    @property
    def client_tls_secret(self) -> str:
        """The Secret with the certificate that clients are shown."""
        return self.spec.tls.clients.secret_name or f"{self.name}-client-tls"

    @property
    def service_account(self) -> str:
        """The account of the pods."""
        return self.spec.pod.service_account_name or self.name

    @property
    def serves_tls(self) -> bool:
        """True if clients are served over TLS."""
        return self.spec.tls.clients.mode != "Disabled"

    @property
    def serves_plain(self) -> bool:
        """True if clients are served without TLS."""
        return self.spec.tls.clients.plain

    def pod(self, ordinal: int) -> str:
        """Return the name of a pod, which is that of its node, too."""
        return f"{self.name}-{ordinal}"

    def node_host(self, ordinal: int) -> str:
        """Return the name by which the other nodes find a node."""
        return f"{self.pod(ordinal)}.{self.node_service}.{self.service_domain}"

    @property
    def service_domain(self) -> str:
        """Domain behind the name of a Service of this namespace."""
        domain = self.spec.cluster_domain
        return f"{self.namespace}.svc.{domain}" if domain else f"{self.namespace}.svc"

    @property
    def client_host(self) -> str:
        """The name that clients connect to."""
        return f"{self.client_service}.{self.service_domain}"

    @property
    def ports(self) -> dict[str, int]:
        """The ports that clients are served on, by name."""
        listeners = self.spec.listeners
        plain = {"amqp": listeners.amqp, "http": listeners.http, "grpc": listeners.grpc}
        secure = {"amqps": listeners.amqps, "https": listeners.https, "grpcs": listeners.grpcs}
        return {**(plain if self.serves_plain else {}), **(secure if self.serves_tls else {})}

    @property
    def inner_ports(self) -> dict[str, int]:
        """The internal ports, by name."""
        return {**self.metrics_ports, **self.node_ports}

    @property
    def metrics_ports(self) -> dict[str, int]:
        """The ports for metrics, by name: each shard tells its own."""
        first = self.spec.listeners.metrics
        return {
            f"metrics-{shard}" if shard else "metrics": first + shard * SHARD_PORTS
            for shard in range(self.shards)
        }

    @property
    def node_ports(self) -> dict[str, int]:
        """The ports that are for the other nodes alone, by name."""
        if self.spec.config.cluster.transport == "grpc":
            return {"cluster": self.spec.listeners.cluster}
        return self.every_node_port

    @property
    def every_node_port(self) -> dict[str, int]:
        """Ports of both transports: while it changes, pods of either run."""
        listeners = self.spec.listeners
        return {"cluster": listeners.cluster, "frames": listeners.frames}

    @property
    def shard_ports(self) -> dict[str, int]:
        """`every_node_port` of all shards."""
        return {
            f"{name}-{shard}": port + shard * SHARD_PORTS
            for shard in range(self.shards)
            for name, port in self.every_node_port.items()
        }

    @property
    def selector(self) -> dict[str, str]:
        """Labels by which the pods of this cluster are found; they never change."""
        return {
            "app.kubernetes.io/name": APP,
            "app.kubernetes.io/instance": self.name,
            "app.kubernetes.io/component": COMPONENT,
            CLUSTER_LABEL: self.name,
        }

    @property
    def selector_text(self) -> str:
        """The same as text, for the status, by which autoscalers find the pods."""
        return ",".join(f"{key}={value}" for key, value in self.selector.items())

    @property
    def labels(self) -> dict[str, str]:
        """Labels of everything that is made for this cluster."""
        return {**self.selector, "app.kubernetes.io/managed-by": OPERATOR}

    def manifest(
        self, api_version: str, kind: str, name: str, labels: dict[str, str] | None = None
    ) -> Manifest:
        """Return the beginning of a manifest: who it is, and to whom it belongs.

        Args:
            api_version: of the kind.
            kind: of the object.
            name: of the object.
            labels: besides those that everything has.
        """
        return {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": {**(labels or {}), **self.labels},
                "ownerReferences": [self.owner_reference],
            },
        }

    @property
    def owner_reference(self) -> Manifest:
        """The reference by which Kubernetes deletes what belongs to a cluster together with it."""
        return BROKER_CLUSTER.owner(self.name, self.uid)


def node_id(ordinal: int) -> int:
    """Return the id of the node in a pod."""
    return ordinal + 1


def ordinal_of(pod: str) -> int:
    """Return the number at the end of a pod's name.

    Raises:
        ValueError: there is none.
    """
    return int(pod.rpartition("-")[2])
