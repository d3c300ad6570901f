"""Damage that is found while a node runs: what else is damaged, and what becomes of it.

Entries are put back from other members, while their group stands still (`suspensions.py`,
`entry_repair.py`). A hard state is written anew from memory. In the place of a snapshot another one
is taken as soon as something was applied behind it. Only where the record that begins a group is
damaged must the node start again, in the same process: the group is rebuilt then from its others.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from headrace_raftlog.ending import end_tasks, task_error
from headrace_raftlog.model.errors import DamageFoundError
from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.membership import can_do_without, member_node
from headrace_raftlog.node.host import Host
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.recovery.rot_survey import Needed, damaged_of, needed_in
from headrace_raftlog.storage.segment.record import RECORD_BASE, RECORD_ENTRY, RECORD_STATE

LOG: Final = logging.getLogger("headrace.raft")


class DamageScanner:
    """Scan of damaged files, and the handling of its findings."""

    def __init__(self, host: Host, log: SharedLog) -> None:
        self._host = host  # of all groups
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()

    def tick(self) -> None:
        """Scan files that collection could not read; take snapshots that are due."""
        while self._log.damaged:
            sequence = self._log.damaged.pop()
            LOG.error(
                "%s is damaged: what is needed of it is read once more",
                self._log.recovery.reader.path(sequence),
            )
            task = asyncio.create_task(self._look_through(sequence), name=f"survey of {sequence}")
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        lost = self._host.suspensions.lost_snapshots
        for hosted in list(lost.values()):
            if hosted.removed or self._is_replaced(hosted):
                del lost[hosted.group]

    async def stop(self) -> None:
        """End all of it."""
        await end_tasks(self._tasks)

    async def look_at(self, hosted: HostedGroup, sequence: int) -> None:
        """Read the records that a group needs of a segment, and note damage."""
        reader = self._log.recovery.reader
        needed = needed_in(hosted.view, sequence)
        if not needed:
            return
        try:
            path, salt = reader.path(sequence), int(reader.salt)
            damaged = await asyncio.to_thread(damaged_of, reader.files, path, salt, needed)
        except FileNotFoundError:
            return  # nothing in it is needed any more
        for each in damaged:
            if not hosted.removed and not self._host.stopped:
                self._found(hosted, each)

    async def _look_through(self, sequence: int) -> None:
        for hosted in self._host.groups():
            await self.look_at(hosted, sequence)
            await asyncio.sleep(0)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if (error := task_error(task)) is not None:
            self._host.fail(error)

    def _found(self, hosted: HostedGroup, damaged: Needed) -> None:
        view, location = hosted.view, damaged.location
        if damaged.record_type == RECORD_ENTRY:
            if view.location_of(damaged.entry_index) == location:
                self._host.suspensions.note(hosted, damaged.entry_index)
        elif damaged.record_type == RECORD_STATE:
            if view.state_at == location:
                LOG.warning("group %d: damaged hard state rewritten", hosted.group)
                self._log.append(hosted.group, view.hard_state, [], True, None)
        elif damaged.record_type == RECORD_BASE:
            if view.base_at == location:
                self._begin_anew(hosted, damaged)
        elif view.snapshot is not None and (
            view.snapshot.location == location or location in view.snapshot.parts
        ):
            self._host.suspensions.snapshot_lost(hosted)

    def _begin_anew(self, hosted: HostedGroup, damaged: Needed) -> None:
        """Rebuild a group whose beginning is damaged, if the other members go on meanwhile."""
        at = damaged.location
        where = f"{self._log.recovery.reader.path(at >> 32)}, byte {at & 0xFFFFFFFF}"
        text = f"group {hosted.group}: the record that begins it is damaged ({where})"
        core = hosted.core
        if can_do_without(core.membership, member_node(core.member)):
            self._host.fail(DamageFoundError(f"{text}; it is rebuilt from the other members"))
            return
        LOG.critical(
            "%s, and too few other nodes have the group. It is served until this node stops; back "
            "it up and restore it",
            text,
        )

    def _is_replaced(self, hosted: HostedGroup) -> bool:
        """Take the snapshot of a group that is due, if something was applied since the damaged one.

        A leader to which nothing comes hands over: whoever leads next begins with an entry.
        """
        host, core = self._host, hosted.core
        if hosted.view.snapshot is not hosted.snapshot_lost:
            LOG.warning("group %d: damaged snapshot replaced by a new one", hosted.group)
            hosted.snapshot_lost = None
            return True
        if hosted.suspended or host.stopped or host.snapshots.take(hosted):
            return False
        waits = hosted.saved_index > hosted.view.snapshot_index  # for the disk
        if core.role == LEADER and core.ready_to_serve and not core.transferee and not waits:
            target = hosted.successor(frozenset(host.nodes_up()))
            if not target or not host.transfer(hosted, target):
                host.resign(hosted)
        return False
