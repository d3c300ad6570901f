"""Draining this node: no clients, no leaders, for as long as the catalog says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from headrace_broker.catalog.event import Event, NodeAdded
from headrace_broker.catalog.view import CatalogView
from headrace_broker.logs.log_event import (
    CLUSTER,
    DRAIN_ENDED,
    DRAIN_FINISHED,
    DRAIN_STARTED,
    NODE_EXPELLED,
    log_event,
)

HAND_OVER_SECONDS: Final = 10.0  # for leaderships, before clients are told to go
STOP_SECONDS: Final = 8.0  # the same of a node that is stopped; who stops it may not wait long
LOOK_SECONDS: Final = 1.0  # between looks whether a drained node has come to lead something

log = logging.getLogger("headrace.cluster")


class Leaderships(Protocol):
    """Required interface of the replicated logs (`headrace_raftlog.node`)."""

    async def drain(self, seconds: float, avoid: Callable[[], Collection[int]]) -> list[int]:
        """Hand over what this node leads; returns the groups that it still does."""

    def led(self) -> list[int]:
        """Return the groups that this node leads."""


class ClientGate(Protocol):
    """The listeners for clients."""

    async def open(self) -> None:
        """Let clients in."""

    async def suspend(self) -> None:
        """Let no more clients in; those who are there stay."""

    async def dismiss(self, reason: str) -> None:
        """Let no more clients in, and tell those who are there to go, whatever they speak."""


class Maintenance:
    """Follows what the catalog says of this node."""

    def __init__(self, node: int, name: str, view: CatalogView, raft: Leaderships) -> None:
        self.on = False  # whether this node is to be drained
        self.expelled = False  # whether this node belongs to the cluster no more
        # what to do about this node's cluster, which was founded a second time; "" while no member
        # of the first one has called
        self.contested = ""
        self.gate: ClientGate | None = None  # its listeners, None while they are not open
        # node ids of others that said that they stop; they should lead nothing new
        self.stopping: set[int] = set()
        self._node = node  # this node's id
        self._name = name
        self._view = view
        self._raft = raft  # what it leads
        self._task: asyncio.Task[None] | None = None

    def avoided(self) -> frozenset[int]:
        """Return the ids of nodes that should not come to lead anything."""
        drained = {node.id for node in self._view.nodes() if node.maintenance}
        return frozenset(drained | self.stopping)

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow the catalog."""
        for event in events:
            if isinstance(event, NodeAdded) and event.node.id == self._node:
                closed = self.expelled or bool(self.contested)
                self._turn(event.node.maintenance or closed)

    def _turn(self, on: bool) -> None:
        if on == self.on:
            return
        self.on = on
        log_event(CLUSTER, DRAIN_STARTED if on else DRAIN_ENDED, node=self._name)
        if self.gate is not None:
            self._begin()

    def expel(self) -> None:
        """The node belongs to the cluster no more; it may be told so several times."""
        if not self.expelled:
            self.expelled = True
            log_event(CLUSTER, NODE_EXPELLED, node=self._name)
            self._turn(True)

    def contest(self, reason: str) -> None:
        """Stop serving: the nodes of the first cluster would lack new confirms.

        It lasts until the process ends; its log says so once, however often it is called.

        Args:
            reason: which clusters there are, and what to do.
        """
        if not self.contested:
            self.contested = reason
            log.error("node stopped serving clients: %s", reason)
            self._turn(True)

    def opened(self, gate: ClientGate) -> None:
        """The node serves clients through these listeners, unless it is drained."""
        self.gate = gate
        if self.on:
            self._begin()

    def _begin(self) -> None:
        before = self._task
        work = self._drain(before) if self.on else self._revive(before)
        self._task = asyncio.get_running_loop().create_task(work, name="maintenance")
        self._task.add_done_callback(_report)

    async def stop(self) -> None:
        """Drain no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def hand_over(self) -> list[int]:
        """Hand over everything before the node is stopped; return the groups still led."""
        left = await self._raft.drain(STOP_SECONDS, self.avoided)
        if left:
            log.info("no other node could take the leadership of %d groups", len(left))
        return left

    async def _drain(self, before: asyncio.Task[None] | None) -> None:
        await _ended(before)
        gate = self.gate
        assert gate is not None, "nobody is drained who was not open"
        await gate.suspend()
        if self.contested:  # before anything more is confirmed
            why = "belongs to a cluster that was founded a second time"
            await gate.dismiss(f"node {self._name} {why}: connect to another one")
            return
        left = await self._raft.drain(HAND_OVER_SECONDS, self.avoided)
        why = "is taken out of service for maintenance"
        if self.expelled:
            why = "was removed from the cluster"
        await gate.dismiss(f"node {self._name} {why}: connect to another one")
        log_event(CLUSTER, DRAIN_FINISHED, node=self._name, led=len(left))
        while True:  # it votes on, so it may be elected again
            await asyncio.sleep(LOOK_SECONDS)
            if self._raft.led():
                await self._raft.drain(HAND_OVER_SECONDS, self.avoided)

    async def _revive(self, before: asyncio.Task[None] | None) -> None:
        await _ended(before)
        gate = self.gate
        assert gate is not None, "nobody is revived who was not open"
        await gate.open()


async def _ended(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _report(task: asyncio.Task[None]) -> None:
    """Log an error that has no waiter."""
    if not task.cancelled() and task.exception() is not None:
        log.error("maintenance failed", exc_info=task.exception())
