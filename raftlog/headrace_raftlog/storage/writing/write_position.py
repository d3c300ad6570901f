"""Position of the writer in the log, and the frame of a batch there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.model.limits import OWN_SEGMENT_SHARE
from headrace_raftlog.storage.segment.file_list import FileSpan, encode_files
from headrace_raftlog.storage.segment.record import (
    BATCH_FRAME_BYTES,
    HEAD_FILES,
    HEADER_BYTES,
    SECTOR_BYTES,
    encode_groups,
    encode_head,
    encode_trailer,
    sector_end,
)
from headrace_raftlog.storage.segment.segment import SEGMENT_HEADER_BYTES, SegmentHeader

RESERVE_BYTES: Final = 3 * SECTOR_BYTES  # at a segment's end: a seal, and two lists of gone files
FILES_SHARE: Final = 8  # one part in so many of a segment is kept for the list of the others
# What a segment holds besides the records of a batch, without the list of the others.
_OVERHEAD_BYTES: Final = SEGMENT_HEADER_BYTES + BATCH_FRAME_BYTES + RESERVE_BYTES


def plain_room(segment_bytes: int) -> int:
    """Return how many bytes of records a batch has room for in an empty segment of so many."""
    return segment_bytes - segment_bytes // FILES_SHARE - _OVERHEAD_BYTES


@final
@dataclass(eq=False)
class WriterPosition:
    """Position of the next batch; there is no segment behind that one."""

    header: SegmentHeader
    fd: int  # the segment, open for writing
    offset: i64  # a sector boundary in it
    number: i64  # number of the next batch
    first: i64  # number of the first batch in the segment; `number` while there is none
    spans: list[FileSpan]  # the segments before it, ascending

    def frame(
        self, records: list[bytes], size: i64, count: i64, groups: list[int], kind: i64
    ) -> tuple[list[bytes], i64, i64]:
        """Put a head and a trailer around records.

        The first batch of a segment begins with the list of all segments before it.

        Returns:
            The batch in pieces, its length, and how far from its start the first record is.
        """
        salt: i64 = self.header.salt
        names = encode_groups(groups)
        lead: i64 = HEADER_BYTES + len(names)
        pieces = [b""]
        if self.offset == SEGMENT_HEADER_BYTES:
            kind = HEAD_FILES
            files = self._files_record()
            pieces.append(files)
            lead += len(files)
            count += 1
        whole: i64 = lead + size + HEADER_BYTES + len(names)
        pieces[0] = encode_head(salt, kind, self.number, whole, count, names)
        pieces.extend(records)
        pieces.append(encode_trailer(salt, self.number, self.offset, count, names))
        return pieces, whole, lead

    def room(self) -> i64:
        """Return how many bytes of records one more batch of this segment can hold.

        What is reserved at its end stays free.
        """
        room: i64 = i64(self.header.size) - self.offset - BATCH_FRAME_BYTES - RESERVE_BYTES
        if self.offset == SEGMENT_HEADER_BYTES:
            room -= len(self._files_record())
        return room

    def own_bytes(self, need: i64) -> i64:
        """Return how long the next segment has to be for records of `need` bytes, and some more.

        It is not so long that collection, which wants a file that is dead to a third, would ever
        move its long record to get at what stands beside it.
        """
        files: i64 = len(self._files_record()) + HEADER_BYTES  # one more segment is listed then
        size: i64 = SEGMENT_HEADER_BYTES + BATCH_FRAME_BYTES + RESERVE_BYTES + files + need
        return sector_end(size + need // OWN_SEGMENT_SHARE)

    def _files_record(self) -> bytes:
        return encode_files(self.header.salt, self.spans)
