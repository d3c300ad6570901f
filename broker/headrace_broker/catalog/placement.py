"""Which nodes a new queue's replicas live on."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def place(
    replicas: Mapping[int, int], preferred: int, wanted: int, drained: Collection[int] = ()
) -> tuple[int, ...]:
    """Choose different nodes: the preferred one, then those with the fewest replicas, ties by id.

    Args:
        replicas: how many replicas each known node has, by node id.
        preferred: node id, or 0; ignored when it is not known.
        wanted: 1 or more.
        drained: node ids that are taken only where there are no others.

    Returns:
        min(wanted, number of nodes) node ids, the first leader first.
    """
    order = sorted(
        replicas,
        key=lambda node: (node in drained, node != preferred, replicas[node], node),
    )
    return tuple(order[:wanted])


def lead_by_fewest(
    members: tuple[int, ...], leads: Mapping[int, int], drained: Collection[int] = ()
) -> tuple[int, ...]:
    """Put first the node that is first for the fewest queues, ties by id; the rest keeps its order.

    Args:
        members: node ids of a new queue's replicas.
        leads: for how many queues each of them is first.
        drained: node ids that are first only where all are.
    """
    first = min(members, key=lambda node: (node in drained, leads[node], node))
    return (first, *(node for node in members if node != first))
