"""Removal of replicas that a queue has left: its leader reports when they are not needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Final, Protocol

from headrace_broker.catalog.command import SettleMembers
from headrace_broker.catalog.event import Event, QueueAdded, QueueChanged, QueueRemoved
from headrace_broker.catalog.result import UpgradePending
from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.limits import MEMBER_MOVES_MAX
from headrace_broker.runtime.cluster.catalog_service import CatalogUnavailableError
from headrace_raftlog.model.membership import Membership, member_node

LOOK_SECONDS: Final = 0.3  # between looks at queues that have members on their way out

log = logging.getLogger("headrace.cluster")


class Memberships(Protocol):
    """Required interface of the replicated logs (`headrace_raftlog.node`)."""

    def is_settled(self, group: int) -> bool:
        """Return whether this node leads a group without a change of members under way."""

    def members(self, group: int) -> Membership:
        """Return who belongs to a group on this node."""


class MemberMoves:
    """Watch on queues with leaving members, wherever they are led; it acts for those here."""

    def __init__(
        self,
        view: CatalogView,
        raft: Memberships,
        submit: Callable[[SettleMembers], Awaitable[object]],
    ) -> None:
        self._view = view
        self._raft = raft  # the replicated logs
        self._submit = submit  # has the catalog make a change
        self._open: dict[int, None] = {}  # groups
        self._handle: asyncio.TimerHandle | None = None
        self._telling: asyncio.Task[None] | None = None
        self._stopped = False
        self._told = ""  # what kept the last change back

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow the catalog."""
        for event in events:
            if isinstance(event, QueueAdded | QueueChanged) and event.queue.leaving:
                self._open[event.queue.group] = None
            elif isinstance(event, QueueRemoved | QueueChanged):
                self._open.pop(event.queue.group, None)
        self._arm()

    async def stop(self) -> None:
        """Stop the periodic check."""
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)

    def _arm(self) -> None:
        if self._open and self._handle is None and not self._stopped:
            loop = asyncio.get_running_loop()
            self._handle = loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._handle = None
        if self._telling is None or self._telling.done():
            changes = list(islice(self._changes(), MEMBER_MOVES_MAX))
            if changes:
                loop = asyncio.get_running_loop()
                self._telling = loop.create_task(self._tell(changes), name="members that left")
        self._arm()

    def _changes(self) -> Iterable[SettleMembers]:
        for group in list(self._open):
            queue = self._view.queue_by_group(group)
            if queue is None or not self._raft.is_settled(group):
                continue
            there = {member_node(member) for member in self._raft.members(group).everyone()}
            left = tuple([node for node in queue.leaving if node not in there])
            if left:
                yield SettleMembers(group, queue.revision, left)

    async def _tell(self, changes: list[SettleMembers]) -> None:
        for change in changes:
            try:
                result = await self._submit(change)
            except CatalogUnavailableError as error:
                log.warning("removal of former replicas postponed: %s", error)
                return
            problem = result.text if isinstance(result, UpgradePending) else ""
            if problem and problem != self._told:
                log.warning("removal of former replicas postponed: %s", problem)
            self._told = problem
            if problem:
                return
