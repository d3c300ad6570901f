"""Nodes for a new queue's replicas, and those that vote on the catalog."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

VOTERS_MAX: Final = 5  # nodes that vote on the catalog; the rest learn: two may fail at any size


def place(
    replicas: Mapping[int, int], preferred: int, wanted: int, drained: Collection[int] = ()
) -> tuple[int, ...]:
    """Choose different nodes: the preferred one, then those with the fewest replicas, ties by id.

    `replicas` are of each known node; drained ones are taken only where there are no others.
    Returns min(wanted, nodes) node ids, the first leader first.
    """
    order = sorted(
        replicas, key=lambda node: (node in drained, node != preferred, replicas[node], node)
    )
    return tuple(order[:wanted])


def lead_by_fewest(
    members: tuple[int, ...], leads: Mapping[int, int], drained: Collection[int] = ()
) -> tuple[int, ...]:
    """Put first the node that leads the fewest queues, ties by id; drained ones only if all are."""
    first = min(members, key=lambda node: (node in drained, leads[node], node))
    return (first, *(node for node in members if node != first))


def voters_wanted(count: int) -> int:
    """Return how many of so many nodes vote on the catalog: an odd number of them.

    Two nodes both vote, for then at least no change is lost with one of them.
    """
    wanted = min(count, VOTERS_MAX)
    return wanted - 1 if wanted > 2 and wanted % 2 == 0 else wanted


def split_members(nodes: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return which of its founders vote on the catalog and which learn: the lowest ids vote."""
    ordered = sorted(nodes)
    count = voters_wanted(len(ordered))
    return tuple(ordered[:count]), tuple(ordered[count:])
