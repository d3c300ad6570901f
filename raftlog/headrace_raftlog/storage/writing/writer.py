"""The thread that writes and syncs: one batch at a time, no timer.

What gathered while the last batch was written and synced is the next batch. At most one batch is
ever not synced, which is what recovery relies on. A long job is written in slices, each synced,
into bytes that a batch has reserved behind itself; batches of other groups take turns with them,
and the batch after the last slice makes the job's records count.

A failed sync is final: Rebello et al., "Can Applications Recover from fsync Failures?", USENIX
ATC 2020.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import monotonic, monotonic_ns
from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.errors import LogWriteError
from headrace_raftlog.model.histogram import Histogram
from headrace_raftlog.model.limits import CHECKSUM_STEP_BYTES, WRITE_BATCH_BYTES_MAX
from headrace_raftlog.storage.disk.files import Files, write_all
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.segment.disk_reads import ignore_work
from headrace_raftlog.storage.segment.file_list import GONE_MAX, FileSpan, encode_gone
from headrace_raftlog.storage.segment.record import (
    BATCH_FRAME_BYTES,
    HEAD_FILES,
    HEAD_PLAIN,
    HEAD_RESERVED,
    HEADER_BYTES,
    SECTOR_BYTES,
    encode_reserved,
    sector_end,
)
from headrace_raftlog.storage.segment.segment import SEGMENT_HEADER_BYTES, SEGMENT_VERSION
from headrace_raftlog.storage.writing.segment_supply import FULL_ERRNOS, SegmentSupply
from headrace_raftlog.storage.writing.sliced_write import SlicedWrite
from headrace_raftlog.storage.writing.write_job import JOB_DELETE, WriteJob
from headrace_raftlog.storage.writing.write_position import WriterPosition, plain_room
from headrace_raftlog.storage.writing.write_queue import WriteQueue


def ignore_tokens(tokens: list[object]) -> None:
    """Ignore tokens: the default without a listener."""


def ignore_full(full: bool) -> None:
    """Ignore a change of the full state: the default without a listener."""


def ignore_failure(error: LogWriteError) -> None:
    """Ignore a failure: the default without a listener."""


@final
class LogWriter:
    """Writes jobs in the order they are handed over, in its own thread unless it is stepped."""

    def __init__(
        self, files: Files, directory: str, options: LogOptions, position: WriterPosition
    ) -> None:
        self.files = files
        self.directory = directory
        self.position = position
        # jobs that are durable and not yet noted by the event loop
        self.done: deque[WriteJob] = deque()
        # sequences and lengths of the segments that were made for a long job, likewise; each is
        # there before any job in it
        self.own_segments: deque[tuple[int, int]] = deque()
        # called with the tokens of each batch, in order, after its sync
        self.on_durable: Callable[[list[object]], None] = ignore_tokens
        # called on the event loop when jobs were handed over
        self.on_submitted: Callable[[], None] = ignore_work
        # called with True when there is no space, with False when there is again
        self.on_full: Callable[[bool], None] = ignore_full
        # called once; nothing is written afterwards
        self.on_failed: Callable[[LogWriteError], None] = ignore_failure
        self.full = False  # whether it waits for space
        self.failure: LogWriteError | None = None  # why it stopped for good, or None
        self.syncs = Histogram()  # how long it took to write and sync each batch
        self.written: i64 = 0  # bytes of those batches
        self._busy = False
        self._batches: i64 = 0
        self._retry_seconds = options.full_retry_seconds
        self._seal_seconds = options.seal_seconds
        self._stepped = options.stepped
        self._inbox: SimpleQueue[list[WriteJob] | None] = SimpleQueue()
        self._queue = WriteQueue(options.whole_bytes_max)
        self._plain_room: i64 = plain_room(options.segment_bytes)
        self._queue.slicing = position.header.version == SEGMENT_VERSION
        self._slice_bytes: i64 = options.slice_bytes
        self._sliced: SlicedWrite | None = None
        self._slice_is_next = False
        self._reserved: i64 = 0  # bytes that the batch at hand reserves behind itself
        self._batch: list[WriteJob] = []
        self._pieces: list[bytes] = []
        self._size: i64 = 0
        self._doomed: list[int] = []
        self._removing: list[int] = []
        self._sealed = False
        self._closing = False
        self._supply = SegmentSupply(files, directory, options)
        self._worker = threading.Thread(target=self._run, name="headrace-log", daemon=True)

    def synced(self) -> int:
        """Return the number of the newest batch that is synced, 0 for none; from any thread."""
        return self.position.number - 1

    def start(self) -> None:
        """Write a seal behind the recovered batches and start the thread, unless stepped.

        Raises OSError: the seal could not be written; no thread was started.
        """
        try:
            self._seal()
        except OSError:
            self.files.close(self.position.fd)
            raise
        self._supply.start()
        if not self._stepped:
            self._worker.start()

    @property
    def under_way(self) -> tuple[int, int] | None:
        """Numbers that change with each step of a write that ends; None while nothing is written.

        To be read by any thread. Waiting for space is not writing.
        """
        return (int(self._batches), self._supply.filled) if self._busy else None

    @property
    def has_work(self) -> bool:
        """True while jobs are to be written, or are being written; from any thread."""
        return self._busy or self._inbox.qsize() > 0

    def submit(self, jobs: list[WriteJob]) -> None:
        """Hand jobs over; never blocks."""
        self._inbox.put(jobs)
        self.on_submitted()

    def close(self) -> None:
        """Write everything handed over, stop the thread, wait for it.

        While the disk is full, what waits for space is given up: it was never reported durable.
        """
        self._inbox.put(None)
        if not self._stepped:
            self._worker.join()
        elif self.failure is None:
            self._run()
        self.files.close(self.position.fd)

    def step(self) -> None:
        """Do in the caller's thread what the writer's would do next: see `LogOptions.stepped`.

        What was handed over is written; when there is nothing, time passes and a seal is written.
        While the disk is full, a step is one attempt. After a failure it does nothing.
        """
        assert self._stepped, "the writer has a thread"
        if self.failure is not None:
            return
        try:
            if self._inbox.qsize() == 0 and not self._has_work():
                self._seal()
            self._take_waiting()
            self._write_queued()
        except Exception as error:  # noqa: BLE001 - as in the thread
            self._fail(error)
            self._supply.close()

    def _run(self) -> None:
        try:
            while not self._closing:
                self._gather()
                self._write_queued()
            self._seal()
        except Exception as error:  # noqa: BLE001 - outermost loop of the thread: reported, final
            self._fail(error)
        finally:
            self._supply.close()

    def _fail(self, error: Exception) -> None:
        self.failure = LogWriteError(
            f"{self._path()}: write or sync failed: {error}. The node must stop: what "
            "the disk holds since the last successful sync is unknown."
        )
        self.failure.__cause__ = error
        self.on_failed(self.failure)

    def _path(self) -> str:
        return f"{self.directory} segment {self.position.header.sequence}"

    def _gather(self) -> None:
        """Wait for work and take all there is."""
        if self._sealed:
            self._take(self._inbox.get())
        else:
            try:
                self._take(self._inbox.get(timeout=self._seal_seconds))
            except Empty:
                self._seal()
        self._take_waiting()

    def _take_waiting(self) -> None:
        """Take the waiting jobs; when stepped, beside a long job one hand-over at a time."""
        while self._inbox.qsize() > 0:
            self._take(self._inbox.get())
            if self._stepped and self._queue.has_sliced():
                return

    def _take(self, jobs: list[WriteJob] | None) -> None:
        if jobs is None:
            self._closing = True
            return
        for job in jobs:
            if job.kind == JOB_DELETE:
                self._doomed.extend(job.doomed)
            else:
                self._queue.push(job)

    def _has_work(self) -> bool:
        if len(self._queue) > 0 or self._batch or self._size > 0 or self._sliced is not None:
            return True
        return len(self._doomed) > 0 and self._gone_fits()

    def _write_queued(self) -> None:
        while self._has_work() or (self._stepped and self._inbox.qsize() > 0):
            try:
                self._write_batch()
            except OSError as error:
                if error.errno not in FULL_ERRNOS:
                    raise
                if not self._wait_space():
                    return
            if self._queue.has_sliced() or self._stepped:
                self._take_waiting()

    def _wait_space(self) -> bool:
        """Let time pass until the next attempt; return False when the log is being closed."""
        if not self.full:
            self.full = True
            self.on_full(True)
        if self._stepped:
            return False
        retry_at = monotonic() + self._retry_seconds
        while not self._closing:
            left = retry_at - monotonic()
            if left <= 0:
                return True
            try:
                self._take(self._inbox.get(timeout=left))
            except Empty:
                return True
        return False

    def _write_batch(self) -> None:
        """Write one batch; after an error it can be written again in place."""
        self._busy = True
        try:
            self._write_next()
        finally:
            self._batches += 1
            self._busy = False

    def _write_next(self) -> None:
        """Write a batch or a slice; beside a long job they take turns."""
        if not self._batch and self._size == 0 and (self._slice_is_next or not self._compose()):
            if self._sliced is not None:
                self._write_slice(self._sliced)
            return
        position = self.position
        if self._size > 0:
            began: i64 = monotonic_ns()
            write_all(self.files, position.fd, self._pieces, self._size, position.offset)
            self.syncs.observe((monotonic_ns() - began) // 1000)
            self.written += self._size
            position.offset = sector_end(position.offset + self._size) + self._reserved
            position.number += 1
            self._sealed = False
            self._reserved = 0
            if self._batch:
                self._note_space()
        batch = self._batch
        self._batch, self._pieces, self._size = [], [], 0
        self._slice_is_next = self._sliced is not None and not self._sliced.is_done()
        self._remove()
        self.done.extend(batch)
        tokens = [job.token for job in batch if job.token is not None]
        if tokens:
            self.on_durable(tokens)
        self._supply.prepare(position.header, position.offset * 2 - position.header.size // 2)

    def _compose(self) -> bool:
        """Frame a batch; return False if there is nothing to write.

        Files that are to go come first: while the disk is full, that is what makes room.
        """
        if self._doomed and self._gone_fits():
            self._compose_gone()
            return True
        placed = self._take_placed()
        first = self._queue.first()
        if first is None and placed is None:
            return False
        if first is not None and placed is None and self._sliced is None:
            self._make_room(first)
        self._compose_jobs(placed)
        return len(self._batch) > 0 or self._size > 0

    def _make_room(self, first: WriteJob) -> None:
        """Go on in the next segment if this one has no room for a job, in a longer one if need be.

        A job that has no room in a usual segment may find it in what is left of a longer one.
        """
        if self._queue.need(first) > self._room():
            need = self._queue.need_in_new(first)
            self._rotate(self.position.own_bytes(need) if need > self._plain_room else 0)
            assert self._queue.need(first) <= self._room(), "a job is longer than its segment"

    def _take_placed(self) -> SlicedWrite | None:
        """Take the job of which everything is written; the batch that is next places it."""
        sliced = self._sliced
        if sliced is None or not sliced.is_done():
            return None
        self._sliced = None
        self._queue.under_way = None
        return sliced

    def _compose_jobs(self, placed: SlicedWrite | None) -> None:
        """Frame the next jobs: one whose slices are written, room for one, and others that fit."""
        salt: i64 = self.position.header.salt
        room: i64 = self._room()
        records: list[bytes] = []
        groups: dict[int, None] = {}
        lead: i64 = 0
        if placed is not None:
            records.append(placed.record(salt))
            groups = dict.fromkeys(placed.job.groups)
            lead = HEADER_BYTES
            room -= placed.placing - BATCH_FRAME_BYTES
        begun = self._queue.begin(room)
        if begun is not None:
            room -= self._queue.need(begun)
            self._reserved = sector_end(begun.size)
            records.append(encode_reserved(salt, self._reserved))
            lead += HEADER_BYTES
        jobs = self._queue.take(room, WRITE_BATCH_BYTES_MAX)
        at = self._frame_jobs(jobs, records, lead, groups)
        self._batch = jobs
        if placed is not None:
            self._batch = [placed.job, *jobs]
        if begun is not None:
            start: i64 = sector_end(self.position.offset + self._size)
            begun.location = (i64(self.position.header.sequence) << 32) | start
            self._sliced = SlicedWrite(begun, start)
        for job in jobs:
            job.location = at
            at += job.size

    def _frame_jobs(
        self, jobs: list[WriteJob], records: list[bytes], lead: i64, groups: dict[int, None]
    ) -> i64:
        """Frame jobs behind `records`, `lead` bytes; return the location of the first job."""
        size: i64 = lead
        count: i64 = len(records)
        for job in jobs:
            job.check(self.position.header.salt, job.size)
            size += job.size
            count += job.count
            for group in job.groups:
                groups[group] = None
            records.extend(job.pieces)
        if size > 0:
            kind: i64 = HEAD_RESERVED if self._reserved else HEAD_PLAIN
            lead += self._frame(records, size, count, list(groups), kind)
        return (i64(self.position.header.sequence) << 32) | (self.position.offset + lead)

    def _write_slice(self, sliced: SlicedWrite) -> None:
        """Write the next slice; on an error it can be written again in place.

        The checksums come before, as they stand in the first slice.
        """
        if not sliced.job.is_checked:
            sliced.job.check(self.position.header.salt, CHECKSUM_STEP_BYTES)
            self._slice_is_next = False
            return
        pieces = sliced.slice(self._slice_bytes)
        size: i64 = sum(map(len, pieces))
        began: i64 = monotonic_ns()
        offset: i64 = sliced.start + sliced.written
        write_all(self.files, self.position.fd, pieces, size, offset)
        self.syncs.observe((monotonic_ns() - began) // 1000)
        self.written += size
        sliced.advance(size)
        self._slice_is_next = False
        self._note_space()

    def _note_space(self) -> None:
        """Say that there is space again, if there was none."""
        if self.full:
            self.full = False
            self.on_full(False)

    def _compose_gone(self) -> None:
        """Frame a batch after which the files that are to go do not exist."""
        self._removing = self._doomed[:GONE_MAX]
        del self._doomed[:GONE_MAX]
        record = encode_gone(self.position.header.salt, self._removing)
        self._frame([record], len(record), 1, [], HEAD_FILES)

    def _gone_fits(self) -> bool:
        """Return whether one more sector can be used and one still be left for the seal."""
        position = self.position
        if position.offset == SEGMENT_HEADER_BYTES:
            return False
        return position.offset + 2 * SECTOR_BYTES + self._kept() <= position.header.size

    def _kept(self) -> i64:
        """Return how many bytes at the segment's end are for the batch that places a long job."""
        return self._sliced.placing if self._sliced is not None else 0

    def _remove(self) -> None:
        """Remove the files of which the batch just written says that they are gone.

        The directory is not synced: a file that comes back is removed by the next recovery.
        """
        if not self._removing:
            return
        self._supply.remove(self._removing)
        gone = set(self._removing)
        self.position.spans = [s for s in self.position.spans if s.sequence not in gone]
        self._removing = []

    def _frame(
        self, records: list[bytes], size: i64, count: i64, groups: list[int], kind: i64 = HEAD_PLAIN
    ) -> i64:
        """Frame a batch as the one at hand; return how far from its start the first record is."""
        self._pieces, self._size, lead = self.position.frame(records, size, count, groups, kind)
        return lead

    def _room(self) -> i64:
        """Return how many bytes of records one more batch of this segment can hold."""
        return self.position.room() - self._kept()

    def _seal(self) -> None:
        """Write an empty batch: proof that the batch before it was synced."""
        position = self.position
        if self._sealed or self._batch or self._size > 0 or self._sliced is not None:
            return
        self._sealed = True
        if position.offset + SECTOR_BYTES > position.header.size:
            return
        self._frame([], 0, 0, [])
        self._busy = True
        try:
            write_all(self.files, position.fd, self._pieces, self._size, position.offset)
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
        else:
            position.offset = sector_end(position.offset + self._size)
            position.number += 1
        finally:
            self._batches += 1
            self._busy = False
        self._pieces, self._size = [], 0

    def _rotate(self, size: i64 = 0) -> None:
        """Go on in the next segment, finished now unless it is already.

        Args:
            size: how long it has to be, 0 for as usual.
        """
        position = self.position
        header, fd = self._supply.take(position.header, size)
        if size:
            self.own_segments.append((header.sequence, header.size))
        self.files.close(position.fd)
        gone = set(self._doomed)
        spans = [span for span in position.spans if span.sequence not in gone]
        spans.append(FileSpan(position.header.sequence, position.first, position.number - 1))
        self._removing, self._doomed = self._doomed, []
        self._queue.slicing = header.version == SEGMENT_VERSION
        position.header = header
        position.fd = fd
        position.offset = SEGMENT_HEADER_BYTES
        position.first = position.number
        position.spans = spans
