"""The cluster version of brokers, whose raising ends an upgrade."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace_operator.broker_api import BrokerApi
from headrace_operator.builders.cluster import Cluster
from headrace_operator.operator_context import Operator

AUTOMATIC = "Automatic"


class ClusterVersion(NamedTuple):
    """The answer of a node to /api/cluster/version.

    Attributes:
        version: what the cluster uses.
        newest: the newest that the node knows.
        problem: why it cannot be raised to that, "" if it can or is there.
    """

    version: int
    newest: int
    problem: str


async def cluster_version(api: BrokerApi) -> ClusterVersion | None:
    """Return the version of a cluster, None where the brokers are of before there was one.

    Raises:
        BrokerError: a node refuses, or none answers.
    """
    found = await api.get("cluster", "version")
    if not isinstance(found, dict):
        return None
    return ClusterVersion(found["version"], found["newest"], found["problem"])


async def finish_upgrade(
    operator: Operator,
    body: dict[str, Any],
    cluster: Cluster,
    api: BrokerApi,
    found: ClusterVersion | None,
) -> None:
    """Raise the cluster version where the spec says so, once every node knows a newer one.

    To be called when all nodes run the wanted image and serve.

    Raises:
        BrokerError: a node refuses, or none answers.
    """
    if cluster.spec.rollout.finish_upgrade != AUTOMATIC:
        return
    if found is None or found.version >= found.newest or found.problem:
        return
    await api.post(None, "cluster", "version", "raise")
    text = f"cluster version {found.newest}: an earlier release cannot be started any more"
    operator.post_event(body, "UpgradeFinished", text)
