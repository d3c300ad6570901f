"""Which nodes a new queue's replicas live on."""

from __future__ import annotations

from collections.abc import Mapping


def place(replicas: Mapping[int, int], preferred: int, wanted: int) -> tuple[int, ...]:
    """Choose different nodes: the preferred one, then those with the fewest replicas, ties by id.

    Args:
        replicas: how many replicas each known node has, by node id.
        preferred: node id, or 0; ignored when it is not known.
        wanted: 1 or more.

    Returns:
        min(wanted, number of nodes) node ids, the first leader first.
    """
    order = sorted(replicas, key=lambda node: (node != preferred, replicas[node], node))
    return tuple(order[:wanted])
