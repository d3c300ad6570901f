"""Bugs of nodes with several processes: what counts as one node, and what is done with it."""

from __future__ import annotations

from typing import Any, Final

from headrace_broker.catalog import voters
from headrace_broker.catalog.placement import Place, places_of, together
from headrace_broker.model.shard import processes_of
from headrace_broker.runtime.cluster.node_directory import NodeDirectory
from headrace_simulation.cluster.bugs.bug import Mutation, put, put_all


def _nodes_ignored() -> None:
    def places_by_zone(nodes: Any, hosts: bool = True) -> dict[int, Place]:
        del hosts
        return {node.id: Place(node.zone) for node in nodes}

    put_all(places_of, lambda _: places_by_zone)


def _moves_unchecked() -> None:
    put_all(together, lambda _: lambda node, others, places: node in others)


def _further_vote() -> None:
    put(voters, "is_further", lambda _: lambda node: False)


def _fate_ignored() -> None:
    put(NodeDirectory, "are_one", lambda _: lambda self, node, other: False)


def _first_alone() -> None:
    put_all(processes_of, lambda _: lambda node, nodes: [node])


MUTATIONS: Final = (
    Mutation(
        "placement-ignores-nodes",
        "the replicas of a new queue, and those that move, may be in two processes of one node",
        *("shards", 10, _nodes_ignored),
    ),
    Mutation(
        "moves-within-a-node-unchecked",
        "a replica moves to a process of a node that has another replica in another process",
        *("shards", 10, _moves_unchecked),
    ),
    Mutation(
        "further-processes-vote",
        "further processes of a node vote on the catalog beside the first one",
        *("shards", 10, _further_vote),
    ),
    Mutation(
        "voters-beside-those-that-leave",
        "a replica that moves within its node votes beside the one that it is to replace",
        *("shards", 10, _fate_ignored),
        first=13,
    ),
    Mutation(
        "drains-of-first-processes-alone",
        "a node is drained, or forgotten, without its further processes",
        *("drains", 10, _first_alone),
    ),
)
