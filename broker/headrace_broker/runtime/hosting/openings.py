"""Replicas that a node opens when it starts: a few in a turn, for the node has to stay heard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice

from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import OPENINGS_PER_TURN


class Openings:
    """Opens replicas: some in each turn until `finish`, and each at once from then on.

    Args:
        open_replica: starts a queue's replica on this node, if it is to have one.
        failed: called with an error of it, after which no more are opened.
    """

    def __init__(
        self, open_replica: Callable[[Queue], None], failed: Callable[[BaseException], None]
    ) -> None:
        self._open = open_replica
        self._failed = failed
        self._waiting: dict[int, Queue] = {}  # by group
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def add(self, queue: Queue) -> None:
        """Open the replica of a queue, now or soon."""
        if self._is_over:
            self._open(queue)
            return
        self._waiting[queue.group] = queue
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="opens replicas")
            self._task.add_done_callback(self._ended)

    def settle(self, group: int) -> None:
        """Open a replica now if it waits: something else is about to happen to its queue."""
        queue = self._waiting.pop(group, None)
        if queue is not None:
            self._open(queue)

    async def finish(self) -> None:
        """Wait until none waits; open others at once from now on."""
        while self._task is not None:
            await asyncio.wait((self._task,))
        self._is_over = True

    def stop(self) -> None:
        """Open no more of those that wait."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._waiting:
            for group in list(islice(self._waiting, OPENINGS_PER_TURN)):
                self.settle(group)
            await asyncio.sleep(0)
        self._task = None  # in the turn in which none waited

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            self._task = None
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._failed(error)
