"""The file that comes next, made while this one is written, and the files that are to go.

Both happen in a thread of their own. Zeros are synced in between, and a file system that discards
what is freed takes tens of milliseconds to remove a file: no batch waits for that.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.model.limits import ZERO_STEP_BYTES
from headrace_raftlog.storage.files import Files
from headrace_raftlog.storage.options import LogOptions
from headrace_raftlog.storage.segment import SegmentDraft, SegmentHeader, segment_name

FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)


@final
class SegmentSupply:
    """Makes and removes segments for one writer, whose thread calls every method.

    What is asked is done in the order in which it was asked, by the caller itself when stepped.

    Attributes:
        failure: what went wrong while nobody waited for it, raised by the next call; or None.
    """

    def __init__(self, files: Files, directory: str, options: LogOptions) -> None:
        self.failure: Exception | None = None
        self._files = files
        self._directory = directory
        self._segment_bytes: i64 = options.segment_bytes
        self._retry_seconds = options.full_retry_seconds
        self._stepped = options.stepped
        self._asked: i64 = 0
        self._draft: SegmentDraft | None = None
        self._retry_at = 0.0
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._finished: SimpleQueue[int | Exception] = SimpleQueue()
        self._worker = threading.Thread(target=self._run, name="headrace-files", daemon=True)

    def start(self) -> None:
        """Start the thread, unless stepped."""
        if not self._stepped:
            self._worker.start()

    def prepare(self, last: SegmentHeader, count: i64) -> None:
        """Have `count` bytes of the file behind `last` filled, in whole steps; waits for none.

        While the disk is full, nothing is prepared: `take` then says so.

        Raises:
            Exception: what was asked before has failed.
        """
        self._check()
        target: i64 = (count + ZERO_STEP_BYTES - 1) // ZERO_STEP_BYTES * ZERO_STEP_BYTES
        target = min(target, self._segment_bytes)
        if target > self._asked:
            self._asked = target
            self._do(partial(self._fill, self._header(last), target))

    def take(self, last: SegmentHeader) -> tuple[SegmentHeader, int]:
        """Wait until the file behind `last` is whole and has its name.

        Returns:
            Its header and its descriptor, open for writing.

        Raises:
            OSError: as the system says, ENOSPC among others; it can be tried again.
        """
        self._check()
        self._asked = 0
        header = self._header(last)
        self._do(partial(self._finish, header))
        found = self._finished.get()
        if isinstance(found, Exception):
            raise found
        return header, found

    def remove(self, sequences: list[int]) -> None:
        """Have files removed; the directory is not synced, so that they may come back.

        Raises:
            Exception: what was asked before has failed.
        """
        self._check()
        self._do(partial(self._remove, sequences))

    def close(self) -> None:
        """Do what was asked, drop the file that nobody took, end the thread."""
        if self._worker.is_alive():
            self._tasks.put(None)
            self._worker.join()
        if self._draft is not None:
            self._draft.abandon()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _do(self, task: Callable[[], None]) -> None:
        if self._stepped:
            task()
        else:
            self._tasks.put(task)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception as error:  # noqa: BLE001 - outermost loop: kept for the next call
                self.failure = error
                self._finished.put(error)

    def _header(self, last: SegmentHeader) -> SegmentHeader:
        return SegmentHeader(
            last.sequence + 1, int(self._segment_bytes), last.salt, last.node, last.cluster
        )

    def _draft_of(self, header: SegmentHeader) -> SegmentDraft:
        if self._draft is None:
            self._draft = SegmentDraft(self._files, self._directory, header)
        return self._draft

    def _fill(self, header: SegmentHeader, target: i64) -> None:
        if monotonic() < self._retry_at:
            return
        draft = self._draft_of(header)
        try:
            while draft.filled < target:
                draft.step(ZERO_STEP_BYTES)
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
            self._retry_at = monotonic() + self._retry_seconds

    def _finish(self, header: SegmentHeader) -> None:
        try:
            fd = self._draft_of(header).finish()
        except OSError as error:
            self._finished.put(error)
        else:
            self._draft = None
            self._finished.put(fd)

    def _remove(self, sequences: list[int]) -> None:
        for sequence in sequences:
            self._files.remove(os.path.join(self._directory, segment_name(sequence)))
