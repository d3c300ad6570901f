"""All groups of a log, and the notes for when their records become durable."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.model.membership import Membership
from headrace_raftlog.storage.group.compaction import compact, drop_snapshot, retire
from headrace_raftlog.storage.group.group_log import STATE_BYTES, StoredGroup
from headrace_raftlog.storage.group.snapshot_record import StoredSnapshot
from headrace_raftlog.storage.recovery.record_replay import Tombstone
from headrace_raftlog.storage.recovery.recovery import Recovery
from headrace_raftlog.storage.segment.record import (
    RECORD_BASE,
    RECORD_ENTRY,
    RECORD_INCOMING,
    RECORD_PART,
    RECORD_QUARANTINE,
    RECORD_SNAPSHOT,
    RECORD_TOMBSTONE,
)
from headrace_raftlog.storage.writing.write_job import (
    JOB_APPEND,
    JOB_BASE,
    JOB_INCOMING,
    JOB_MOVE,
    JOB_NOTE,
    JOB_PART,
    JOB_QUARANTINE,
    JOB_SNAPSHOT,
    JOB_TOMBSTONE,
    Moved,
    WriteJob,
)

_ERA_GAP: Final = 1 << 16  # eras a damaged group may have had that nobody could read


@final
class GroupTable:
    """The groups and the accounts. Belongs to the event loop's thread."""

    def __init__(self, recovery: Recovery) -> None:
        """Take over what recovery found."""
        self.groups = recovery.groups  # by id, without removed and quarantined ones
        # groups that were removed, while files may still hold records of them
        self.removed = recovery.replay.removed
        self.quarantined = recovery.quarantined  # groups whose data cannot be trusted
        self.ledger = recovery.ledger  # accounts of the segments
        self.reader = recovery.reader  # of the segments
        self.memberships = recovery.memberships  # those that groups share

    def view(self, group: i64) -> StoredGroup:
        """Return a group's view, new and empty if there is none.

        Raises KeyError: the group was removed, or is quarantined.
        """
        found = self.groups.get(group)
        if found is None:
            if group in self.removed:
                raise KeyError(f"group {group} was removed")
            known = self.quarantined.get(group)
            if known is not None:
                raise KeyError(f"group {group} is quarantined: {known.reason}")
            found = StoredGroup(group, self.reader, self.ledger)
            self.groups[group] = found
        return found

    def begin(self, group: i64, member: i64, membership: Membership) -> StoredGroup:
        """Put a new view in the place of whatever there is of a group.

        Returns:
            The view.

        Raises KeyError: the group was removed.
        """
        if group in self.removed:
            raise KeyError(f"group {group} was removed")
        view = StoredGroup(group, self.reader, self.ledger)
        view.era = 1
        old = self.groups.get(group)
        known = self.quarantined.pop(group, None)
        if old is not None:
            view.era = old.era + 1
            view.origin = old.origin
            retire(old)
        if known is not None:
            view.era = known.era + _ERA_GAP
            view.origin = known.origin
            self.ledger.die(known.location, known.size)
        view.member = member
        view.membership = self.memberships.share(membership)
        self.groups[group] = view
        return view

    def remove(self, group: i64) -> Tombstone:
        """Forget a group, known or not, that was not removed before."""
        view = self.groups.pop(group, None)
        known = self.quarantined.pop(group, None)
        origin: i64 = 0
        if view is not None:
            origin = view.origin
            retire(view)
        if known is not None:
            origin = known.origin
            self.ledger.die(known.location, known.size)
        if origin == 0:
            origin = max(1, self.ledger.newest)
        tomb = Tombstone(origin, 0, 0)
        self.removed[group] = tomb
        return tomb

    def note(self, job: WriteJob) -> None:
        """Note that a job is durable."""
        kind: i64 = job.kind
        if kind != JOB_NOTE:
            group = job.group
            if group is not None:
                if group.origin == 0:
                    group.origin = job.location >> 32
                self._note_group(job, group, kind)
            elif kind == JOB_MOVE:
                self._note_moved(job)
            elif kind == JOB_TOMBSTONE:
                self._note_tombstone(job)
            elif kind == JOB_QUARANTINE:
                self._note_quarantine(job)
        if job.dying is not None:
            self.ledger.settle(job.dying)

    def _note_group(self, job: WriteJob, group: StoredGroup, kind: i64) -> None:
        if kind == JOB_APPEND:
            if job.lead > 0:
                self._note_state(group, job.location)
            if job.entries:
                group.settle(job.entries, job.location + job.lead)
        elif kind == JOB_INCOMING:
            group.settle_incoming(job.entries, job.location)
        elif kind == JOB_BASE:
            group.base_at = job.location
            group.base_bytes = job.size
            self._count(job, group.retired)
        elif kind == JOB_PART:
            stored = job.snapshot
            assert stored is not None
            stored.parts[job.part] = job.location
            self._count(job, group.retired or stored.void)
        elif kind == JOB_SNAPSHOT:
            self._note_snapshot(job, group)

    def _count(self, job: WriteJob, dead: bool) -> None:
        self.ledger.add(job.location, job.size)
        if dead:
            self.ledger.die(job.location, job.size)

    def _note_state(self, group: StoredGroup, location: i64) -> None:
        self.ledger.add(location, STATE_BYTES)
        if group.retired:
            self.ledger.die(location, STATE_BYTES)
            return
        if group.state_at:
            self.ledger.drop(group.state_at >> 32, STATE_BYTES)
        group.state_at = location

    def _note_snapshot(self, job: WriteJob, group: StoredGroup) -> None:
        stored = job.snapshot
        assert stored is not None
        stored.location = job.location
        taken = stored.pending
        stored.pending = None
        self._count(job, group.retired or stored.void)
        if group.retired or stored.void or group.snapshot is stored:
            return
        assert taken is not None
        if stored.index <= group.snapshot_index:
            drop_snapshot(group, stored)
            return
        compact(group, stored.index, stored.term, taken.kept())
        if group.snapshot is not None:
            drop_snapshot(group, group.snapshot)
        group.snapshot = stored
        group.membership = self.memberships.share(taken.membership)

    def _note_tombstone(self, job: WriteJob) -> None:
        tomb = self.removed[job.groups[0]]
        tomb.location = job.location
        tomb.end = job.location >> 32
        self._count(job, False)

    def _note_quarantine(self, job: WriteJob) -> None:
        known = self.quarantined.get(job.groups[0])
        self._count(job, known is None)
        if known is not None:
            known.location = job.location
            known.size = job.size

    def _note_moved(self, job: WriteJob) -> None:
        location: i64 = job.location
        for moved in job.moved:
            if self.relocate(moved, location):
                self.ledger.add(location, moved.size)
                self.ledger.drop(moved.location >> 32, moved.size)
            location += moved.size

    def relocate(self, moved: Moved, location: i64) -> bool:
        """Note the new place of a record; return False if it is not needed any more."""
        if moved.record_type == RECORD_TOMBSTONE:
            tomb = self.removed.get(moved.group)
            if tomb is None or tomb.location != moved.location:
                return False
            tomb.location = location
            return True
        if moved.record_type == RECORD_QUARANTINE:
            known = self.quarantined.get(moved.group)
            if known is None or known.location != moved.location:
                return False
            known.location = location
            return True
        group = self.groups.get(moved.group)
        if group is None:
            return False
        if moved.record_type == RECORD_ENTRY or moved.record_type == RECORD_INCOMING:
            return group.move_entry(moved.index, moved.location, location)
        if moved.record_type == RECORD_BASE:
            if group.base_at != moved.location:
                return False
            group.base_at = location
            return True
        stored = group.snapshot
        return stored is not None and relocate_snapshot(stored, moved, location)


def relocate_snapshot(stored: StoredSnapshot, moved: Moved, location: i64) -> bool:
    """Note where a snapshot's record stands now; return False when it is not that snapshot's."""
    if moved.record_type == RECORD_SNAPSHOT:
        if stored.location != moved.location:
            return False
        stored.location = location
        return True
    assert moved.record_type == RECORD_PART
    if moved.index >= len(stored.parts) or stored.parts[moved.index] != moved.location:
        return False
    stored.parts[moved.index] = location
    return True
