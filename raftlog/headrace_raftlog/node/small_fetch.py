"""Fetches the snapshots of many groups with one call.

A node that was away is offered a snapshot by each group whose entries were dropped meanwhile; with
thousands of groups, a call for each costs its leader far more than what is sent.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from itertools import islice
from typing import Final, NamedTuple

from headrace_raftlog.ending import end_tasks, task_error
from headrace_raftlog.model.limits import SMALL_SNAPSHOTS_MAX
from headrace_raftlog.node.host import Host
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_raftlog.transport.bulk_client import BulkClient, FetchFailedError
from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.small_snapshot import SmallSnapshot, Wanted

LOG: Final = logging.getLogger("headrace.raft")


class _Asked(NamedTuple):
    hosted: HostedGroup
    index_min: int
    answer: asyncio.Future[SmallSnapshot | None]

    def is_of_use(self) -> bool:
        """Return whether somebody waits for the snapshot, and lacks what it has."""
        hosted = self.hosted
        is_late = hosted.removed or hosted.core.commit_index >= self.index_min
        return not is_late and not self.answer.done()

    def wanted(self) -> Wanted:
        """Return what to ask for now."""
        hosted = self.hosted
        return Wanted(self.index_min, min(hosted.view.last, hosted.core.commit_index))

    def tell(self, small: SmallSnapshot | None) -> None:
        """Answer, unless whoever asked was cancelled."""
        if not self.answer.done():
            self.answer.set_result(small)


class SmallSnapshotFetcher:
    """Makes one call a peer at a time, for all groups that have gathered since the last."""

    def __init__(self, host: Host, bulk: BulkClient, tick_s: float) -> None:
        self._host = host
        self._bulk = bulk
        self._tick_s = tick_s
        self._waiting: dict[int, dict[int, _Asked]] = {}  # by node, by group
        self._calling: dict[int, asyncio.Task[None]] = {}  # by node

    async def fetch(self, hosted: HostedGroup, node: int, index_min: int) -> SmallSnapshot | None:
        """Fetch a group's snapshot together with those of others.

        Args:
            hosted: the group; one call of it at a time.
            node: id of its leader's node.
            index_min: least index of use.

        Returns:
            None where the snapshot or what is lacking of its entries is not small, it is gone or of
            no use any more, or the call failed: then it is to be fetched by itself, which tells why
            it cannot be.
        """
        asked = _Asked(hosted, index_min, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(node, {})[hosted.group] = asked
        if node not in self._calling:
            task = asyncio.create_task(self._serve(node), name=f"small snapshots of {node}")
            self._calling[node] = task
            task.add_done_callback(self._ended)
        return await asked.answer

    def peer_down(self, node: int) -> None:
        """End the call to a node that is down."""
        task = self._calling.pop(node, None)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        """End all calls."""
        await end_tasks(self._calling.values())

    def _ended(self, task: asyncio.Task[None]) -> None:
        if (error := task_error(task)) is not None:
            self._host.fail(error)

    async def _serve(self, node: int) -> None:
        """Make calls to a node until no group waits; whoever still does is told."""
        waiting = self._waiting[node]
        try:
            while waiting:
                while self._host.is_backlogged:  # noqa: ASYNC110  (no event tells of its end)
                    await asyncio.sleep(self._tick_s)
                batch: dict[int, _Asked] = {}
                for group in list(islice(waiting, SMALL_SNAPSHOTS_MAX)):
                    asked = waiting.pop(group)
                    if asked.is_of_use():
                        batch[group] = asked
                    else:
                        asked.tell(None)
                if batch:
                    await self._call(node, batch)
        finally:
            if self._calling.get(node) is asyncio.current_task():
                del self._calling[node]  # in the turn in which none was waiting
            if node not in self._calling:
                for asked in waiting.values():
                    asked.tell(None)
                waiting.clear()

    async def _call(self, node: int, batch: dict[int, _Asked]) -> None:
        """Make one call; whoever gets nothing by it is told so."""
        wanted = {group: asked.wanted() for group, asked in batch.items()}
        member = next(iter(batch.values())).hosted.core.member
        try:
            async with aclosing(self._bulk.small_snapshots(node, member, wanted)) as snapshots:
                async for small in snapshots:
                    batch.pop(small.group).tell(small)
                    await asyncio.sleep(0)  # it is installed, before the next comes
        except (FetchFailedError, FrameError) as error:
            LOG.debug("%d small snapshots of node %d were not fetched: %s", len(batch), node, error)
        finally:
            for asked in batch.values():
                asked.tell(None)
