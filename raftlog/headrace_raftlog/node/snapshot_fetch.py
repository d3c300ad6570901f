"""Brings members up to date that lack what only their leader's snapshot has.

First the snapshot, which names the entries that are still read; then those of them that are not
here yet, which are kept on disk as they come; and when nothing is missing, the snapshot takes the
place of the log's beginning, in one step. A fetch that is cut short, by a crash or by another
leader, is begun anew with the leader's next offer, and what was kept is not fetched again. If the
leader drops an entry meanwhile it has a newer snapshot: the fetch goes on with that one. A group
whose fetch fails, or brings nothing that was missing, rests before the next, longer each time, so
that it holds no slot that others could use. Small snapshots, which most groups have, are fetched
together and need no slot.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import Final

from headrace_raftlog.ending import end_tasks, task_error
from headrace_raftlog.log_event import DEBUG, INFO, RAFT, SNAPSHOT_INSTALLED, log_event
from headrace_raftlog.model.group import CATALOG_GROUP
from headrace_raftlog.model.limits import (
    FETCH_ATTEMPTS_MAX,
    FETCH_REST_TICKS,
    FETCH_REST_TICKS_MAX,
    FETCHES_MAX,
)
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.model.snapshot import Snapshot, SnapshotOffer
from headrace_raftlog.node.host import Host
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_raftlog.node.small_fetch import SmallSnapshotFetcher
from headrace_raftlog.transport.bulk_client import (
    BulkClient,
    FetchFailedError,
    GoneError,
    ranges_of,
)
from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.small_snapshot import SmallSnapshot

LOG: Final = logging.getLogger("headrace.raft")


class SnapshotFetcher:
    """Runs one fetch per group at most, and a bounded number of large ones at a time."""

    def __init__(self, host: Host, bulk: BulkClient, tick_s: float) -> None:
        self.installed = 0  # snapshots installed since the start
        self.entries_fetched = 0  # entries fetched since the start
        self._host = host
        self._bulk = bulk
        self._tick_s = tick_s
        self._small = SmallSnapshotFetcher(host, bulk, tick_s)
        self._slots = asyncio.Semaphore(FETCHES_MAX)
        self._running: dict[int, tuple[int, asyncio.Task[None]]] = {}
        self._rests: dict[int, tuple[float, int]] = {}  # until when, and for how many ticks

    def offered(self, hosted: HostedGroup, offer: SnapshotOffer) -> None:
        """Begin a fetch, unless one from the same leader is under way or the group rests."""
        if asyncio.get_running_loop().time() < self._rests.get(hosted.group, (0.0, 0))[0]:
            return
        running = self._running.get(hosted.group)
        if running is not None:
            if running[0] == offer.leader:
                return
            running[1].cancel()
        task = asyncio.create_task(self._run(hosted, offer), name=f"fetch of {hosted.group}")
        self._running[hosted.group] = (offer.leader, task)
        task.add_done_callback(lambda done: self._ended(hosted.group, done))

    def leader_changed(self, hosted: HostedGroup) -> None:
        """End the fetch of a group from a node that does not lead it any more."""
        self._rests.pop(hosted.group, None)
        running = self._running.get(hosted.group)
        if running is not None and (hosted.removed or running[0] != hosted.core.leader):
            running[1].cancel()

    def peer_down(self, peer: int) -> None:
        """End the fetches from a node that is down."""
        self._small.peer_down(peer)
        for leader, task in list(self._running.values()):
            if member_node(leader) == peer:
                task.cancel()

    async def stop(self) -> None:
        """End all fetches."""
        await end_tasks(task for _, task in self._running.values())
        await self._small.stop()

    def _ended(self, group: int, task: asyncio.Task[None]) -> None:
        running = self._running.get(group)
        if running is not None and running[1] is task:
            del self._running[group]
        if (error := task_error(task)) is not None:
            self._host.fail(error)

    async def _run(self, hosted: HostedGroup, offer: SnapshotOffer) -> None:
        node = member_node(offer.leader)
        began_s = asyncio.get_running_loop().time()
        if hosted.group != CATALOG_GROUP:  # which waits for no other
            small = await self._small.fetch(hosted, node, offer.index)
            taken = small is not None and self._take(hosted, node, small, began_s)
            if taken or self._is_needless(hosted, offer.index):
                self._rests.pop(hosted.group, None)
                return
        async with self._slots:
            try:
                await self._fetch(hosted, node, offer.index, began_s)
            except (FetchFailedError, FrameError) as error:
                ticks = self._rest(hosted.group)
                LOG.warning(
                    "group %d: the snapshot of node %d was not fetched to its end, and will be "
                    "begun again in %.1f s: %s",
                    hosted.group,
                    node,
                    ticks * self._tick_s,
                    error,
                )
            else:
                self._rests.pop(hosted.group, None)

    def _rest(self, group: int) -> int:
        """Begin no fetch of a group for a while; return for how many ticks."""
        _, before = self._rests.get(group, (0.0, 0))
        ticks = min(max(2 * before, FETCH_REST_TICKS), FETCH_REST_TICKS_MAX)
        until = asyncio.get_running_loop().time() + ticks * self._tick_s
        self._rests[group] = (until, ticks)
        return ticks

    async def _fetch(self, hosted: HostedGroup, node: int, index: int, began_s: float) -> None:
        group, member = hosted.group, hosted.core.member
        for _ in range(FETCH_ATTEMPTS_MAX):
            if self._is_needless(hosted, index):
                return
            try:
                snapshot = await self._bulk.snapshot(node, group, member, index)
                snapshot = await self._fetch_missing(hosted, node, snapshot)
            except GoneError:
                await asyncio.sleep(self._tick_s)  # the leader's newer snapshot is on its way
                continue
            self._install(hosted, node, snapshot, began_s)
            return
        raise FetchFailedError(f"{FETCH_ATTEMPTS_MAX} snapshots were gone before they were here")

    def _take(self, hosted: HostedGroup, node: int, small: SmallSnapshot, began_s: float) -> bool:
        """Install a snapshot that came with others; False where entries of it are missing."""
        if self._is_over(hosted):
            return True
        snapshot = hosted.needed(small.snapshot)
        missing = self._host.missing(hosted, snapshot)
        if missing:
            lacking = frozenset(missing)
            came = [entry for entry in small.entries if entry.index in lacking]
            if len(came) < len(missing):
                return False
            self._host.add_incoming(hosted, came)
            self.entries_fetched += len(came)
        self._install(hosted, node, snapshot, began_s)
        return True

    def _install(self, hosted: HostedGroup, node: int, snapshot: Snapshot, began_s: float) -> None:
        """Put a snapshot in the place of the log's beginning, unless there is as much already."""
        if self._is_over(hosted) or not self._host.install(hosted, snapshot):
            return
        self.installed += 1
        group = hosted.group
        level = INFO if group == CATALOG_GROUP else DEBUG
        passed_s = asyncio.get_running_loop().time() - began_s
        more = {"group": group, "index": snapshot.index, "source": node}
        log_event(RAFT, SNAPSHOT_INSTALLED, level, seconds=passed_s, **more)

    async def _fetch_missing(self, hosted: HostedGroup, node: int, snapshot: Snapshot) -> Snapshot:
        """Fetch until nothing is missing; there is no turn of the loop between that and return.

        Returns:
            The snapshot, without entries that are dead here.

        Raises FetchFailedError: a whole fetch brought nothing that was missing.
        """
        before = 0
        while not self._is_over(hosted):
            snapshot = hosted.needed(snapshot)
            missing = self._host.missing(hosted, snapshot)
            if not missing:
                return snapshot
            if before and len(missing) >= before:
                raise FetchFailedError(f"entry {missing[0]} is still missing, as {before - 1} more")
            before = len(missing)
            ranges = ranges_of(missing)
            fetch = self._bulk.entries(
                node, hosted.group, hosted.core.member, ranges, snapshot.term
            )
            async with aclosing(fetch) as pieces:
                async for piece in pieces:
                    if self._is_over(hosted):
                        return snapshot
                    self._host.add_incoming(hosted, piece)
                    self.entries_fetched += len(piece)
                    while self._host.is_backlogged:  # noqa: ASYNC110  (no event tells of its end)
                        await asyncio.sleep(self._tick_s)
        return snapshot

    def _is_needless(self, hosted: HostedGroup, index: int) -> bool:
        """Return whether the group has gone, or its entries up to an index came another way."""
        return self._is_over(hosted) or hosted.core.commit_index >= index

    def _is_over(self, hosted: HostedGroup) -> bool:
        return hosted.removed or self._host.stopped
