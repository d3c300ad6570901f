"""Nodes for the replicas of queues."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from headrace_broker.model.definition import Node
from headrace_broker.model.shard import node_name, shard_number


class Place(NamedTuple):
    """Zone and host of a node, which may fail as a whole, and the node of a process."""

    zone: str = ""
    host: str = ""  # of its address
    node: str = ""  # name of the node whose process it is, "" where each is one of its own
    shard: int = 0  # number of the process in that node


NO_PLACES: Final[Mapping[int, Place]] = MappingProxyType({})  # where no node has said its place
_NOWHERE: Final = Place()


def place(
    replicas: Mapping[int, int],
    preferred: int,
    wanted: int,
    drained: Collection[int] = (),
    places: Mapping[int, Place] = NO_PLACES,
) -> tuple[int, ...]:
    """Choose different nodes for the replicas of a queue.

    The preferred node comes first. Each further one is of those whose zones have the fewest of the
    chosen nodes, and among them of those whose hosts have; of these, the one with the least `load`.
    No two are processes of one node.

    Args:
        replicas: numbers of replicas by id, of each known node.
        preferred: the first leader's node id, 0 for any.
        wanted: how many nodes.
        drained: nodes that are taken only where there are no others.
        places: by node id; nodes that are not in it, or in zone "", count as of one zone.

    Returns:
        min(wanted, nodes) node ids, the first leader first; processes of one node count as one.
    """
    chosen: list[int] = []
    free = set(replicas)
    while free and len(chosen) < wanted:
        node = min(
            free,
            key=lambda each: (
                each in drained,
                each != preferred,
                shares(each, chosen, places),
                load(each, replicas, chosen, places),
            ),
        )
        chosen.append(node)
        free = {each for each in free if not together(each, [node], places)}
    return tuple(chosen)


def together(node: int, others: Iterable[int], places: Mapping[int, Place]) -> bool:
    """Return whether a node is one of the others, or a process of the same node as one of them."""
    own = places.get(node, _NOWHERE).node
    return any(
        node == other or (own != "" and own == places.get(other, _NOWHERE).node) for other in others
    )


def places_of(nodes: Iterable[Node], hosts: bool = True) -> dict[int, Place]:
    """Return the places of nodes by id, by their zones alone without `hosts`."""
    if not hosts:
        return {node.id: Place(node.zone) for node in nodes}
    return {
        node.id: Place(node.zone, _host(node), node_name(node.name), shard_number(node.name))
        for node in nodes
    }


def _host(node: Node) -> str:
    return node.address.rpartition(":")[0].lower().removesuffix(".")


def shares(node: int, others: Iterable[int], places: Mapping[int, Place]) -> tuple[int, int]:
    """Return how many of the other nodes are in the zone of a node, and how many on its host."""
    own = places.get(node, _NOWHERE)
    found = [places.get(other, _NOWHERE) for other in others]
    in_zone = sum(each.zone == own.zone for each in found)
    return in_zone, sum(each.host == own.host for each in found)


def load(
    node: int, replicas: Mapping[int, int], others: Sequence[int], places: Mapping[int, Place]
) -> tuple[int, bool, int]:
    """Return by how many replicas a node is loaded, for a queue with replicas on others as well.

    A process is preferred that has the number of the first one's in its own node, unless it has a
    third more than another: shards of one number then replicate to each other alone, in batches
    that are as large as those of nodes with one process. Ties by id.
    """
    shard = places.get(node, _NOWHERE).shard
    aligned = not others or shard == places.get(others[0], _NOWHERE).shard
    return replicas[node] * (3 if aligned else 4), not aligned, node


def lead_by_fewest(
    members: tuple[int, ...], leads: Mapping[int, int], drained: Collection[int] = ()
) -> tuple[int, ...]:
    """Put first the node that leads the fewest queues, ties by id; drained ones only if all are."""
    first = min(members, key=lambda node: (node in drained, leads[node], node))
    return (first, *(node for node in members if node != first))
