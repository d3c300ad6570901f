"""A long job on its way into the bytes that were reserved for it, slice by slice."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.storage.segment.record import (
    BATCH_FRAME_BYTES,
    GROUP_FRAME_BYTES,
    HEADER_BYTES,
    encode_placed,
    sector_end,
)
from headrace_raftlog.storage.writing.write_job import WriteJob

_REST_SHARE: Final = 4  # one part in so many of a slice is no slice of its own at the end


def placing_bytes(job: WriteJob) -> i64:
    """Return the length of a batch that does nothing but make a job's records count."""
    groups: i64 = len(job.groups)
    return sector_end(BATCH_FRAME_BYTES + HEADER_BYTES + groups * GROUP_FRAME_BYTES)


@final
class SlicedWrite:
    """Progress of a job that is written in slices.

    Each slice is whole sectors, so that no sector with synced bytes is written again.
    """

    def __init__(self, job: WriteJob, start: i64) -> None:
        self.job = job  # whose records are written
        self.start = start  # offset of the first in the segment
        self.written: i64 = 0  # bytes that are written and synced
        # bytes at the segment's end that are kept for the batch that makes them count
        self.placing: i64 = placing_bytes(job)
        self._piece: i64 = 0
        self._piece_at: i64 = 0

    def is_done(self) -> bool:
        """Return whether everything is synced."""
        return self.written == self.job.size

    def slice(self, count: i64) -> list[bytes]:
        """Return the `count` bytes behind those that are written, or the rest if that is short."""
        pieces = self.job.pieces
        out: list[bytes] = []
        left: i64 = self.job.size - self.written
        if left > count + count // _REST_SHARE:
            left = count
        at: i64 = self._piece
        start: i64 = self.written - self._piece_at
        while left > 0:
            piece = pieces[at]
            stop: i64 = min(len(piece), start + left)
            out.append(piece if stop - start == len(piece) else piece[start:stop])
            left -= stop - start
            start = 0
            at += 1
        return out

    def advance(self, count: i64) -> None:
        """Note that `count` bytes more are synced."""
        self.written += count
        pieces = self.job.pieces
        while self._piece < len(pieces):
            end: i64 = self._piece_at + len(pieces[self._piece])
            if end > self.written:
                return
            self._piece_at = end
            self._piece += 1

    def record(self, salt: i64) -> bytes:
        """Return the record that makes the job's records count."""
        return encode_placed(salt, self.job.count, self.start, self.job.size)
