"""Services, and network access to them."""

from __future__ import annotations

from typing import Final

from headrace_operator.builders.cluster import OPERATOR, Cluster, Manifest
from headrace_operator.specs.kind import GROUP

# By it a ServiceMonitor finds this Service and not the other one, which leads to the same pods.
NODES_LABEL: Final = {f"{GROUP}/service": "nodes"}


def node_service(cluster: Cluster) -> Manifest:
    """Return the headless Service: nodes find each other by it before they are ready."""
    found = cluster.manifest("v1", "Service", cluster.node_service, NODES_LABEL)
    found["spec"] = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": cluster.selector,
        "ports": _ports({**cluster.inner_ports, **cluster.ports}),
    }
    return found


def client_service(cluster: Cluster) -> Manifest:
    """Return the Service that clients connect to: it leads to nodes that take them."""
    service = cluster.spec.service
    found = cluster.manifest("v1", "Service", cluster.client_service, service.labels)
    if service.annotations:
        found["metadata"]["annotations"] = service.annotations
    found["spec"] = {
        "type": service.type,
        "selector": cluster.selector,
        "ports": _ports(cluster.ports),
    }
    return found


def _ports(ports: dict[str, int]) -> list[Manifest]:
    return [
        {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
        for name, port in ports.items()
    ]


def network_policy(cluster: Cluster) -> Manifest:
    """Return the NetworkPolicy: only nodes reach the listeners between nodes.

    Metrics are for pods, whatever their namespace. The operator reaches the APIs even where
    `networkPolicy.clientsFrom` does not name it.
    """
    policy = cluster.spec.network_policy
    found = cluster.manifest("networking.k8s.io/v1", "NetworkPolicy", cluster.name)
    clients: Manifest = {"ports": _policy_ports(cluster.ports)}
    rules = [clients]
    if policy.clients_from is not None:
        clients["from"] = policy.clients_from
        operator = {"matchLabels": {"app.kubernetes.io/name": OPERATOR}}
        web = {name: port for name, port in cluster.ports.items() if not name.startswith("amqp")}
        peer = {"namespaceSelector": {}, "podSelector": operator}
        rules.append({"from": [peer], "ports": _policy_ports(web)})
    metrics = _policy_ports(cluster.metrics_ports)
    rules.append({"from": [{"namespaceSelector": {}}], "ports": metrics})
    rules.append(
        {
            "from": [{"podSelector": {"matchLabels": cluster.selector}}],
            "ports": _policy_ports(cluster.shard_ports),
        }
    )
    found["spec"] = {
        "podSelector": {"matchLabels": cluster.selector},
        "policyTypes": ["Ingress"],
        "ingress": rules,
    }
    return found


def _policy_ports(ports: dict[str, int]) -> list[Manifest]:
    return [{"protocol": "TCP", "port": port} for port in ports.values()]
