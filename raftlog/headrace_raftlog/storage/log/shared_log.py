"""The log that all groups of a node share."""

from __future__ import annotations

from array import array
from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.errors import LogWriteError
from headrace_raftlog.model.histogram import Histogram
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.group.cache import EntryCache, cached_bytes
from headrace_raftlog.storage.group.compaction import drop_snapshot, install, lacking
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.group.lost_entries import put_back
from headrace_raftlog.storage.log.collector import Collector
from headrace_raftlog.storage.log.group_table import GroupTable
from headrace_raftlog.storage.log.job_queue import JobQueue
from headrace_raftlog.storage.recovery import opening
from headrace_raftlog.storage.recovery.recovery import Recovery
from headrace_raftlog.storage.segment.record import (
    BATCH_FRAME_BYTES,
    GROUP_FRAME_BYTES,
    HEADER_BYTES,
)
from headrace_raftlog.storage.segment.segment import SEGMENT_HEADER_BYTES, SegmentReader
from headrace_raftlog.storage.writing import snapshot_store, write_job
from headrace_raftlog.storage.writing.identity import Identity
from headrace_raftlog.storage.writing.write_position import (
    FILES_SHARE,
    RESERVE_BYTES,
    WriterPosition,
)
from headrace_raftlog.storage.writing.writer import LogWriter

_OVERHEAD_BYTES: Final = (
    SEGMENT_HEADER_BYTES + BATCH_FRAME_BYTES + GROUP_FRAME_BYTES + RESERVE_BYTES + 3 * HEADER_BYTES
)


