"""Puts damaged entries back into the logs of groups that stand still because of them.

The member keeps its id, its term, its vote and the shape of its log; only bodies are missing. Until
they are there its group does nothing, as if the node were down, so nothing that it has promised is
forgotten. A body is right when index and term are (log matching), whoever sends it and whether it
is committed or not; so members with damage in different places restore each other.

What a peer has compacted away is committed, and its newer snapshot takes the place of it. An entry
that every other voter denies was never committed, and the log is cut there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from headrace_raftlog.ending import end_tasks, task_error
from headrace_raftlog.model.entry import HardState
from headrace_raftlog.model.limits import (
    FETCHES_MAX,
    MEND_ENTRIES_MAX,
    MEND_LOG_S,
    MEND_ROUND_TICKS,
)
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.node.damage_scanner import DamageScanner
from headrace_raftlog.node.host import Host
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_raftlog.storage.group.lost_entries import cut_lost, is_durable, lost_indexes, place_of
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.transport.bulk_client import (
    BulkClient,
    DeniedError,
    FetchFailedError,
    GoneError,
    ranges_of,
)
from headrace_raftlog.transport.codec import FrameError

LOG: Final = logging.getLogger("headrace.raft")


class _Answers:
    """Result of one round of asking the other members."""

    def __init__(self, written: set[int]) -> None:
        # entries that are written anew, and stay in memory until they are durable
        self.written = written
        self.sources: set[int] = set()  # nodes that sent a body
        # by index, members whose log does not have that entry
        self.denied: dict[int, set[int]] = {}
        self.compacted: set[int] = set()  # nodes with a snapshot in the place of a damaged entry


class EntryRepair:
    """Runs one task for each suspended group, a bounded number of them at a time."""

    def __init__(
        self,
        host: Host,
        log: SharedLog,
        bulk: BulkClient,
        damage_scanner: DamageScanner,
        tick_s: float,
    ) -> None:
        self.entries_repaired = 0  # entries put back since the start
        self._host = host
        self._log = log
        self._bulk = bulk
        self._tick_s = tick_s
        self._damage_scanner = damage_scanner
        self._slots = asyncio.Semaphore(FETCHES_MAX)
        self._tasks: set[asyncio.Task[None]] = set()

    def suspended(self, hosted: HostedGroup) -> None:
        """Mend a group, then have the host resume it."""
        lost = lost_indexes(hosted.view)
        LOG.error(
            "group %d: %d of its entries are damaged on this node, the first is %d (%s). It takes "
            "no part in the group until they are fetched from its other members and put back",
            hosted.group,
            len(lost),
            lost[0],
            place_of(hosted.view, lost[0]),
        )
        task = asyncio.create_task(self._run(hosted), name=f"mending of {hosted.group}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End all of it."""
        await end_tasks(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if (error := task_error(task)) is not None:
            self._host.fail(error)

    async def _run(self, hosted: HostedGroup) -> None:
        logged_at = time.monotonic()
        if hosted.restored:  # it was suspended while it ran
            await self._look_around(hosted)
        rewritten: set[int] = set()
        while not self._is_over(hosted):
            lost = lost_indexes(hosted.view)
            if not lost and is_durable(hosted.view) and not hosted.unsettled:
                LOG.warning("group %d: log repaired", hosted.group)
                self._host.resume(hosted)
                if not hosted.suspended:
                    return
                continue
            self._rewrite(hosted, lost, rewritten)
            missing = [index for index in lost if index not in hosted.view.recent]
            if missing:
                async with self._slots:
                    await self._round(hosted, missing[:MEND_ENTRIES_MAX], _Answers(rewritten))
                missing = [index for index in missing if index not in hosted.view.recent]
            self._log.flush()
            if missing and time.monotonic() - logged_at >= MEND_LOG_S:
                logged_at = time.monotonic()
                self._tell(hosted, missing)
            await asyncio.sleep(self._tick_s * (MEND_ROUND_TICKS if missing else 1))

    async def _look_around(self, hosted: HostedGroup) -> None:
        """Search for more damage in the damaged files: it rarely comes alone."""
        view = hosted.view
        for sequence in sorted({location >> 32 for location in (view.lost or {}).values()}):
            await self._damage_scanner.look_at(hosted, sequence)

    async def _save(self, hosted: HostedGroup) -> None:
        """Take a snapshot, so that of the applied entries only those with readers are lost.

        What a peer has compacted away and is still live here, is dead in a newer snapshot of the
        peer's then: one that goes on from this member's state.
        """
        view, applied = hosted.view, hosted.core.applied_index
        lost = lost_indexes(view)
        if not lost or lost[0] > applied or not self._host.snapshots.take(hosted):
            return
        self._log.flush()
        while not self._is_over(hosted) and view.snapshot_index < applied:
            await asyncio.sleep(self._tick_s)
            self._log.flush()

    def _rewrite(self, hosted: HostedGroup, lost: list[int], rewritten: set[int]) -> None:
        """Write lost entries anew that are still in memory, each once."""
        for index in lost:
            entry = hosted.view.recent.get(index)
            if entry is not None and index not in rewritten:
                del hosted.view.recent[index]
                self._log.mend(hosted.group, entry)
                rewritten.add(index)

    def _tell(self, hosted: HostedGroup, missing: list[int]) -> None:
        others = self._others(hosted)
        LOG.error(
            "group %d: %d damaged entries, the first is %d, cannot be fetched from %s, and the "
            "group stands still on this node. %s",
            hosted.group,
            len(missing),
            missing[0],
            f"nodes {sorted(others)}" if others else "anywhere, as no other node is a member",
            "Start the other members"
            if others
            else "Stop the node and run 'headrace log salvage' on its data directory to write out "
            "the messages that are intact",
        )

    def _is_over(self, hosted: HostedGroup) -> bool:
        return hosted.removed or self._host.stopped

    def _others(self, hosted: HostedGroup) -> dict[int, int]:
        """Return the other members of a group by node id."""
        core = hosted.core
        members = [m for m in core.membership.everyone() if m != core.member]
        return {member_node(member): member for member in members}

    async def _round(self, hosted: HostedGroup, missing: list[int], answers: _Answers) -> None:
        """Ask every other member that is up, once."""
        nodes_up = self._host.nodes_up()
        for node, member in sorted(self._others(hosted).items()):
            if node not in nodes_up:
                continue
            try:
                await self._ask(hosted, node, member, missing, answers)
            except (FetchFailedError, FrameError) as error:
                LOG.debug("group %d: node %d has no replacement: %s", hosted.group, node, error)
            if self._is_over(hosted):
                return
        if answers.sources:
            LOG.warning(
                "group %d: damaged entries are put back as nodes %s hold them",
                hosted.group,
                sorted(answers.sources),
            )
        if answers.compacted and hosted.restored:
            await self._save(hosted)
        for node in sorted(answers.compacted):
            await self._take_snapshot(hosted, node)
        if not self._is_over(hosted):
            self._cut(hosted, answers)

    async def _ask(
        self, hosted: HostedGroup, node: int, of_member: int, missing: list[int], answers: _Answers
    ) -> None:
        view = hosted.view
        for index in missing:
            if index in view.recent or self._is_over(hosted):
                continue
            term = view.term_at(index) if index > view.snapshot_index else 0
            member = hosted.core.member
            try:
                entry = await self._bulk.stored_entry(
                    node, hosted.group, member, of_member, index, term
                )
            except DeniedError:
                answers.denied.setdefault(index, set()).add(of_member)
                continue
            except GoneError:
                answers.compacted.add(node)
                continue
            if not self._is_over(hosted) and self._log.mend(hosted.group, entry):
                self.entries_repaired += 1
                answers.written.add(index)
                answers.sources.add(node)

    async def _take_snapshot(self, hosted: HostedGroup, node: int) -> None:
        """Put a peer's newer snapshot in the place of damaged entries that it has no more."""
        view, group = hosted.view, hosted.group
        missing = [index for index in lost_indexes(view) if index not in view.recent]
        if not missing:
            return
        member = hosted.core.member
        index_min = max(missing[0], int(view.snapshot_index) + 1)
        try:
            snapshot = await self._bulk.snapshot(node, group, member, index_min)
            while not self._is_over(hosted):
                lacking = self._lacking(hosted, snapshot)
                if not lacking:
                    break
                pieces = self._bulk.entries(node, group, member, ranges_of(lacking), snapshot.term)
                async for piece in pieces:
                    if self._is_over(hosted):
                        return
                    self._log.add_incoming(group, piece)
                    self._log.flush()
        except (FetchFailedError, FrameError) as error:
            LOG.debug("group %d: the snapshot of node %d was not fetched: %s", group, node, error)
            return
        if not self._is_over(hosted) and snapshot.index > view.snapshot_index:
            self._install(hosted, snapshot, node)

    def _lacking(self, hosted: HostedGroup, snapshot: Snapshot) -> list[int]:
        """Return which live entries of a snapshot are not here intact."""
        view = hosted.view
        lost = [index for index in lost_indexes(view) if index not in view.recent]
        behind = [index for index in lost if index > view.snapshot_index]
        trusted = int(view.hard_state.commit)
        if behind:
            trusted = min(trusted, behind[0] - 1)
        return self._log.missing(hosted.group, snapshot.live, trusted)

    def _install(self, hosted: HostedGroup, snapshot: Snapshot, node: int) -> None:
        """Install a snapshot of committed entries ahead of the core, which is made anew behind it.

        What follows it stays where the log agrees with it. The member's term rises to the
        snapshot's first, in which it has given no vote yet.
        """
        view, group = hosted.view, hosted.group
        if view.hard_state.term < snapshot.term:
            state = HardState(snapshot.term, 0, view.hard_state.commit)
            self._log.append(group, state, [], True, None)
        keeps = view.term_at(snapshot.index) == snapshot.term
        self._log.install_snapshot(group, snapshot, keeps)
        self._log.flush()
        LOG.warning(
            "group %d: %r of node %d takes the place of damaged entries", group, snapshot, node
        )

    def _cut(self, hosted: HostedGroup, answers: _Answers) -> None:
        """Drop what no other voter has: it was never committed.

        A committed entry is in the logs of a majority of the voters, of which this member is one at
        most, and stays in them.
        """
        voters = [m for m in hosted.core.membership.everyone() if m != hosted.core.member]
        view = hosted.view
        for index in sorted(answers.denied):
            if not voters or not answers.denied[index].issuperset(voters):
                continue
            committed = max(view.hard_state.commit, view.snapshot_index, hosted.core.commit_index)
            if committed < index <= view.last:
                LOG.warning(
                    "group %d: entry %d is damaged and no other member has it, so it was never "
                    "committed: the log is cut there",
                    hosted.group,
                    index,
                )
                cut_lost(view, index)
                return
