"""Objects beside the pods: service account, disruption budget, monitors."""

from __future__ import annotations

from headrace_operator.builders.cluster import Cluster, Manifest
from headrace_operator.builders.network import NODES_LABEL


def service_account(cluster: Cluster) -> Manifest:
    """Return the account of the pods, which may do nothing: they do not speak to the API server."""
    found = cluster.manifest("v1", "ServiceAccount", cluster.service_account)
    return {**found, "automountServiceAccountToken": False}


def disruption_budget(cluster: Cluster) -> Manifest:
    """Return the PodDisruptionBudget: who drains machines takes one node at a time."""
    found = cluster.manifest("policy/v1", "PodDisruptionBudget", cluster.name)
    found["spec"] = {"maxUnavailable": 1, "selector": {"matchLabels": cluster.selector}}
    return found


def monitor(cluster: Cluster) -> Manifest:
    """Return the ServiceMonitor or PodMonitor that the spec asks for."""
    spec = cluster.spec.monitoring
    found = cluster.manifest("monitoring.coreos.com/v1", spec.monitor, cluster.name, spec.labels)
    endpoints = [_endpoint(cluster, port) for port in cluster.metrics_ports]
    if spec.monitor == "PodMonitor":
        selector = {"matchLabels": cluster.selector}
        found["spec"] = {"selector": selector, "podMetricsEndpoints": endpoints}
    else:
        selector = {"matchLabels": {**cluster.selector, **NODES_LABEL}}
        found["spec"] = {"selector": selector, "endpoints": endpoints}
    return found


def _endpoint(cluster: Cluster, port: str) -> Manifest:
    monitoring, user = cluster.spec.monitoring, cluster.default_user_secret
    found: Manifest = {"port": port, "path": "/metrics", "interval": monitoring.interval}
    if not monitoring.anonymous:
        found["basicAuth"] = {
            "username": {"name": user, "key": "username"},
            "password": {"name": user, "key": "password"},
        }
    return found
