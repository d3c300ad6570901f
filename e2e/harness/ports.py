"""Ports of loopback for tests that run side by side, below those that kernels give by chance.

Each process of pytest-xdist takes them from a range of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from typing import Final

from headrace_broker.cli.local_cluster import GRPC_OFFSET, HTTP_OFFSET, NODES_MAX, PEER_OFFSET
from headrace_broker.model.shard import SHARD_PORTS

FIRST: Final = 24000  # from here to 32,000: below what kernels give to whoever asks for any port
PER_WORKER: Final = 2000
WORKERS: Final = 4

# AMQP ports of local clusters: 12,000 to 12,560. That is less than lies between any two of the
# offsets of their other listeners, so that no two clusters share a port; the highest is 22,560.
CLUSTER_FIRST: Final = 12000
CLUSTER_PORTS: Final = 20
CLUSTERS_PER_WORKER: Final = 7
OFFSETS: Final = (0, PEER_OFFSET, GRPC_OFFSET, HTTP_OFFSET)

# AMQP ports of local clusters whose nodes have shards: one cluster for each worker at a time. None
# of their ports, 9,000 to 19,080, is one of those above.
SHARDED_FIRST: Final = 9000
SHARDED_OFFSETS: Final = (*OFFSETS, *(PEER_OFFSET + SHARD_PORTS * shard for shard in (1, 2)))

_numbers = itertools.count(os.getpid() % PER_WORKER)
_clusters = itertools.count()


def _worker() -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


def free_cluster_port() -> int:
    """Return the AMQP port of the first node of a local cluster, all of whose ports are free.

    Raises:
        OSError: as many clusters as one process may have are running.
    """
    for number in itertools.islice(_clusters, CLUSTERS_PER_WORKER):
        place = _worker() * CLUSTERS_PER_WORKER + number % CLUSTERS_PER_WORKER
        port = CLUSTER_FIRST + place * CLUSTER_PORTS
        taken = (port + offset + node for offset in OFFSETS for node in range(NODES_MAX))
        if all(map(_is_free, taken)):
            return port
    raise OSError(f"{CLUSTERS_PER_WORKER} local clusters run already, or others use their ports")


def free_sharded_port() -> int:
    """Return the AMQP port of the first node of a local cluster with up to three shards a node.

    Raises:
        OSError: this process has such a cluster, or others use its ports.
    """
    port = SHARDED_FIRST + _worker() * CLUSTER_PORTS
    taken = (port + offset + node for offset in SHARDED_OFFSETS for node in range(NODES_MAX))
    if all(map(_is_free, taken)):
        return port
    raise OSError(f"ports of a cluster with shards, from {port} on, are taken")


def free_ports(count: int) -> list[int]:
    """Return unused ports of loopback, outside of those given by chance."""
    found: list[int] = []
    for number in itertools.islice(_numbers, PER_WORKER):
        port = FIRST + PER_WORKER * _worker() + number % PER_WORKER
        if _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"no {count} ports are free from {FIRST + PER_WORKER * _worker()} on")


def free_block(count: int) -> int:
    """Return the first of unused ports in a row."""
    found = free_ports(count)
    while found[-1] - found[0] != count - 1:
        found = [*found[1:], *free_ports(1)]
    return found[0]


def free_addresses(count: int) -> dict[int, str]:
    """Return host:port of nodes 1, 2, ..."""
    return {node: f"127.0.0.1:{port}" for node, port in enumerate(free_ports(count), 1)}
