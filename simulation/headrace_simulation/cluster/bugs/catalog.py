"""Bugs of the catalog, and of what nodes do by it."""

from __future__ import annotations

from typing import Any, Final

from headrace_broker.catalog.machine import Catalog
from headrace_broker.runtime.hosting.departures import Departures
from headrace_raftlog.node.reconciler import Reconciler
from headrace_simulation.cluster.bugs.bug import Mutation, put


def _departures_at_once() -> None:
    put(Departures, "leave", lambda _: lambda self, queue: self._leave(queue))


def _never_left() -> None:
    put(Departures, "leave", lambda _: lambda self, queue: None)


def _joins_of_any_revision() -> None:
    def made(original: Any) -> Any:
        return lambda self, hosted, member, known: original(self, hosted, member, 0)

    put(Reconciler, "joins", made)


def _boots_forgotten() -> None:
    put(Catalog, "seen_boot", lambda _: lambda self, node: 0)


MUTATIONS: Final = (
    Mutation(
        "members-join-that-have-yet-to-leave",
        "a leader admits members of nodes that do not know yet that they had to leave",
        *("five", 20, _joins_of_any_revision),
        first=194,
    ),
    Mutation(
        "departures-at-once",
        "a restart leaves queues that had moved away once and have come back",
        *("returns", 10, _departures_at_once),
    ),
    Mutation(
        "moved-queues-not-left",
        "a node keeps the log of a queue that has moved away",
        *("moves", 20, _never_left),
        is_found=False,
    ),
    Mutation(
        "catalog-forgets-boots",
        "the catalog says of no node which boot it has admitted",
        *("loss", 20, _boots_forgotten),
    ),
)
