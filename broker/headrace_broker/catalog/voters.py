"""Nodes that vote on the catalog; the others learn it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import product
from typing import Final

from headrace_broker.catalog.cluster_version import in_force
from headrace_broker.catalog.placement import Place, places_of, shares
from headrace_broker.catalog.version import ZONES
from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.shard import is_further

VOTERS_MAX: Final = 5  # two of them may fail, at any size of the cluster
_VOTERS_FEW: Final = 3


def split_members(nodes: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return which of its founders vote on the catalog and which learn: the lowest ids vote."""
    ordered = sorted(nodes)
    count = voters_wanted(len(ordered))
    return tuple(ordered[:count]), tuple(ordered[count:])


def voters_wanted(count: int) -> int:
    """Return how many of so many nodes vote on the catalog: an odd number of them.

    Two nodes both vote, for then at least no change is lost with one of them.
    """
    wanted = min(count, VOTERS_MAX)
    return wanted - 1 if wanted > 2 and wanted % 2 == 0 else wanted


def catalog_voters(view: CatalogView, sitting: Collection[int], own: int) -> tuple[int, ...]:
    """Choose the nodes of a cluster that vote on its catalog.

    Of a node with several processes only the first one votes. As long as some nodes have a zone and
    others have not said theirs, no zone counts: votes would move with each that does.

    Args:
        view: of the cluster.
        sitting: ids of the nodes that vote.
        own: id of the node that leads the catalog; it gives up its vote last.

    Returns:
        As `voters_among`.
    """
    nodes = [node for node in view.nodes() if not is_further(node)]
    places = places_of(nodes, hosts=in_force(view).catalog >= ZONES)
    if not all(place.zone for place in places.values()):
        places = {node: place._replace(zone="") for node, place in places.items()}
    return voters_among(places, sitting, own, [node.id for node in nodes if node.maintenance])


def voters_among(
    places: Mapping[int, Place],
    sitting: Collection[int],
    own: int = 0,
    drained: Collection[int] = (),
) -> tuple[int, ...]:
    """Choose nodes that vote, spread over zones, and within these over hosts.

    Those that vote already go on doing so, unless another one makes for a better spread. Three
    vote in place of five where five would not outlast the loss of a zone, and three do.

    Args:
        places: of all nodes, by id.
        sitting: ids of those that vote.
        own: id of the node that gives up its vote last, 0 for none.
        drained: ids of nodes that are added last.

    Returns:
        Node ids, ascending; () for no nodes. With these as `sitting` it is the same.
    """
    spread = _Spread(places, own, drained)
    wanted = voters_wanted(len(places))
    found = spread.choose(sitting, wanted)
    if wanted > _VOTERS_FEW and not _outlasts_zones(found, places):
        few = spread.choose(sitting, _VOTERS_FEW)
        if _outlasts_zones(few, places):
            found = few
    return tuple(sorted(found))


def _outlasts_zones(voters: Collection[int], places: Mapping[int, Place]) -> bool:
    """Return whether a majority is left without any one zone."""
    zones = [places[node].zone for node in voters]
    return all(2 * zones.count(zone) < len(zones) for zone in zones)


class _Spread:
    """Chooses so many nodes by their places."""

    def __init__(self, places: Mapping[int, Place], own: int, drained: Collection[int]) -> None:
        self._places = places
        self._own = own
        self._drained = drained

    def choose(self, sitting: Collection[int], count: int) -> set[int]:
        """Return so many nodes: those that vote first, then exchanged for a better spread."""
        chosen = self._places.keys() & set(sitting)
        while len(chosen) > count:
            chosen.remove(
                max(chosen, key=lambda node: (*self._cost(node, chosen), *self._last(node)))
            )
        while len(chosen) < count:
            free = self._places.keys() - chosen
            chosen.add(min(free, key=lambda node: (*self._cost(node, chosen), *self._first(node))))
        while better := self._exchange(chosen):
            leaving, coming = better
            chosen = (chosen - {leaving}) | {coming}
        return chosen

    def _exchange(self, chosen: set[int]) -> tuple[int, int] | None:
        """Return who leaves for whom so that the spread gains most, None where it gains nothing."""

        def gain(pair: tuple[int, int]) -> tuple[int, int]:
            leaving, coming = pair
            zone, host = self._cost(leaving, chosen)
            new_zone, new_host = self._cost(coming, chosen - {leaving})
            return zone - new_zone, host - new_host

        pairs = product(chosen, self._places.keys() - chosen)
        gaining = [pair for pair in pairs if gain(pair) > (0, 0)]
        if not gaining:
            return None
        return max(
            gaining,
            key=lambda pair: (
                *gain(pair),
                *self._last(pair[0]),
                *(-each for each in self._first(pair[1])),
            ),
        )

    def _cost(self, node: int, chosen: Iterable[int]) -> tuple[int, int]:
        return shares(node, [other for other in chosen if other != node], self._places)

    def _last(self, node: int) -> tuple[bool, int]:
        return node != self._own, node

    def _first(self, node: int) -> tuple[bool, int]:
        return node in self._drained, node
