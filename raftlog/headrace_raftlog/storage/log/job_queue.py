"""Jobs gathered between two flushes, and results of the writer."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.entry import ENTRY_NOOP
from headrace_raftlog.model.limits import SNAPSHOT_INFLIGHT_BYTES_MAX
from headrace_raftlog.storage.group.cache import EntryCache, cached_bytes
from headrace_raftlog.storage.group.compaction import drop_snapshot
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.log.group_table import GroupTable
from headrace_raftlog.storage.writing.snapshot_store import SnapshotWrite
from headrace_raftlog.storage.writing.write_job import (
    JOB_APPEND,
    JOB_PART,
    JOB_SNAPSHOT,
    WriteJob,
    note_job,
)
from headrace_raftlog.storage.writing.writer import LogWriter


@final
class JobQueue:
    """Jobs on their way to the writer and back. Belongs to the event loop's thread."""

    def __init__(self, salt: i64, table: GroupTable, cache: EntryCache, writer: LogWriter) -> None:
        self.must_sync = False  # whether the next flush has to write what may wait as well
        self.backlog: i64 = 0  # bytes gathered and not known to be durable
        self._salt = salt
        self._table = table
        self._cache = cache
        self._writer = writer
        self._gathered: list[WriteJob] = []
        self._states: dict[int, WriteJob] = {}
        self._snapshots: list[SnapshotWrite] = []
        self._snapshot_backlog: i64 = 0

    def gather(self, jobs: list[WriteJob]) -> None:
        """Queue jobs that need a sync."""
        self.must_sync = True
        for job in jobs:
            if job.kind == JOB_APPEND and job.entries:
                job.cached = cached_bytes(job.entries)
            self.backlog += job.size
            self._gathered.append(job)

    def note(self, group: int, token: object) -> None:
        """Queue a token alone: it comes back in its turn and waits for no sync of its own."""
        if token is not None:
            self._gathered.append(note_job(group, token))

    def begin(self, group: int, job: WriteJob) -> None:
        """Queue a group's beginning: it is written, in its turn, when something needs a sync."""
        self._states.pop(group, None)
        self.backlog += job.size
        self._gathered.append(job)

    def defer_state(self, group: int, job: WriteJob) -> None:
        """Write a hard state with whatever needs a sync next, unless one replaces it."""
        self._states[group] = job

    def replace_state(self, group: int) -> None:
        """Drop a hard state that waits: a newer one is written."""
        self._states.pop(group, None)

    def forget(self, group: int) -> None:
        """Drop what waits for other writes: the group is removed."""
        self._states.pop(group, None)

    def feed(self, write: SnapshotWrite) -> None:
        """Queue a snapshot, all of it at once or as room comes; it voids an earlier one's rest."""
        for earlier in self._snapshots:
            if earlier.group is write.group:
                earlier.stored.void = True
        self._snapshots.append(write)
        self._feed()

    def _feed(self) -> None:
        while self._snapshots and self._snapshot_backlog < SNAPSHOT_INFLIGHT_BYTES_MAX:
            write = self._snapshots[0]
            view = write.group
            if view.retired or write.stored.void or view.snapshot_index >= write.snapshot.index:
                drop_snapshot(view, write.stored)
                self.note(view.group, write.token)
                del self._snapshots[0]
                continue
            job = write.next_job(self._salt, view.last_index())
            self._snapshot_backlog += job.size
            self.gather([job])
            if write.done:
                del self._snapshots[0]

    def reap(self) -> None:
        """Note what the writer made durable meanwhile."""
        done = self._writer.done
        while done:
            job = done.popleft()
            self._note_lengths()
            self.backlog -= job.size
            if job.kind == JOB_PART or job.kind == JOB_SNAPSHOT:
                self._snapshot_backlog = max(0, self._snapshot_backlog - job.size)
            self._table.note(job)
            if job.kind == JOB_APPEND and job.entries and job.group is not None:
                self._keep(job.group, job)

    def _note_lengths(self) -> None:
        """Note how long the segments are that were made for long records."""
        made = self._writer.own_segments
        while made:
            sequence, size = made.popleft()
            self._table.ledger.lengths[sequence] = size

    def _keep(self, group: StoredGroup, job: WriteJob) -> None:
        """Keep written entries in memory while there is room.

        A leader's no-op is read once more at most, and most groups hold nothing else.
        """
        first = job.entries[0]
        if len(job.entries) == 1 and first.kind == ENTRY_NOOP:
            group.forget(first.index, first.index + 1)
            self._cache.unpin(job.cached)
        else:
            self._cache.settle(group, job.entries, job.cached)

    def flush(self) -> None:
        """Hand everything to the writer that needs a sync, and with it what waited for one."""
        self.reap()
        self._feed()
        ledger = self._table.ledger
        jobs = self._gathered
        if self.must_sync:
            for job in self._states.values():
                self.backlog += job.size
                jobs.append(job)
            self._states.clear()
            self._gathered = []
        else:
            self._gathered = [job for job in jobs if job.size > 0]
            jobs = [job for job in jobs if job.size == 0]
        if not jobs and not ledger.dying:
            return
        self.must_sync = False
        if ledger.dying:
            if not jobs:
                jobs = [WriteJob(None, None)]
            jobs[-1].dying = ledger.dying
            ledger.dying = {}
        self._writer.submit(jobs)
