"""Collection of dead space, in bounded steps.

A closed segment without live bytes is removed. Of the others the one that would free most is looked
through batch by batch: its live records are copied forward, and groups whose next snapshot would
free the rest are named. Cleaning by copying follows Rosenblum and Ousterhout, "The Design and
Implementation of a Log-Structured File System", SOSP 1991, section 3.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.model.limits import (
    COLLECT_READ_BYTES_MIN,
    COLLECT_REST_STEPS,
    SNAPSHOT_REQUESTS_MAX,
)
from headrace_raftlog.storage.disk.files import is_lost
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.group.accounting import SegmentUse
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.log.group_table import GroupTable
from headrace_raftlog.storage.segment.disk_reads import tell_nobody
from headrace_raftlog.storage.segment.record import (
    FLAG_COPY,
    HEADER_BYTES,
    RECORD_BASE,
    RECORD_ENTRY,
    RECORD_INCOMING,
    RECORD_PART,
    RECORD_PLACED,
    RECORD_QUARANTINE,
    RECORD_SNAPSHOT,
    RECORD_STATE,
    RECORD_TOMBSTONE,
    SECTOR_BYTES,
    Batch,
    encode_copy,
    encode_record,
    find_records,
    head_number_at,
    header_is_checked,
    read_batch,
    record_era_at,
    record_group_at,
    record_index_at,
    record_length_at,
    record_term_at,
    record_type_at,
    sector_end,
)
from headrace_raftlog.storage.segment.segment import SEGMENT_HEADER_BYTES
from headrace_raftlog.storage.writing.write_job import JOB_MOVE, Moved, WriteJob, state_job

_WINDOW_BYTES: Final = 1 << 20  # bytes read at once; a longer batch is read on its own
_ZEROS: Final = bytes(SECTOR_BYTES)
_NOTHING: Final = b"\xff" * SECTOR_BYTES  # in the place of what the disk has lost: no batch


@final
class Collector:
    """Collector: decides which segments go and which records move. On the event loop's thread."""

    def __init__(
        self,
        table: GroupTable,
        salt: i64,
        job_bytes_max: i64,
        entry_bytes_max: i64,
        options: LogOptions,
    ) -> None:
        self.jobs: list[WriteJob] = []  # copies to be written, for the caller to take
        # groups whose next snapshot would free a file that is wanted, likewise
        self.asked: list[int] = []
        self.damaged: list[int] = []  # files in which something is not intact, likewise
        self._table = table
        self._salt = salt
        self._job_bytes_max = job_bytes_max
        self._record_bytes_max: i64 = entry_bytes_max + HEADER_BYTES
        self._spare_bytes: i64 = options.spare_files * options.segment_bytes
        self._victim: SegmentUse | None = None
        self._seen: set[int] = set()
        self._window = b""
        self._window_at: i64 = 0
        self._at: i64 = 0
        self._batch: Batch | None = None
        self._placed: list[tuple[int, int, int]] = []  # places, lengths, numbers of records
        self._next_at: i64 = 0  # where the batch behind stands
        self._record: i64 = 0
        self._moved: i64 = 0
        self._read: i64 = 0

    def dead_segments(self) -> list[int]:
        """Take the closed segments that nothing needs out of the accounts; return them."""
        table, ledger = self._table, self._table.ledger
        pins: set[int] = set()
        for known in table.quarantined.values():
            if known.location == 0 or known.kept:
                return []
            pins.add(known.sequence)
        out: list[int] = []
        for use in ledger.segments.values():
            if use.pinned and use.sequence not in pins:
                use.pinned = ""
            if use.live == 0 and use.sequence < ledger.newest and not use.pinned:
                out.append(use.sequence)
        for sequence in out:
            ledger.close(sequence)
            table.reader.forget(sequence)
            if self._victim is not None and self._victim.sequence == sequence:
                self._leave()
        return out

    def step(self, bytes_max: i64) -> None:
        """Copy up to about `bytes_max` bytes of live records out of the file that frees most."""
        self._moved = 0
        self._read = 0
        self._age()
        if self._victim is None:
            self._choose()
        read_max: i64 = max(4 * bytes_max, COLLECT_READ_BYTES_MIN)
        while self._victim is not None and self._moved < bytes_max and self._read < read_max:
            batch = self._batch
            if batch is None:
                if not self._next_batch(self._victim):
                    return
            elif self._record < len(batch.offsets):
                if len(self.asked) >= SNAPSHOT_REQUESTS_MAX:
                    return
                offset: i64 = batch.offsets[self._record]
                self._record += 1
                self._look_at(self._victim, offset)
            else:
                self._at = self._next_at
                self._batch = None

    def _age(self) -> None:
        for use in self._table.ledger.segments.values():
            if use.rest > 0:
                use.rest -= 1

    def _choose(self) -> None:
        """Take the file that would free most of itself, if the closed files hold too much dead.

        So its live part is at most two thirds, and a long record with a segment of its own stays.
        The bound to keep is twice the live data, two files, the one in use and the one being
        prepared, and what is spare. Collection begins earlier, for copies need room before they
        free any.
        """
        ledger = self._table.ledger
        closed: i64 = 0
        most: i64 = 0  # of `best`, as long as it is
        best: SegmentUse | None = None
        for use in ledger.segments.values():
            if use.sequence >= ledger.newest or use.rest > 0:
                continue
            closed += use.size
            gain: i64 = use.size - use.live + use.soon
            if use.pinned or use.stuck or gain <= 0:
                continue
            if best is None or gain * best.size > most * use.size:
                most = gain
                best = use
        if best is None:
            return
        kept: i64 = ledger.live - ledger.soon
        if (closed - self._spare_bytes) * 2 <= kept * 3:
            return
        self._victim = best
        self._at = SEGMENT_HEADER_BYTES
        self._window = b""
        self._window_at = 0
        self._batch = None
        self._placed = []

    def _leave(self) -> None:
        self._victim = None
        self._window = b""
        self._batch = None
        self._placed = []
        self._seen = set()

    def _next_batch(self, use: SegmentUse) -> bool:
        """Read the batch at the current position, or leave the file at its end.

        What the batch before placed comes first.

        Returns:
            False while a thread reads what is needed for that.
        """
        if self._placed:
            return self._next_placed(use)
        batch = self._parse()
        if batch is None:
            if not self._load(use, _WINDOW_BYTES):
                return False
            batch = self._parse()
        if batch is None and len(self._window) >= HEADER_BYTES:
            size: i64 = record_term_at(self._window, 0)
            if _WINDOW_BYTES < size <= use.size and head_number_at(self._window, 0, self._salt):
                if not self._load(use, sector_end(size)):
                    return False
                batch = self._parse()
        if batch is not None:
            self._batch = batch
            self._record = 0
            self._next_at = self._window_at + batch.follows
            return True
        if self._window[:SECTOR_BYTES] == _ZEROS[: len(self._window)]:
            use.passes += 1
            use.rest = COLLECT_REST_STEPS
            self._leave()
        else:
            self._give_up(use)
        return True

    def _next_placed(self, use: SegmentUse) -> bool:
        """Read records that a batch placed elsewhere, like a batch; False while they are read."""
        start, size, count = self._placed[-1]
        self._at = start
        if size > _WINDOW_BYTES:
            if not self._load(use, SECTOR_BYTES):
                return False
            kept = self._kept_of(use, size, count)
            if kept < size:
                size, count = int(kept), count - 1
                self._placed[-1] = start, size, count
        if size == 0:
            self._placed.pop()
            self._at = self._next_at
            return True
        if not self._load(use, size):
            return False
        self._placed.pop()
        batch = Batch(0, 0)
        if len(self._window) == size and find_records(
            self._window, 0, size, count, self._salt, batch.offsets
        ):
            self._batch = batch
            self._record = 0
        else:
            self._give_up(use)
        return True

    def _kept_of(self, use: SegmentUse, size: i64, count: i64) -> i64:
        """Return how much of a placed stretch to look at: not its last record if that is dead.

        Such a stretch is one long entry, perhaps behind a hard state; its head says enough. The
        window holds the beginning.
        """
        at: i64 = 0
        left: i64 = count
        while at + HEADER_BYTES <= len(self._window) and header_is_checked(self._window, at):
            left -= 1
            end: i64 = at + HEADER_BYTES + record_length_at(self._window, at)
            if left == 0:
                return size if end != size or self._has_to_move(use, at) else at
            at = end
        return size

    def _has_to_move(self, use: SegmentUse, offset: i64) -> bool:
        """Return whether a record of the window is to be read: all but entries that may go.

        An entry that the application reads no more is left where it is, and a snapshot is asked
        for, as in `_look_at`.
        """
        data = self._window
        if record_type_at(data, offset) not in (RECORD_ENTRY, RECORD_INCOMING):
            return True
        group: i64 = record_group_at(data, offset)
        index: i64 = record_index_at(data, offset)
        view = self._table.groups.get(group)
        location: i64 = (i64(use.sequence) << 32) | (self._window_at + offset)
        if view is None or not view.keeps(index, location):
            return False
        if use.passes < 2 and view.location_of(index) == location and view.is_hinted(index):
            self._ask(group)
            return False
        return True

    def _give_up(self, use: SegmentUse) -> None:
        """Leave a file in which something is not intact."""
        use.stuck = True
        self.damaged.append(use.sequence)
        use.rest = COLLECT_REST_STEPS
        self._leave()

    def _load(self, use: SegmentUse, count: i64) -> bool:
        """Read a window; False, and nothing changes, while a thread has yet to read it."""
        size: i64 = min(count, use.size - self._at)
        location: i64 = use.sequence << 32 | self._at
        reader = self._table.reader
        if not reader.prepare(location, size, location, use.sequence, 0, tell_nobody):
            return False
        try:
            self._window = reader.read(use.sequence, self._at, size)
        except OSError as error:
            if not is_lost(error):
                raise
            self._window = _NOTHING
        self._window_at = self._at
        self._read += len(self._window)
        return True

    def _parse(self) -> Batch | None:
        """Return the batch at the current position if the window holds it whole."""
        start: i64 = self._at - self._window_at
        if start >= len(self._window):
            return None
        number: i64 = head_number_at(self._window, start, self._salt)
        if number == 0:
            return None
        batch = read_batch(self._window, start, number, self._salt, self._window_at)
        return batch if batch.end else None

    def _look_at(self, use: SegmentUse, offset: i64) -> None:
        """Copy a record if it is needed."""
        data = self._window
        record_type: i64 = record_type_at(data, offset)
        group: i64 = record_group_at(data, offset)
        location: i64 = (i64(use.sequence) << 32) | (self._window_at + offset)
        size: i64 = HEADER_BYTES + record_length_at(data, offset)
        index: i64 = record_index_at(data, offset)
        if record_type == RECORD_TOMBSTONE:
            self._look_at_tombstone(use, group, location)
            return
        if record_type == RECORD_PLACED:
            place = record_term_at(data, offset), index, record_era_at(data, offset)
            self._placed.append(place)
            return
        if record_type == RECORD_QUARANTINE:
            known = self._table.quarantined.get(group)
            if known is not None and known.location == location:
                self._copy(record_type, group, 0, location, data, offset, size)
            return
        view = self._table.groups.get(group)
        if view is None:
            return
        if record_type in (RECORD_ENTRY, RECORD_INCOMING):
            if not view.keeps(index, location):
                return
            if use.passes < 2 and view.location_of(index) == location and view.is_hinted(index):
                self._ask(group)
                return
        elif record_type == RECORD_STATE:
            if view.state_at == location:
                self.jobs.append(state_job(self._salt, view, view.hard_state))
                self._moved += size
            return
        elif record_type == RECORD_PART:
            index = record_term_at(data, offset)
        if self._is_needed(view, record_type, index, location):
            self._copy(record_type, group, index, location, data, offset, size)

    def _is_needed(self, view: StoredGroup, record_type: i64, index: i64, location: i64) -> bool:
        if record_type in (RECORD_ENTRY, RECORD_INCOMING):
            return True
        if record_type == RECORD_BASE:
            return view.base_at == location
        stored = view.snapshot
        if stored is None:
            return False
        if record_type == RECORD_SNAPSHOT:
            return stored.location == location
        if record_type == RECORD_PART:
            return index < len(stored.parts) and stored.parts[index] == location
        return False

    def _ask(self, group: i64) -> None:
        if group not in self._seen:
            self._seen.add(group)
            self.asked.append(group)

    def _look_at_tombstone(self, use: SegmentUse, group: i64, location: i64) -> None:
        """Copy a tombstone while another file may hold records of its group; else forget it."""
        tomb = self._table.removed.get(group)
        if tomb is None or tomb.location != location:
            return
        for sequence in self._table.ledger.segments:
            if tomb.origin <= sequence <= tomb.end and sequence != use.sequence:
                break
        else:
            del self._table.removed[group]
            self._table.ledger.drop(use.sequence, HEADER_BYTES)
            return
        record = encode_record(
            self._salt, RECORD_TOMBSTONE, 0, 0, group, tomb.end, tomb.origin, b"", FLAG_COPY
        )
        self._copy(RECORD_TOMBSTONE, group, 0, location, record, 0, HEADER_BYTES)

    def _copy(
        self,
        record_type: i64,
        group: i64,
        index: i64,
        location: i64,
        data: bytes,
        start: i64,
        size: i64,
    ) -> None:
        if size > self._record_bytes_max:  # written when segments were longer
            if self._victim is not None:
                self._victim.stuck = True
            return
        job = self.jobs[-1] if self.jobs else None
        if job is None or job.kind != JOB_MOVE or job.cost + size > self._job_bytes_max:
            job = WriteJob(None, None, JOB_MOVE)
            self.jobs.append(job)
        job.add(encode_copy(self._salt, data, start, start + size))
        job.moved.append(Moved(record_type, group, index, location, size))
        if not job.groups or job.groups[-1] != group:
            job.groups.append(group)
        self._moved += size
