"""Invariants of nodes with several processes: where replicas and votes are at every moment.

A host takes down one replica of a queue, and one vote on the catalog, at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from headrace_broker.catalog.view import CatalogView
from headrace_raftlog.model.group import CATALOG_GROUP
from headrace_raftlog.model.membership import Membership, member_node
from headrace_simulation.cluster.broker_cluster import BrokerCluster
from headrace_simulation.cluster.hosts import host_of, name_of
from headrace_simulation.cluster.world import SimulationError


@final
class Placing:
    """Looks at the catalog of each process when it changes, and at the voters of all groups."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self._cluster = cluster
        self._seen: dict[int, tuple[CatalogView, int]] = {}
        self._judged: set[tuple[int, Membership]] = set()

    def look(self) -> None:
        """Judge what is new."""
        for number, node in self._cluster.nodes.items():
            view = node.catalog.catalog
            if self._seen.get(number) != (view, view.applied_index):
                self._seen[number] = view, view.applied_index
                self._look_at_queues(number, view)
        for hosted in self._cluster.hosted():
            key = (hosted.group, hosted.core.membership)
            if key not in self._judged:
                self._judged.add(key)
                self._look_at_voters(*key)

    def check_use(self) -> None:
        """Some replicas are in further processes, without which a run says nothing."""
        for site in self._cluster.sites.values():
            queues = site.node.catalog.catalog.queues()
            if not any(host_of(each) != each for queue in queues for each in queue.members):
                raise SimulationError("no queue has a replica in a further process")

    def _look_at_queues(self, number: int, view: CatalogView) -> None:
        for queue in view.queues():
            if _shares_host(queue.members):
                names = ", ".join(map(name_of, queue.members))
                raise SimulationError(
                    f"{queue.name} has two replicas in one node by the catalog of "
                    f"{name_of(number)}: {names}"
                )

    def _look_at_voters(self, group: int, membership: Membership) -> None:
        for electorate in (membership.voters, membership.outgoing):
            nodes = sorted({int(member_node(member)) for member in electorate})
            names = ", ".join(map(name_of, nodes))
            if group == CATALOG_GROUP and any(host_of(each) != each for each in nodes):
                raise SimulationError(f"a further process votes on the catalog: {names}")
            if _shares_host(nodes):
                raise SimulationError(f"group {group} has two voters in one node: {names}")


def _shares_host(numbers: Sequence[int]) -> bool:
    return len({host_of(number) for number in numbers}) < len(numbers)
