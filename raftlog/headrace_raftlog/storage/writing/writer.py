"""The thread that writes and syncs: one batch at a time, no timer.

What gathered while the last batch was written and synced is the next batch. At most one batch is
ever not synced, which is what recovery relies on.

A failed sync is final: Rebello et al., "Can Applications Recover from fsync Failures?", USENIX
ATC 2020.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import monotonic, monotonic_ns
from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.model.errors import LogWriteError
from headrace_raftlog.model.histogram import Histogram
from headrace_raftlog.model.limits import (
    WRITE_BATCH_BYTES_MAX,
)
from headrace_raftlog.storage.file_list import GONE_MAX, FileSpan, encode_files, encode_gone
from headrace_raftlog.storage.files import IOV_MAX, Files
from headrace_raftlog.storage.options import LogOptions
from headrace_raftlog.storage.record import (
    BATCH_FRAME_BYTES,
    HEAD_FILES,
    HEAD_PLAIN,
    HEADER_BYTES,
    SECTOR_BYTES,
    encode_groups,
    encode_head,
    encode_trailer,
    sector_end,
)
from headrace_raftlog.storage.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
)
from headrace_raftlog.storage.segment_supply import FULL_ERRNOS, SegmentSupply
from headrace_raftlog.storage.write_job import JOB_DELETE, WriteJob

RESERVE_BYTES: Final = 3 * SECTOR_BYTES  # at a segment's end: a seal, and two lists of gone files


def ignore_tokens(tokens: list[object]) -> None:
    """Take tokens while nobody listens."""


def ignore_full(full: bool) -> None:
    """Take a change of the full state while nobody listens."""


def ignore_failure(error: LogWriteError) -> None:
    """Take a failure while nobody listens."""


def write_all(files: Files, fd: int, pieces: list[bytes], size: int, offset: int) -> None:
    """Write pieces one behind the other and sync them, however little the system takes at once.

    Raises:
        OSError: nothing is known about what reached the disk.
    """
    if len(pieces) > IOV_MAX:
        pieces = [b"".join(pieces)]
    done = files.write_through(fd, pieces, offset)
    if done == size:
        return
    rest = b"".join(pieces)
    while done < size:
        taken = files.write(fd, rest[done:], offset + done)
        if taken <= 0:
            raise OSError(errno.EIO, "the system took no byte of a write")
        done += taken
    files.sync(fd)


@final
class WriterPosition:
    """Where the next batch goes; there is no segment behind that one.

    Attributes:
        header: header of the segment.
        fd: the segment, open for writing.
        offset: a sector boundary in it.
        number: number of the next batch.
        first: number of the first batch in the segment; `number` while there is none.
        spans: the segments before it, ascending.
    """

    def __init__(
        self,
        header: SegmentHeader,
        fd: int,
        offset: i64,
        number: i64,
        first: i64,
        spans: list[FileSpan],
    ) -> None:
        self.header = header
        self.fd = fd
        self.offset = offset
        self.number = number
        self.first = first
        self.spans = spans


@final
class LogWriter:
    """Writes jobs in the order they are handed over, in its own thread unless it is stepped.

    Attributes:
        done: jobs that are durable and not yet noted by the event loop.
        on_durable: called with the tokens of each batch, in order, after its sync.
        on_full: called with True when there is no space, with False when there is again.
        on_failed: called once; nothing is written afterwards.
        full: whether it waits for space.
        failure: why it stopped for good, or None.
        syncs: how long it took to write and sync each batch.
        written: bytes of those batches.
    """

    def __init__(
        self, files: Files, directory: str, options: LogOptions, position: WriterPosition
    ) -> None:
        self.files = files
        self.directory = directory
        self.position = position
        self.done: deque[WriteJob] = deque()
        self.on_durable: Callable[[list[object]], None] = ignore_tokens
        self.on_full: Callable[[bool], None] = ignore_full
        self.on_failed: Callable[[LogWriteError], None] = ignore_failure
        self.full = False
        self.failure: LogWriteError | None = None
        self.syncs = Histogram()
        self.written: i64 = 0
        self._busy = False
        self._batches: i64 = 0
        self._retry_seconds = options.full_retry_seconds
        self._seal_seconds = options.seal_seconds
        self._stepped = options.stepped
        self._inbox: SimpleQueue[list[WriteJob] | None] = SimpleQueue()
        self._queue: deque[WriteJob] = deque()
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
        """Write a seal behind what was recovered and start the thread, unless stepped.

        Raises:
            OSError: the seal could not be written; no thread was started.
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

    def submit(self, jobs: list[WriteJob]) -> None:
        """Hand jobs over; never blocks."""
        self._inbox.put(jobs)

    def close(self) -> None:
        """Write what was handed over, stop the thread, wait for it.

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
            while self._inbox.qsize() > 0:
                self._take(self._inbox.get())
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
        while self._inbox.qsize() > 0:
            self._take(self._inbox.get())

    def _take(self, jobs: list[WriteJob] | None) -> None:
        if jobs is None:
            self._closing = True
            return
        for job in jobs:
            if job.kind == JOB_DELETE:
                self._doomed.extend(job.doomed)
            else:
                self._queue.append(job)

    def _has_work(self) -> bool:
        if self._queue or self._batch or self._size > 0:
            return True
        return len(self._doomed) > 0 and self._gone_fits()

    def _write_queued(self) -> None:
        while self._has_work():
            try:
                self._write_batch()
            except OSError as error:
                if error.errno not in FULL_ERRNOS:
                    raise
                if not self._wait_space():
                    return

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
        """Write one batch; on an error it stays as it is and can be written again in place."""
        self._busy = True
        try:
            self._write_next()
        finally:
            self._batches += 1
            self._busy = False

    def _write_next(self) -> None:
        if not self._batch and self._size == 0 and not self._compose():
            return
        position = self.position
        if self._size > 0:
            began: i64 = monotonic_ns()
            write_all(self.files, position.fd, self._pieces, self._size, position.offset)
            self.syncs.observe((monotonic_ns() - began) // 1000)
            self.written += self._size
            position.offset = sector_end(position.offset + self._size)
            position.number += 1
            self._sealed = False
            if self.full and self._batch:
                self.full = False
                self.on_full(False)
        batch = self._batch
        self._batch, self._pieces, self._size = [], [], 0
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
        queue = self._queue
        if self._doomed and self._gone_fits():
            self._compose_gone()
            return True
        if not queue:
            return False
        if queue[0].cost > self._room():
            self._rotate()
            assert queue[0].cost <= self._room(), "a job is longer than a segment"
        room: i64 = min(self._room(), WRITE_BATCH_BYTES_MAX)
        cost: i64 = 0
        size: i64 = 0
        count: i64 = 0
        groups: dict[int, None] = {}
        pieces: list[bytes] = []
        batch = self._batch
        while queue and (not batch or cost + i64(queue[0].cost) <= room):
            job = queue.popleft()
            cost += i64(job.cost)
            size += job.size
            count += job.count
            for group in job.groups:
                groups[group] = None
            pieces.extend(job.pieces)
            batch.append(job)
        if size > 0:
            lead: i64 = self._frame(pieces, size, count, list(groups))
            location: i64 = (i64(self.position.header.sequence) << 32) | (
                self.position.offset + lead
            )
            for job in batch:
                job.location = location
                location += job.size
        return True

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
        return position.offset + 2 * SECTOR_BYTES <= position.header.size

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
        """Put a head and a trailer around records; return how far from its start the first is.

        The first batch of a segment begins with the list of all segments before it.
        """
        position = self.position
        salt: i64 = position.header.salt
        names = encode_groups(groups)
        lead: i64 = HEADER_BYTES + len(names)
        pieces = [b""]
        if position.offset == SEGMENT_HEADER_BYTES:
            kind = HEAD_FILES
            files = self._files_record()
            pieces.append(files)
            lead += len(files)
            count += 1
        whole: i64 = lead + size + HEADER_BYTES + len(names)
        pieces[0] = encode_head(salt, kind, position.number, whole, count, names)
        pieces.extend(records)
        pieces.append(encode_trailer(salt, position.number, position.offset, count, names))
        self._pieces = pieces
        self._size = whole
        return lead

    def _files_record(self) -> bytes:
        return encode_files(self.position.header.salt, self.position.spans)

    def _room(self) -> i64:
        """Return how many bytes of records one more batch of this segment can hold.

        What is reserved at its end stays free.
        """
        position = self.position
        room: i64 = i64(position.header.size) - position.offset - BATCH_FRAME_BYTES - RESERVE_BYTES
        if position.offset == SEGMENT_HEADER_BYTES:
            room -= len(self._files_record())
        return room

    def _seal(self) -> None:
        """Write an empty batch: proof that the batch before it was synced."""
        position = self.position
        if self._sealed or self._batch or self._size > 0:
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

    def _rotate(self) -> None:
        """Go on in the next segment, finished now unless it is already."""
        position = self.position
        header, fd = self._supply.take(position.header)
        self.files.close(position.fd)
        gone = set(self._doomed)
        spans = [span for span in position.spans if span.sequence not in gone]
        spans.append(FileSpan(position.header.sequence, position.first, position.number - 1))
        self._removing, self._doomed = self._doomed, []
        position.header = header
        position.fd = fd
        position.offset = SEGMENT_HEADER_BYTES
        position.first = position.number
        position.spans = spans