@final
class SharedLog:
    """Append-only, synced, checksummed storage of many groups' entries and hard states.

    Everything but the three callbacks belongs to one thread (the event loop's). What `append`
    was given is readable at once and durable when its token is called back.
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
        # where the segments are; no other log's files may be there
        self.directory = recovery.directory
        self.recovery = recovery  # what opening found (segments, what was torn), for reports
        recovery.ledger.segment_bytes = options.segment_bytes
        self._files = files
        self.lock = lock  # descriptor of the file that is locked
        self.position = position  # the writer's, to be looked at only
        self._salt: i64 = position.header.salt
        self._entry_bytes_max: i64 = options.entry_bytes_max
        self._backlog_bytes_max: i64 = options.backlog_bytes_max
        plain: i64 = options.segment_bytes - _OVERHEAD_BYTES - options.segment_bytes // FILES_SHARE
        self._job_bytes_max: i64 = min(plain, options.job_bytes_max)
        self._table = GroupTable(recovery)
        self._collector = Collector(
            self._table, self._salt, self._job_bytes_max, self._entry_bytes_max, options
        )
        # closed segments in which `collect` has found damage, for the caller to take
        self.damaged = self._collector.damaged
        self.cache = EntryCache(options.cache_bytes)  # entries in memory; it may be resized
        self._next_serial: i64 = (position.number & 0x7FFFFFFF) << 32
        self._closed = False
        # whose callbacks may be set
        self.writer = LogWriter(files, self.directory, options, position)
        self._queue = JobQueue(self._salt, self._table, self.cache, self.writer)
        # returns the number of the newest batch that is synced, 0 for none
        self.synced = self.writer.synced

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
        lock = opening.lock_directory(disk, directory)
        reader = SegmentReader(disk, directory)
        try:
            recovery = opening.recover(disk, directory, reader, identity)
            position = opening.find_position(disk, recovery, options, identity)
            reader.salt = position.header.salt
            log = SharedLog(disk, options, lock, recovery, position)
            log.writer.start()
            if jobs := opening.found_jobs(log._salt, recovery):
                log._queue.gather(jobs)
                log.flush()
            return log
        except BaseException:
            reader.close()
            disk.close(lock)
            raise

    @property
    def full(self) -> bool:
        """True if the disk is full: nothing becomes durable until there is space."""
        return self.writer.full

    @property
    def failure(self) -> LogWriteError | None:
        """Error that stopped writing, or None."""
        return self.writer.failure

    @property
    def backlog_bytes(self) -> int:
        """Bytes appended and not yet known to be durable."""
        self._queue.reap()
        return self._queue.backlog

    def writes(self) -> tuple[Histogram, int, tuple[int, int] | None]:
        """Return times to write and sync batches, their bytes, and `LogWriter.under_way`."""
        return self.writer.syncs, self.writer.written, self.writer.under_way

    @property
    def backlogged(self) -> bool:
        """True if the host should accept no more work until the disk has caught up."""
        return self.backlog_bytes >= self._backlog_bytes_max

    @property
    def quarantined(self) -> dict[int, str]:
        """Quarantined groups, with the reason; nothing of them is served.

        `begin` with a new member id makes such a group usable again.
        """
        return {group: known.reason for group, known in self._table.quarantined.items()}

    def is_kept(self, group: int) -> bool:
        """Return whether a quarantined group's data must stay: too few other nodes have it."""
        return group in self._table.quarantined and self._table.quarantined[group].kept

    def groups(self) -> list[int]:
        """Return the ids of all groups that are neither removed nor quarantined, ascending."""
        return sorted(self._table.groups)

    def known(self, group: int) -> bool:
        """Return whether the log holds anything of a group that is not removed or quarantined."""
        return group in self._table.groups

    def group(self, group: int) -> StoredGroup:
        """Return a group's view, new and empty if there is none.

        Raises KeyError: the group was removed, or is quarantined.
        """
        return self._table.view(group)

    def begin(self, group: int, member: int, membership: Membership) -> StoredGroup:
        """Forget everything of a group that came before and begin it; also ends a quarantine.

        For a group that nothing was known of, this is written with whatever needs a sync next, and
        ahead of it; otherwise with the next `flush`.

        Args:
            group: incarnation id.
            member: this node's member id in it.
            membership: the founding one; NOBODY for a member that waits to be admitted.

        Returns:
            The group's new view; an earlier one must not be used any more.

        Raises KeyError: the group was removed; LogWriteError: an earlier write failed.
        """
        self._check_open()
        self._queue.reap()
        if group in self._table.groups or group in self._table.quarantined:
            self._queue.must_sync = True
        view = self._table.begin(group, member, membership)
        newest: i64 = self._table.ledger.newest
        self._queue.begin(group, write_job.base_job(self._salt, view, max(0, newest - 1)))
        return view

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
            token: called back once this and all of the group before is durable; None: no call.

        Raises:
            KeyError: the group was removed, or is quarantined.
            LogWriteError: an earlier write failed.
            ValueError: an entry is longer than the log takes; nothing was appended.
        """
        view = self.group(group)
        self._check_open()
        self._queue.reap()
        if entries:
            self._check_entries(entries)
            view.append(entries)
            self.cache.pin(cached_bytes(entries))
        if hard_state is not None:
            known = view.hard_state
            must_sync = must_sync or (known.term, known.vote) != (hard_state.term, hard_state.vote)
            view.hard_state = hard_state
            self._queue.replace_state(group)
        if must_sync or entries:
            limit = self._job_bytes_max
            jobs = write_job.append_jobs(self._salt, view, hard_state, entries, token, limit)
            self._queue.gather(jobs)
            return
        if hard_state is not None:
            self._queue.defer_state(group, write_job.state_job(self._salt, view, hard_state))
        self._queue.note(group, token)

    def remove_group(self, group: int, token: object = None) -> None:
        """Forget a group for good; its id is refused while any of its records may be left.

        Args:
            group: incarnation id, known or not.
            token: called back once the removal is durable; None: no call.

        Raises LogWriteError: an earlier write failed.
        """
        self._check_open()
        self._queue.reap()
        self._queue.forget(group)
        if group in self._table.removed:
            self._queue.gather([write_job.note_job(group, token)])
            return
        origin = self._table.remove(group).origin
        self._queue.gather([write_job.tombstone_job(self._salt, group, origin, token)])

    def save_snapshot(self, group: int, snapshot: Snapshot, token: object = None) -> None:
        """Write a snapshot of the group's own applied state; durable, it replaces the log's start.

        From then on every entry up to its index is gone but the live ones, and `first_index` is
        behind it. One that is not newer than the group's snapshot changes nothing.

        Args:
            group: incarnation id.
            snapshot: at an applied index; every live or held entry is in the log.
            token: called back once it is durable; None: no call.

        Raises:
            AssertionError: it does not fit the log.
            KeyError: the group was removed, or is quarantined.
            LogWriteError: an earlier write failed.
        """
        view = self.group(group)
        self._check_open()
        self._queue.reap()
        if snapshot.index <= view.snapshot_index:
            self._queue.note(group, token)
            return
        assert view.term_at(snapshot.index) == snapshot.term, f"{snapshot!r} does not fit the log"
        lost = lacking(view, snapshot.kept(), snapshot.index)
        assert not lost, f"group {group}: live entry {lost[0]} is not in the log"
        self._queue.feed(self._snapshot_write(view, snapshot, token, snapshot_store.TAKEN))

    def install_snapshot(
        self, group: int, snapshot: Snapshot, keep_suffix: bool, token: object = None
    ) -> None:
        """Put a peer's snapshot in the place of the log, or of its start; visible at once.

        Args:
            group: incarnation id.
            snapshot: newer than the group's; `missing` names none of its live entries any more.
            keep_suffix: whether entries behind its index stay; else the log is empty behind it.
            token: called back once it is durable; None: no call.

        Raises:
            AssertionError: it is not newer, or a live entry is not there; nothing was changed.
            KeyError: the group was removed, or is quarantined.
            LogWriteError: an earlier write failed.
        """
        view = self.group(group)
        self._check_open()
        self._queue.reap()
        assert snapshot.index > view.snapshot_index, f"{snapshot!r} is not newer"
        write = self._snapshot_write(view, snapshot, token, snapshot_store.INSTALLED)
        kept = install(view, snapshot.index, snapshot.term, snapshot.live, keep_suffix)
        if view.snapshot is not None:
            drop_snapshot(view, view.snapshot)
        view.snapshot = write.stored
        view.membership = self._table.memberships.share(snapshot.membership)
        while not write.done:
            self._queue.gather([write.next_job(self._salt, kept)])

    def add_incoming(self, group: int, entries: list[Entry]) -> None:
        """Keep committed entries fetched from a peer for an install; they survive a restart.

        Args:
            group: incarnation id.
            entries: ascending; the list is kept and must not change afterwards.

        Raises:
            KeyError: the group was removed, or is quarantined.
            LogWriteError: an earlier write failed.
            ValueError: an entry is longer than the log takes; nothing was added.
        """
        view = self.group(group)
        self._check_open()
        self._queue.reap()
        self._check_entries(entries)
        first: i64 = view.first_index()
        fresh = [e for e in entries if e.index >= first and not view.has_incoming(e.index)]
        if fresh:
            view.add_incoming(fresh)
            limit = self._job_bytes_max
            self._queue.gather(write_job.incoming_jobs(self._salt, view, fresh, limit))

    def mend(self, group: int, entry: Entry) -> bool:
        """Put a lost entry back, of a peer or from memory; False if it is not lost, or not it."""
        fits = put_back(self.group(group), entry)
        if fits:
            self._queue.gather([write_job.mend_job(self._salt, self.group(group), entry)])
        return fits

    def missing(self, group: int, live: array[int], commit_index: int) -> list[int]:
        """Return which live entries of a peer's snapshot are to be fetched before its install.

        Args:
            group: incarnation id.
            live: indexes, ascending.
            commit_index: up to here the group's own entries are the committed ones.

        Raises KeyError: the group was removed, or is quarantined.
        """
        return lacking(self.group(group), live, commit_index)

    def read_snapshot(self, group: int) -> Snapshot | None:
        """Return a group's newest effective snapshot, None when it has none.

        Raises:
            CorruptLogError: it is not intact on disk.
            KeyError: the group was removed, or is quarantined.
            OSError: a file cannot be read.
        """
        return snapshot_store.read_snapshot(self.group(group))

    def entry_dead(self, group: int, index: int) -> None:
        """Note that the application will not read an entry again.

        A hint about what the group's next snapshot frees; what is not there is passed over.
        """
        view = self._table.groups.get(group)
        if view is not None:
            view.hint_dead(index)

    def collect(self, bytes_max: int) -> list[int]:
        """Do one bounded step of giving space back; the caller flushes afterwards.

        Files that nothing needs are removed, and live records of the file that frees most are
        copied forward when too much of the disk is held by what is dead.

        Args:
            bytes_max: bytes to copy at most, roughly.

        Returns:
            Groups, SNAPSHOT_REQUESTS_MAX at most, whose next snapshot frees a file that is wanted.

        Raises OSError: a file cannot be read.
        """
        self._check_open()
        self._queue.reap()
        if doomed := self._collector.dead_segments():
            self.writer.submit([write_job.delete_job(doomed)])
        if self.full or self.backlogged:
            return []
        self._collector.step(bytes_max)
        jobs, self._collector.jobs = self._collector.jobs, []
        asked, self._collector.asked = self._collector.asked, []
        if jobs:
            self._queue.gather(jobs)
        return asked

    def flush(self) -> None:
        """Hand what gathered since the last call to the writer; never blocks."""
        self._queue.flush()

    def step(self) -> None:
        """Do the writer's work in this thread, only with `LogOptions.stepped`.

        Everything handed over by `flush` is written and synced, its tokens are called back here;
        when nothing was, a seal is written, as after a time without work.
        """
        self.writer.step()

    def close(self) -> None:
        """Write and sync appended entries, stop the writer, release the directory.

        While the disk is full, what waits for space is given up; its tokens are never called.
        """
        if self._closed:
            return
        self._closed = True
        self._queue.must_sync = True
        self.flush()
        self.writer.close()
        self._table.reader.close()
        self._files.close(self.lock)

    def _check_open(self) -> None:
        failure = self.writer.failure
        if failure is not None:
            raise LogWriteError(str(failure))
        assert not self._closed, "the log is closed"

    def _check_entries(self, entries: list[Entry]) -> None:
        for entry in entries:
            size, most = len(entry.data), self._entry_bytes_max
            if size > most:
                raise ValueError(f"entry {entry.index} has {size} bytes, the log takes {most}")

    def _snapshot_write(
        self, view: StoredGroup, snapshot: Snapshot, token: object, kind: i64
    ) -> snapshot_store.SnapshotWrite:
        serial = self._next_serial
        self._next_serial += 1
        limit = self._job_bytes_max
        return snapshot_store.SnapshotWrite(view, snapshot, serial, token, kind, limit)
