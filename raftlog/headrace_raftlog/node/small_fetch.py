"""Fetches the snapshots of many groups with one call.

A node that was away is offered a snapshot by each group whose entries were dropped meanwhile; with
thousands of groups, a call for each costs its leader far more than what is sent.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import Final, NamedTuple

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
            None where the snapshot is not small, is gone, or the call failed: then it is to be
            fetched by itself, which tells why it cannot be.
        """
        asked = _Asked(hosted, index_min, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(node, {})[hosted.group] = asked
        if node not in self._calling:
            task = asyncio.create_task(self._serve(node), name=f"small snapshots of {node}")
            self._calling[node] = task
            task.add_done_callback(self._ended)
        return await asked.answer

    async def stop(self) -> None:
        """End all calls; those who wait are not answered."""
        tasks = list(self._calling.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._host.fail(error)

    async def _serve(self, node: int) -> None:
        waiting = self._waiting[node]
        while waiting:
            while self._host.is_backlogged:  # noqa: ASYNC110  (no event tells of its end)
                await asyncio.sleep(self._tick_s)
            batch: dict[int, _Asked] = {}
            while waiting and len(batch) < SMALL_SNAPSHOTS_MAX:
                group = next(iter(waiting))
                asked = waiting.pop(group)
                if not asked.answer.done():  # it was not cancelled
                    batch[group] = asked
            if batch:
                await self._call(node, batch)
        del self._calling[node]  # in the turn in which none was waiting

    async def _call(self, node: int, batch: dict[int, _Asked]) -> None:
        """Make one call; whoever gets nothing by it is told so."""
        wanted = {group: _wanted(asked) for group, asked in batch.items()}
        try:
            async with aclosing(self._bulk.small_snapshots(node, wanted)) as snapshots:
                async for small in snapshots:
                    answer = batch.pop(small.group).answer
                    if not answer.done():
                        answer.set_result(small)
        except (FetchFailedError, FrameError) as error:
            LOG.debug("%d small snapshots of node %d were not fetched: %s", len(batch), node, error)
        finally:
            for asked in batch.values():
                if not asked.answer.done():
                    asked.answer.set_result(None)


def _wanted(asked: _Asked) -> Wanted:
    hosted = asked.hosted
    known = min(hosted.view.last, hosted.core.commit_index)
    return Wanted(hosted.core.member, asked.index_min, known)
