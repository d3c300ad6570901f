"""The file that comes next, made while this one is written, and the files that are to go.

Both happen in a thread of their own. Zeros are synced in between, and a file system that discards
what is freed takes tens of milliseconds to remove a file: no batch waits for that, and no file that
is waited for waits for removals.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.model.limits import ZERO_STEP_BYTES
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.segment.segment import SegmentDraft, SegmentHeader, segment_name

FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)


@final
class SegmentSupply:
    """Makes and removes segments for one writer, whose thread calls every method.

    What is waited for comes first, then what will be, then removals. When stepped, the caller does
    all of it itself.
    """

    def __init__(self, files: Files, directory: str, options: LogOptions) -> None:
        # what went wrong while nobody waited for it, raised by the next call; or None. Nothing is
        # done any more then.
        self.failure: Exception | None = None
        self._files = files
        self._directory = directory
        self._segment_bytes: i64 = options.segment_bytes
        self._retry_seconds = options.full_retry_seconds
        self._stepped = options.stepped
        self._asked: i64 = 0
        self._draft: SegmentDraft | None = None
        self._retry_at = 0.0
        self._changed = threading.Condition()  # guards the next five
        self._to_fill: tuple[SegmentHeader, int] | None = None
        self._to_finish: SegmentHeader | None = None
        self._to_remove: deque[int] = deque()
        self._remove_at = 0.0
        self._closing = False
        self._finished: SimpleQueue[int | Exception] = SimpleQueue()
        self._worker = threading.Thread(target=self._run, name="headrace-files", daemon=True)

    def start(self) -> None:
        """Start the thread, unless stepped."""
        if not self._stepped:
            self._worker.start()

    @property
    def filled(self) -> int:
        """Bytes of the file under preparation; to be read by any thread."""
        draft = self._draft
        return int(draft.filled) if draft is not None else 0

    def prepare(self, last: SegmentHeader, count: i64) -> None:
        """Fill `count` bytes of the file behind `last`, in whole steps; waits for none.

        While the disk is full, nothing is prepared: `take` then says so.

        Raises Exception: what was asked before has failed.
        """
        self._check()
        target: i64 = (count + ZERO_STEP_BYTES - 1) // ZERO_STEP_BYTES * ZERO_STEP_BYTES
        target = min(target, self._segment_bytes)
        if target > self._asked:
            self._asked = target
            with self._changed:
                self._to_fill = (self._header(last), int(target))
            self._set_off()

    def take(self, last: SegmentHeader, size: i64 = 0) -> tuple[SegmentHeader, int]:
        """Wait until the file behind `last` is whole and has its name.

        Args:
            last: header of the segment before it.
            size: how long it has to be, whole sectors; 0: as usual.

        Returns:
            Its header and its descriptor, open for writing.

        Raises OSError: as the system says, ENOSPC among others; it can be tried again.
        """
        self._check()
        header = self._header(last, size)
        with self._changed:
            self._to_fill = None  # which is part of it
            self._to_finish = header
        self._set_off()
        found = self._finished.get()
        self._asked = 0
        if isinstance(found, Exception):
            raise found
        return header, found

    def remove(self, sequences: list[int]) -> None:
        """Remove files; the directory is not synced, so that they may come back.

        Some file systems need space to free space: what a full one refuses is tried again later.

        Raises Exception: what was asked before has failed.
        """
        self._check()
        with self._changed:
            self._to_remove.extend(sequences)
        self._set_off()

    def close(self) -> None:
        """Finish requested work, drop the unused file, end the thread.

        Files that a full disk would not have removed stay; a log that is opened drops them.
        """
        if self._worker.is_alive():
            with self._changed:
                self._closing = True
                self._changed.notify()
            self._worker.join()
        if self._draft is not None:
            self._draft.abandon()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _set_off(self) -> None:
        if self._stepped:
            while (task := self._next()) is not None:
                task()
            return
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        while (task := self._wait()) is not None:
            try:
                task()
            except Exception as error:  # noqa: BLE001 - outermost loop: kept for the next call
                self.failure = error

    def _wait(self) -> Callable[[], object] | None:
        """Return the next work as soon as there is some, None to end."""
        with self._changed:
            while (task := self._next()) is None and not self._closing:
                self._changed.wait(self._retry_seconds if self._to_remove else None)
            return task

    def _next(self) -> Callable[[], object] | None:
        """Return the most urgent work, None without any now."""
        with self._changed:
            if self._to_finish is not None:
                finish, self._to_finish = self._to_finish, None
                return partial(self._finish, finish)
            if self.failure is not None:
                return None
            if self._to_fill is not None:
                (header, target), self._to_fill = self._to_fill, None
                return partial(self._fill, header, target)
            if self._to_remove and monotonic() >= self._remove_at:
                return partial(self._remove, self._to_remove.popleft())
            return None

    def _header(self, last: SegmentHeader, size: i64 = 0) -> SegmentHeader:
        length = int(size or self._segment_bytes)
        return SegmentHeader(last.sequence + 1, length, last.salt, last.node, last.cluster)

    def _draft_of(self, header: SegmentHeader) -> SegmentDraft:
        if self._draft is None:
            self._draft = SegmentDraft(self._files, self._directory, header)
        elif self._draft.header.size != header.size:
            self._draft.resize(header)
        return self._draft

    def _fill(self, header: SegmentHeader, target: i64) -> None:
        draft = self._draft_of(header)
        try:
            while monotonic() >= self._retry_at and draft.filled < target:
                if self._to_finish is not None:
                    break  # the rest is waited for now
                draft.step(ZERO_STEP_BYTES)
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
            self._retry_at = monotonic() + self._retry_seconds
        if draft.filled < target:
            self._asked = draft.filled  # to be asked for again

    def _finish(self, header: SegmentHeader) -> None:
        try:
            self._check()
            found: int | Exception = self._make(header)
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            found = error
        else:
            self._draft = None
        self._finished.put(found)

    def _make(self, header: SegmentHeader) -> int:
        try:
            return self._draft_of(header).finish(hurried=True)
        except OSError as error:
            if error.errno not in FULL_ERRNOS or not self._make_room():
                raise
        return self._draft_of(header).finish(hurried=True)

    def _make_room(self) -> bool:
        """Remove segments that must go at once; return whether there were any."""
        removed = False
        while True:
            with self._changed:
                if not self._to_remove:
                    return removed
                sequence = self._to_remove.popleft()
            if not self._remove(sequence):
                return removed
            removed = True

    def _remove(self, sequence: int) -> bool:
        """Remove a file that may be gone already; False where the disk is too full for that."""
        try:
            self._files.remove(os.path.join(self._directory, segment_name(sequence)))
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
            with self._changed:
                self._to_remove.appendleft(sequence)
                self._remove_at = monotonic() + self._retry_seconds
            return False
        return True
