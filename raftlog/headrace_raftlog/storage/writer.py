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
from time import monotonic
from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.model.errors import LogWriteError
from headrace_raftlog.model.limits import (
    WRITE_BATCH_BYTES_MAX,
    ZERO_STEP_BYTES_MAX,
    ZERO_STEP_BYTES_MIN,
)
from headrace_raftlog.storage.files import IOV_MAX, Files
from headrace_raftlog.storage.options import LogOptions
from headrace_raftlog.storage.record import (
    BATCH_FRAME_BYTES,
    HEADER_BYTES,
    SECTOR_BYTES,
    encode_head,
    encode_trailer,
    sector_end,
)
from headrace_raftlog.storage.segment import SEGMENT_HEADER_BYTES, SegmentDraft, SegmentHeader
from headrace_raftlog.storage.write_job import WriteJob

FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)


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
    """

    def __init__(self, header: SegmentHeader, fd: int, offset: i64, number: i64) -> None:
        self.header = header
        self.fd = fd
        self.offset = offset
        self.number = number


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
        self._segment_bytes: i64 = options.segment_bytes
        self._retry_seconds = options.full_retry_seconds
        self._seal_seconds = options.seal_seconds
        self._stepped = options.stepped
        self._inbox: SimpleQueue[list[WriteJob] | None] = SimpleQueue()
        self._queue: deque[WriteJob] = deque()
        self._batch: list[WriteJob] = []
        self._pieces: list[bytes] = []
        self._size: i64 = 0
        self._sealed = False
        self._closing = False
        self._draft: SegmentDraft | None = None
        self._draft_retry_at = 0.0
        self._worker = threading.Thread(target=self._run, name="headrace-log", daemon=True)

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
        if not self._stepped:
            self._worker.start()

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
            if self._inbox.qsize() == 0 and not self._queue:
                self._seal()
            while self._inbox.qsize() > 0:
                self._take(self._inbox.get())
            self._write_queued()
        except Exception as error:  # noqa: BLE001 - as in the thread
            self._fail(error)
            self._abandon_draft()

    def _run(self) -> None:
        try:
            while not self._closing:
                self._gather()
                self._write_queued()
            self._seal()
        except Exception as error:  # noqa: BLE001 - outermost loop of the thread: reported, final
            self._fail(error)
        finally:
            self._abandon_draft()

    def _fail(self, error: Exception) -> None:
        self.failure = LogWriteError(
            f"{self._path()}: write or sync failed: {error}. The node must stop: what "
            "the disk holds since the last successful sync is unknown."
        )
        self.failure.__cause__ = error
        self.on_failed(self.failure)

    def _abandon_draft(self) -> None:
        if self._draft is not None:
            self._draft.abandon()

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
        else:
            self._queue.extend(jobs)

    def _write_queued(self) -> None:
        while self._queue or self._batch:
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
        if not self._batch and not self._compose():
            return
        position = self.position
        if self._size > 0:
            write_all(self.files, position.fd, self._pieces, self._size, position.offset)
            position.offset = sector_end(position.offset + self._size)
            position.number += 1
            self._sealed = False
            if self.full:
                self.full = False
                self.on_full(False)
        batch, size = self._batch, self._size
        self._batch, self._pieces, self._size = [], [], 0
        self.done.extend(batch)
        tokens = [job.token for job in batch if job.token is not None]
        if tokens:
            self.on_durable(tokens)
        self._prepare_next(size)

    def _compose(self) -> bool:
        """Move jobs from the queue into a batch; return False if there was none."""
        queue = self._queue
        if not queue:
            return False
        if queue[0].size > self._room():
            self._rotate()
            assert queue[0].size <= self._room(), "a job is longer than a segment"
        room = min(self._room(), WRITE_BATCH_BYTES_MAX)
        offset: i64 = self.position.offset + HEADER_BYTES
        base: i64 = i64(self.position.header.sequence) << 32
        size: i64 = 0
        count: i64 = 0
        pieces: list[bytes] = [b""]
        batch = self._batch
        while queue and (not batch or size + queue[0].size <= room):
            job = queue.popleft()
            job.location = base | (offset + size)
            size += job.size
            count += job.count
            pieces.extend(job.pieces)
            batch.append(job)
        if size > 0:
            self._frame(pieces, size + BATCH_FRAME_BYTES, count)
        return True

    def _frame(self, pieces: list[bytes], size: i64, count: i64) -> None:
        position = self.position
        salt: i64 = position.header.salt
        pieces[0] = encode_head(salt, position.number, size, count)
        pieces.append(encode_trailer(salt, position.number, position.offset, count))
        self._pieces = pieces
        self._size = size

    def _room(self) -> i64:
        """Return how many bytes of records one more batch of this segment can hold.

        A sector stays free for the seal.
        """
        position = self.position
        return i64(position.header.size) - position.offset - BATCH_FRAME_BYTES - SECTOR_BYTES

    def _seal(self) -> None:
        """Write an empty batch: proof that the batch before it was synced."""
        if self._sealed or self._batch:
            return
        self._sealed = True
        if self._room() + SECTOR_BYTES < 0:
            return
        self._frame([b""], BATCH_FRAME_BYTES, 0)
        position = self.position
        try:
            write_all(self.files, position.fd, self._pieces, self._size, position.offset)
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
        else:
            position.offset = sector_end(position.offset + self._size)
            position.number += 1
        self._pieces, self._size = [], 0

    def _rotate(self) -> None:
        """Go on in the next segment, finished now unless it is already."""
        position = self.position
        draft = self._next_draft()
        fd = draft.finish()
        self._draft = None
        self.files.close(position.fd)
        position.header = draft.header
        position.fd = fd
        position.offset = SEGMENT_HEADER_BYTES

    def _next_draft(self) -> SegmentDraft:
        if self._draft is None:
            now = self.position.header
            header = SegmentHeader(
                now.sequence + 1, self._segment_bytes, now.salt, now.node, now.cluster
            )
            self._draft = SegmentDraft(self.files, self.directory, header)
        return self._draft

    def _prepare_next(self, written: i64) -> None:
        """Zero-fill the next segment in step with the use of this one, a little per batch."""
        position = self.position
        used: i64 = position.offset * 2 - position.header.size // 2
        if used <= 0:
            return
        draft = self._next_draft()
        if draft.filled >= min(used, self._segment_bytes):
            return
        now = monotonic()
        if now < self._draft_retry_at:
            return
        try:
            draft.step(min(max(4 * written, ZERO_STEP_BYTES_MIN), ZERO_STEP_BYTES_MAX))
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
            self._draft_retry_at = now + self._retry_seconds
