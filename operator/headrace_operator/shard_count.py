"""Number of processes that each node of a cluster has."""

from __future__ import annotations

from typing import Final

from headrace_operator.builders.quantity import quantity_number
from headrace_operator.specs.cluster import (
    NODES_MAX,
    SHARDS_MAX,
    SHARDS_VERSION,
    BrokerClusterSpec,
    BrokerClusterStatus,
)

CORES_MIN: Final = 4  # of the CPU limit: below it a node is one process, as the broker has it


def shard_count(spec: BrokerClusterSpec, status: BrokerClusterStatus) -> int:
    """Return how many shards the nodes are to have, never fewer than they have had.

    A cluster that has been founded does not change with its CPU limit, and gets no shards before
    its cluster version allows for them.
    """
    if not status.formed:
        wanted = spec.shards if spec.shards is not None else _of_limit(spec)
        return max(wanted, status.shards)
    if spec.shards is None or (status.cluster_version or 1) < SHARDS_VERSION:
        return status.shards
    return max(spec.shards, status.shards)


def _of_limit(spec: BrokerClusterSpec) -> int:
    limit = (spec.resources.limits or {}).get("cpu")
    cores = quantity_number(limit) if limit is not None else 0
    if cores < CORES_MIN:
        return 1
    return max(min(int(cores) // 2, SHARDS_MAX, NODES_MAX // spec.replicas), 1)
