"""Clusters that resources name: whether they may, and the way to the brokers."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from headrace_operator.broker_api import BrokerApi
from headrace_operator.builders.cluster import Cluster
from headrace_operator.connection import connect
from headrace_operator.expected_error import ExpectedError
from headrace_operator.operator_context import Operator
from headrace_operator.reconciler import Key
from headrace_operator.specs.cluster import BrokerClusterSpec, BrokerClusterStatus
from headrace_operator.specs.kind import BROKER_CLUSTER

KEEP_SECONDS: Final = 5.0  # for which many resources share one look at their cluster

CLUSTER_MISSING: Final = "ClusterMissing"
NOT_ALLOWED: Final = "NotAllowed"
CLUSTER_NOT_READY: Final = "ClusterNotReady"


class FoundCluster(NamedTuple):
    """A cluster that was found, and the way to its brokers.

    Attributes:
        cluster: as the builders see it.
        status: of its resource.
        api: of its brokers.
    """

    cluster: Cluster
    status: BrokerClusterStatus
    api: BrokerApi


class ClusterUnreachableError(ExpectedError):
    """A resource does not get to its cluster.

    Attributes:
        reason: one word.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ClusterFinder:
    """Finds clusters; results are kept for a few seconds."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._kept: dict[Key, tuple[float, FoundCluster]] = {}

    async def find(self, reference: dict[str, Any], namespace: str) -> FoundCluster:
        """Return the way to a cluster.

        Args:
            reference: the `clusterRef` of a resource.
            namespace: of the resource.

        Raises:
            ClusterUnreachableError: no such cluster, or it may not be named, or is not founded.
            KubeError: the API server refuses, or does not answer.
            BrokerError: the cluster's administrator is not known.
        """
        key = Key(reference.get("namespace") or namespace, reference["name"])
        now = self._operator.now().timestamp()
        at, way = self._kept.get(key, (0.0, None))
        if way is None or not 0 <= now - at < KEEP_SECONDS:
            self._kept = {
                each: kept for each, kept in self._kept.items() if 0 <= now - kept[0] < KEEP_SECONDS
            }
            way = await self._look(key)
            self._kept[key] = (now, way)
        if not way.cluster.spec.allows(key.namespace, namespace):
            text = f"BrokerCluster {key.namespace}/{key.name} does not allow namespace {namespace}"
            raise ClusterUnreachableError(NOT_ALLOWED, text)
        if not way.status.formed:
            text = f"BrokerCluster {key.namespace}/{key.name} has not been founded yet"
            raise ClusterUnreachableError(CLUSTER_NOT_READY, text)
        return way

    def forget(self, key: Key) -> None:
        """Forget the cached result of a changed cluster."""
        self._kept.pop(key, None)

    async def _look(self, key: Key) -> FoundCluster:
        body = await self._operator.resource(BROKER_CLUSTER, *key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            text = f"BrokerCluster {key.namespace}/{key.name} is not there"
            raise ClusterUnreachableError(CLUSTER_MISSING, text)
        spec = msgspec.convert(body["spec"], BrokerClusterSpec)
        status = msgspec.convert(body.get("status") or {}, BrokerClusterStatus)
        image = self._operator.settings.broker_image
        uid = body["metadata"]["uid"]
        count = spec.replicas
        cluster = Cluster(key.name, key.namespace, uid, spec, image, count, count)
        pods = await self._operator.kube.select("v1", "Pod", key.namespace, cluster.selector)
        return FoundCluster(cluster, status, await connect(self._operator, cluster, pods))
