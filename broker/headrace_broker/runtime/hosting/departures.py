"""Queues that a node leaves, which destroys its replica's log."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from headrace_broker.model.definition import Queue


@final
class Departures:
    """Leaves no queue before `settle`, when the past of the catalog is applied, then at once.

    After a restart the catalog's entries are applied anew. An old one may say that the queue moved
    away from here, and a later one that it came back: its log, which is of the time after both, has
    to stay.
    """

    def __init__(self, leave: Callable[[Queue], None]) -> None:
        self._leave = leave
        self._deferring = True
        self._deferred: dict[int, Queue] = {}  # by group

    def leave(self, queue: Queue) -> None:
        """Leave a queue, now or at `settle`."""
        if self._deferring:
            self._deferred[queue.group] = queue
        else:
            self._leave(queue)

    def stay(self, group: int) -> None:
        """Cancel a deferred departure: the queue came back, or is gone for good."""
        self._deferred.pop(group, None)

    def settle(self) -> None:
        """Leave all queues whose departure was deferred; later ones are left at once."""
        self._deferring = False
        deferred, self._deferred = self._deferred, {}
        for queue in deferred.values():
            self._leave(queue)
