"""Number of processes that each node of a cluster has."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace_operator.builders.cluster import SHARD_PORTS
from headrace_operator.builders.quantity import quantity_number
from headrace_operator.specs.cluster import (
    NODES_MAX,
    SHARDS_VERSION,
    BrokerClusterSpec,
    BrokerClusterStatus,
)

PORT_MAX: Final = 65_535
CORES_MIN: Final = 4  # of the CPU limit: below it a node is one process, as the broker has it
NODES_MIN: Final = 6  # that a cluster may grow to, or to twice its nodes, with shards by its limit


def shard_count(spec: BrokerClusterSpec, status: BrokerClusterStatus, has_data: bool) -> int:
    """Return how many shards the nodes are to have, never fewer than they have had.

    A cluster that is founded does not change with its CPU limit. It gets no shards before its
    cluster version allows for them, nor while they and the nodes that there are would be too many.
    Where it has data already, as after its status was lost, the CPU limit says nothing either.
    """
    if status.founders is None:
        default = 1 if has_data else _of_limit(spec)
        wanted = min(spec.shards or default, NODES_MAX // spec.replicas)
        return max(wanted if ports_fit(spec, wanted) else 1, status.shards)
    if status.formed and (status.cluster_version or 1) < SHARDS_VERSION:
        return status.shards
    wanted = max(spec.shards or 1, status.shards)
    nodes = max(spec.replicas if status.formed else status.founders, status.replicas)
    fits = wanted * nodes <= NODES_MAX and ports_fit(spec, wanted)
    return wanted if fits else status.shards


def shards_problem(spec: BrokerClusterSpec, shards: int) -> str:
    """Return why nodes do not get the shards or ports, or the cluster the nodes, of its spec."""
    if spec.replicas * shards > NODES_MAX:
        return f"{spec.replicas} nodes of {shards} shards are more than {NODES_MAX}"
    wanted = max(spec.shards or 1, shards)
    if not ports_fit(spec, wanted):
        return f"listeners: a port of one of {wanted} shards is taken, or above {PORT_MAX}"
    if wanted == shards:
        return ""
    return f"{wanted} shards wait for cluster version {SHARDS_VERSION}, or for nodes to leave"


def ports_fit(spec: BrokerClusterSpec, shards: int) -> bool:
    """Return whether all processes of a node have ports of their own; others are not applied."""
    listeners = spec.listeners
    ports = [each for each in msgspec.structs.astuple(listeners) if isinstance(each, int)]
    own = (listeners.cluster, listeners.frames, listeners.metrics)
    ports += [port + shard * SHARD_PORTS for shard in range(1, shards) for port in own]
    return len(set(ports)) == len(ports) and max(ports) <= PORT_MAX


def _of_limit(spec: BrokerClusterSpec) -> int:
    limit = (spec.resources.limits or {}).get("cpu")
    cores = quantity_number(limit) if limit is not None else 0
    if cores < CORES_MIN:
        return 1
    return max(min(int(cores) // 2, NODES_MAX // max(2 * spec.replicas, NODES_MIN)), 1)
