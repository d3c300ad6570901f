"""Everything that a cluster is made of, in the order in which it is applied.

Secrets are not among it, for they hold what was made by chance once: see `builders.secret`.
"""

from __future__ import annotations

from headrace_operator.builders.cluster import Cluster, Manifest
from headrace_operator.builders.config_file import config_map
from headrace_operator.builders.network import client_service, network_policy, node_service
from headrace_operator.builders.stateful_set import stateful_set
from headrace_operator.builders.surroundings import disruption_budget, monitor, service_account


def cluster_manifests(cluster: Cluster) -> list[Manifest]:
    """Return the manifests of a cluster."""
    spec = cluster.spec
    found = [] if spec.pod.service_account_name else [service_account(cluster)]
    found += [config_map(cluster), node_service(cluster), client_service(cluster)]
    if spec.disruption_budget.enabled:
        found.append(disruption_budget(cluster))
    if spec.network_policy.enabled:
        found.append(network_policy(cluster))
    if spec.monitoring.monitor != "None":
        found.append(monitor(cluster))
    return [*found, stateful_set(cluster)]


def unwanted(cluster: Cluster) -> list[tuple[str, str, str]]:
    """Return API version, kind and name of what an earlier spec may have asked for."""
    wanted = {(each["kind"], each["metadata"]["name"]) for each in cluster_manifests(cluster)}
    optional = [
        ("v1", "ServiceAccount", cluster.name),
        ("policy/v1", "PodDisruptionBudget", cluster.name),
        ("networking.k8s.io/v1", "NetworkPolicy", cluster.name),
        ("monitoring.coreos.com/v1", "ServiceMonitor", cluster.name),
        ("monitoring.coreos.com/v1", "PodMonitor", cluster.name),
    ]
    return [each for each in optional if each[1:] not in wanted]
