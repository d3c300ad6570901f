"""The log that all groups of a node share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.errors import IdentityError, LogLockedError, LogWriteError
from headrace_raftlog.model.limits import WRITE_BACKLOG_BYTES_MAX, WRITE_JOB_BYTES_MAX
from headrace_raftlog.storage.cache import EntryCache, cached_bytes
from headrace_raftlog.storage.files import Files
from headrace_raftlog.storage.group_log import StoredGroup
from headrace_raftlog.storage.identity import Identity
from headrace_raftlog.storage.options import LogOptions
from headrace_raftlog.storage.record import BATCH_FRAME_BYTES, HEADER_BYTES, SECTOR_BYTES
from headrace_raftlog.storage.recovery import Recovery, repair
from headrace_raftlog.storage.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentDraft,
    SegmentHeader,
    SegmentReader,
)
from headrace_raftlog.storage.write_job import WriteJob, append_jobs, state_job, tombstone_job
from headrace_raftlog.storage.writer import LogWriter, WriterPosition

LOCK_NAME: Final = "lock"
_OVERHEAD_BYTES: Final = (
    SEGMENT_HEADER_BYTES + BATCH_FRAME_BYTES + 2 * SECTOR_BYTES + 2 * HEADER_BYTES
)


def _lock(files: Files, directory: str) -> int:
    path = os.path.join(directory, LOCK_NAME)
    try:
        return files.lock(path)
    except BlockingIOError:
        raise LogLockedError(
            f"{directory} is in use: another process, or this one a second time, has {path} locked"
        ) from None


def _check_identity(identity: Identity | None, header: SegmentHeader, path: str) -> None:
    if identity is None:
        return
    if (header.cluster, header.node) != (identity.cluster, identity.node):
        raise IdentityError(
            f"{path} belongs to node {header.node} of cluster {header.cluster!r}, "
            f"this is node {identity.node} of cluster {identity.cluster!r}"
        )


@final
class SharedLog:
    """Append-only, synced, checksummed storage of many groups' entries and hard states.

    Everything but the three callbacks belongs to one thread (the event loop's). What `append`
    was given is readable at once and durable when its token is called back.

    Attributes:
        directory: where the segments are; no other log's files may be there.
        recovery: what opening found (segments, what was torn), for reports.
    """

    def __init__(
        self,
        files: Files,
        options: LogOptions,
        lock: int,
        recovery: Recovery,
        position: WriterPosition,
    ) -> None:
        """Use `open`."""
        self.directory = recovery.directory
        self.recovery = recovery
        self._files = files
        self._lock = lock
        self._salt: i64 = position.header.salt
        self._entry_bytes_max: i64 = options.segment_bytes - _OVERHEAD_BYTES
        self._job_bytes_max: i64 = min(self._entry_bytes_max, WRITE_JOB_BYTES_MAX)
        self._groups = recovery.groups
        self._removed = recovery.removed
        self._reader = recovery.reader
        self._cache = EntryCache(options.cache_bytes)
        self._gathered: list[WriteJob] = []
        self._lazy: dict[int, WriteJob] = {}
        self._must_sync = False
        self._backlog: i64 = 0
        self._closed = False
        self._writer = LogWriter(files, self.directory, options, position)

    @staticmethod
    def open(
        directory: str,
        options: LogOptions,
        identity: Identity | None = None,
        files: Files | None = None,
    ) -> SharedLog:
        """Recover the log of a directory, or begin one, and start its writer.

        Args:
            directory: created with its parents when missing.
            options: how to use disk and memory.
            identity: stands in new segments and must match those found; None: not checked.
            files: the file system, for tests.

        Raises:
            CorruptLogError: something is damaged that may have been acknowledged; nothing was
                changed on disk.
            IdentityError: the segments are another node's.
            LogLockedError: the directory is in use.
            OSError: as the system says.
        """
        disk = files if files is not None else Files()
        disk.make_directory(directory)
        lock = _lock(disk, directory)
        reader = SegmentReader(disk, directory)
        try:
            recovery = Recovery(disk, directory, reader)
            recovery.run()
            for header in recovery.headers:
                _check_identity(identity, header, reader.path(header.sequence))
            repair(recovery)
            position = _begin(disk, recovery, options, identity)
            reader.salt = position.header.salt
            log = SharedLog(disk, options, lock, recovery, position)
            log._writer.start()
            return log
        except BaseException:
            reader.close()
            disk.close(lock)
            raise

    @property
    def full(self) -> bool:
        """Whether the disk is full: nothing becomes durable until there is space."""
        return self._writer.full

    @property
    def failure(self) -> LogWriteError | None:
        """Why nothing is written any more, or None."""
        return self._writer.failure

    @property
    def backlog_bytes(self) -> int:
        """Bytes appended and not yet known to be durable."""
        self._reap()
        return self._backlog

    @property
    def backlogged(self) -> bool:
        """Whether the host should take no more work until the disk has caught up."""
        return self.backlog_bytes >= WRITE_BACKLOG_BYTES_MAX

    @property
    def on_durable(self) -> Callable[[list[object]], None]:
        """Called in the writer thread with the tokens of a batch, in the order of their appends."""
        return self._writer.on_durable

    @on_durable.setter
    def on_durable(self, callback: Callable[[list[object]], None]) -> None:
        self._writer.on_durable = callback

    @property
    def on_full(self) -> Callable[[bool], None]:
        """Called in the writer thread when the disk is full (True) and has space again (False)."""
        return self._writer.on_full

    @on_full.setter
    def on_full(self, callback: Callable[[bool], None]) -> None:
        self._writer.on_full = callback

    @property
    def on_failed(self) -> Callable[[LogWriteError], None]:
        """Called in the writer thread once, when a write or sync failed; the node must stop."""
        return self._writer.on_failed

    @on_failed.setter
    def on_failed(self, callback: Callable[[LogWriteError], None]) -> None:
        self._writer.on_failed = callback

    def groups(self) -> list[int]:
        """Return the ids of all groups that are not removed, ascending."""
        return sorted(self._groups)

    def group(self, group: int) -> StoredGroup:
        """Return a group's view, new and empty if there is none.

        Raises:
            KeyError: the group was removed; ids are never used again.
        """
        found = self._groups.get(group)
        if found is None:
            if group in self._removed:
                raise KeyError(f"group {group} was removed")
            found = StoredGroup(group, self._reader)
            self._groups[group] = found
        return found

    def append(
        self,
        group: int,
        hard_state: HardState | None,
        entries: list[Entry],
        must_sync: bool,
        token: object,
    ) -> None:
        """Make entries and hard state visible now and durable later.

        Entries at or below the last index replace everything from there on.

        Args:
            group: incarnation id.
            hard_state: new hard state, or None for no change.
            entries: consecutive, possibly none; the list is kept and must not change afterwards.
            must_sync: False when only a commit hint changed: it then waits for the next sync
                that something else needs, and its token does not wait for it.
            token: called back once this and every earlier append is durable; None: no call.

        Raises:
            KeyError: the group was removed.
            LogWriteError: an earlier write failed.
            ValueError: an entry is longer than a segment takes; nothing was appended.
        """
        view = self.group(group)
        self._check_open()
        self._reap()
        cost: i64 = 0
        if entries:
            self._check_entries(entries)
            cost = cached_bytes(entries)
            view.append(entries)
            self._cache.pin(cost)
        if hard_state is not None:
            known = view.hard_state
            must_sync = must_sync or (known.term, known.vote) != (hard_state.term, hard_state.vote)
            view.hard_state = hard_state
            self._lazy.pop(group, None)
        if must_sync or entries:
            jobs = append_jobs(self._salt, view, hard_state, entries, token, self._job_bytes_max)
            self._gather(jobs)
            self._must_sync = True
            return
        if hard_state is not None:
            self._lazy[group] = state_job(self._salt, group, hard_state)
        if token is not None:
            self._gathered.append(WriteJob(None, token))

    def remove_group(self, group: int, token: object = None) -> None:
        """Forget a group for good; its id is refused from now on.

        Args:
            group: incarnation id, known or not.
            token: called back once the removal is durable; None: no call.

        Raises:
            LogWriteError: an earlier write failed.
        """
        self._check_open()
        self._groups.pop(group, None)
        self._lazy.pop(group, None)
        self._removed.add(group)
        self._gather([tombstone_job(self._salt, group, token)])
        self._must_sync = True

    def flush(self) -> None:
        """Hand what gathered since the last call to the writer; never blocks."""
        self._reap()
        if self._must_sync:
            if self._lazy:
                self._gather(list(self._lazy.values()))
                self._lazy.clear()
        elif not self._gathered:
            return
        self._must_sync = False
        jobs, self._gathered = self._gathered, []
        self._writer.submit(jobs)

    def step(self) -> None:
        """Do the writer's work in this thread, only with `LogOptions.stepped`.

        Everything handed over by `flush` is written and synced, its tokens are called back here;
        when nothing was, a seal is written, as after a time without work.
        """
        self._writer.step()

    def close(self) -> None:
        """Write and sync what was appended, stop the writer, release the directory.

        While the disk is full, what waits for space is given up; its tokens are never called.
        """
        if self._closed:
            return
        self._closed = True
        self._must_sync = True
        self.flush()
        self._writer.close()
        self._reader.close()
        self._files.close(self._lock)

    def _check_open(self) -> None:
        failure = self._writer.failure
        if failure is not None:
            raise LogWriteError(str(failure))
        assert not self._closed, "the log is closed"

    def _check_entries(self, entries: list[Entry]) -> None:
        for entry in entries:
            if len(entry.data) > self._entry_bytes_max:
                raise ValueError(
                    f"entry {entry.index} has {len(entry.data)} bytes, "
                    f"a segment takes {self._entry_bytes_max}"
                )

    def _gather(self, jobs: list[WriteJob]) -> None:
        for job in jobs:
            if job.entries:
                job.cached = cached_bytes(job.entries)
            self._backlog += job.size
            self._gathered.append(job)

    def _reap(self) -> None:
        """Note what the writer made durable meanwhile."""
        done = self._writer.done
        while done:
            job = done.popleft()
            self._backlog -= job.size
            group = job.group
            if group is not None and job.entries:
                group.settle(job.entries, job.location + job.lead)
                self._cache.settle(group, job.entries, job.cached)


def _begin(
    files: Files, recovery: Recovery, options: LogOptions, identity: Identity | None
) -> WriterPosition:
    """Return where to go on writing; create the first segment of a new log."""
    last = recovery.last
    if recovery.headers:
        header = recovery.headers[-1]
        fd = files.open(recovery.reader.path(header.sequence), write=True)
        offset = SEGMENT_HEADER_BYTES if last is None else last.end
        return WriterPosition(header, fd, offset, recovery.next_number)
    salt = int.from_bytes(files.random(4), "little") | 1
    node, cluster = (identity.node, identity.cluster) if identity is not None else (0, "")
    header = SegmentHeader(1, options.segment_bytes, salt, node, cluster)
    draft = SegmentDraft(files, recovery.directory, header)
    return WriterPosition(header, draft.finish(), SEGMENT_HEADER_BYTES, 1)
