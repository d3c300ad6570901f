"""Rebalance of leaders over nodes, begun by an administrator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from headrace_broker.catalog.movement import Handover, Led, rebalance
from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import HANDOVERS_AT_ONCE
from headrace_broker.runtime.cluster.leader_balance import AutomaticBalance


class RebalanceStatus(msgspec.Struct):
    """Progress of a rebalance.

    Attributes:
        running: whether it goes on.
        total: leaderships that it hands over.
        done: of them, those that are where they were to go.
        failed: those that are not.
        problem: why it was not done at all, "" if it was.
        before: queues that each node led when it began, by name.
        after: likewise when it had ended.
        automatic: what leaders being spread by themselves is at.
    """

    running: bool = False
    total: int = 0
    done: int = 0
    failed: int = 0
    problem: str = ""
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    automatic: AutomaticBalance = msgspec.field(default_factory=AutomaticBalance)


class Rebalance:
    """One rebalance at a time, as begun through this node."""

    def __init__(
        self,
        view: CatalogView,
        fit: Callable[[], frozenset[int]],  # returns the ids of the nodes that may lead
        # returns who leads what, and the names of nodes that did not answer though they run
        leads: Callable[[], Awaitable[tuple[list[Led], list[str]]]],
        # hands a queue over to a node; returns False when the time is over
        transfer: Callable[[Queue, int], Awaitable[bool]],
    ) -> None:
        self.status = RebalanceStatus()  # of the last one
        self._automatic = AutomaticBalance()
        self._view = view
        self._fit = fit
        self._leads = leads
        self._transfer = transfer
        self._task: asyncio.Task[None] | None = None

    def show(self, automatic: AutomaticBalance) -> None:
        """Show with each rebalance what leaders being spread by themselves is at."""
        self._automatic = self.status.automatic = automatic

    async def stop(self) -> None:
        """Stop all moves."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def is_running(self) -> bool:
        """Return True while a rebalance runs that was begun through this node."""
        return self._task is not None and not self._task.done()

    def begin(self, wanted: Callable[[Queue], bool]) -> bool:
        """Begin to spread the leaders of queues over nodes; False if that runs already."""
        if self.is_running:
            return False
        self.status = RebalanceStatus(running=True, automatic=self._automatic)
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(self.status, wanted), name="rebalance")
        return True

    async def _run(self, status: RebalanceStatus, wanted: Callable[[Queue], bool]) -> None:
        try:
            found, missing = await self._leads()
            if missing:
                status.problem = f"these nodes do not answer: {', '.join(missing)}"
                return
            view = self._view
            queues = {led.group: view.queue_by_group(led.group) for led in found}
            chosen = [led for led in found if (q := queues[led.group]) is not None and wanted(q)]
            status.before = self._counted(chosen)
            moves = rebalance(chosen, self._fit())
            status.total = len(moves)
            slots = asyncio.Semaphore(HANDOVERS_AT_ONCE)
            await asyncio.gather(*(self._hand_over(status, move, slots) for move in moves))
            found, _ = await self._leads()
            groups = {led.group for led in chosen}
            status.after = self._counted(led for led in found if led.group in groups)
        finally:
            status.running = False

    async def _hand_over(
        self, status: RebalanceStatus, move: Handover, slots: asyncio.Semaphore
    ) -> None:
        async with slots:
            queue = self._view.queue_by_group(move.group)
            if queue is not None and await self._transfer(queue, move.target):
                status.done += 1
            else:
                status.failed += 1

    def _counted(self, queues: Iterable[Led]) -> dict[str, int]:
        counts = {node.name: 0 for node in self._view.nodes()}
        for led in queues:
            node = self._view.node(led.leader)
            if node is not None:
                counts[node.name] += 1
        return counts
