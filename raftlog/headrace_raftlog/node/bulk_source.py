"""Snapshots and entries that other nodes may fetch from this one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.errors import CorruptLogError, LostEntryError
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.model.state_digest import StateDigest
from headrace_raftlog.node.host import Host
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.writing.snapshot_store import SnapshotRead


class HostedSource:
    """The snapshots and committed entries of the groups of a host."""

    def __init__(self, host: Host, log: SharedLog) -> None:
        self._host = host
        self._log = log

    async def snapshot(self, group: int) -> Snapshot | None:
        """Return the newest snapshot of a group, None where there is none."""
        while not self._host.stopped and (hosted := self._host.find(group)) is not None:
            view = self._log.group(group)
            stored = view.snapshot
            if stored is None or stored.pending is not None:
                return None if stored is None else stored.pending
            try:
                if await self._advance(view, reading := SnapshotRead(view, stored)):
                    return reading.snapshot()
            except CorruptLogError:
                self._host.suspensions.snapshot_lost(hosted)
                return None
        return None

    async def _advance(self, view: StoredGroup, reading: SnapshotRead) -> bool:
        """Read a snapshot; False where a newer one has taken its place meanwhile."""
        read = asyncio.Event()
        while not reading.advance(read.set):
            await read.wait()
            read.clear()
            if self._host.stopped or view.snapshot is not reading.stored:
                return False
        return True

    def snapshot_bytes(self, group: int) -> int:
        """Return about how many bytes the newest snapshot of a group has, without reading it."""
        stored = self._log.group(group).snapshot if self._log.known(group) else None
        return 0 if stored is None else int(stored.size)

    def length(self, group: int, index: int) -> int | None:
        """Return the length of a committed entry, None where it is not there or no longer."""
        hosted = self._host.find(group)
        if self._host.stopped or hosted is None or index > hosted.core.commit_index:
            return None
        return int(hosted.view.length_of(index)) if hosted.view.has(index) else None

    def prepare(self, group: int, index: int, done: Callable[[], None]) -> bool:
        """Read an entry ahead for `entry`; see `StoredGroup.prepare`."""
        hosted = self._host.find(group)
        if self._host.stopped or hosted is None:
            return True
        return hosted.view.prepare(index, done)

    def entry(self, group: int, index: int) -> Entry | None:
        """Return a committed entry, None where it is not there or no longer."""
        hosted = self._host.find(group)
        if self._host.stopped or hosted is None or index > hosted.core.commit_index:
            return None
        try:
            return hosted.view.entry(index)
        except KeyError:
            return None
        except LostEntryError as error:
            self._host.suspensions.note(hosted, error.index)
            return None

    def stored_entry(self, group: int, index: int, term: int, member: int) -> Entry | None:
        """See `BulkSource`: from the log, so that a suspended group is served too."""
        if self._host.stopped or not self._log.known(group):
            raise LookupError(f"group {group} is not served here")
        view = self._log.group(group)
        if index > view.snapshot_index and term and view.term_at(index) != term:
            if view.member != member:
                raise LookupError(f"group {group}: the member here is another one")
            return None
        if not term and index > self._committed(group):
            raise LookupError(f"group {group}: entry {index} is not known to be committed here")
        if not view.has(index):
            raise KeyError(f"group {group} keeps no entry {index}")
        try:
            entry = view.entry(index)
        except LostEntryError as error:
            hosted = self._host.find(group)
            if hosted is not None:
                self._host.suspensions.note(hosted, error.index)
            raise LookupError(f"group {group}: entry {index} is damaged here too") from error
        if term and entry.term != term:
            raise KeyError(f"group {group}: entry {index} is of term {entry.term}")
        return entry

    def digest(self, group: int, index: int) -> StateDigest | None:
        """See `BulkSource`."""
        hosted = self._host.find(group)
        if self._host.stopped or hosted is None or hosted.suspended:
            return None
        return hosted.digest_at(index)

    def rebuild(self, group: int, leader: int, wrong: StateDigest) -> bool:
        """See `BulkSource`."""
        known, hosted = self.digest(group, wrong.index), self._host.find(group)
        if known is None or hosted is None or hosted.core.leader != leader:
            return False
        if (known.member, known.digest) != (wrong.member, wrong.digest):
            return False
        self._host.suspensions.diverged(hosted, wrong.index)
        return True

    def _committed(self, group: int) -> int:
        """Return up to where the log of a group is known to be committed."""
        view, hosted = self._log.group(group), self._host.find(group)
        known = max(int(view.hard_state.commit), int(view.snapshot_index))
        return known if hosted is None else max(known, int(hosted.core.commit_index))
