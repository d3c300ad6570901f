"""Which records of a damaged batch are intact, and which ones exactly are not.

A batch says its length, its number of records and its groups at both ends. While one of the ends is
intact, its records can be told apart even where some of them fail their checksums: by the length in
a header that passes its own check, or by the next intact record. The count shows whether that came
out right.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.storage.segment.record import (
    HEAD_PLAIN,
    HEAD_RESERVED,
    HEADER_BYTES,
    RECORD_ENTRY,
    RECORD_FILES,
    RECORD_GONE,
    RECORD_NAMES,
    RECORD_PLACED,
    RECORD_RESERVED,
    RECORD_TRAILER,
    groups_at,
    head_number_at,
    header_is_checked,
    record_bytes,
    record_era_at,
    record_group_at,
    record_index_at,
    record_kind_at,
    record_length_at,
    record_term_at,
    record_type_at,
    sector_end,
)
from headrace_raftlog.storage.segment.segment import SEGMENT_HEADER_BYTES

_TRAILER_BYTE: Final = bytes([RECORD_TRAILER])
_TYPE_AT: Final = 8  # where a record's type stands
_NO_GROUP: Final = (RECORD_FILES, RECORD_GONE, RECORD_RESERVED, RECORD_PLACED)


@final
class DamagedBatch:
    """A damaged batch whose records are known one by one all the same."""

    def __init__(self, end: i64) -> None:
        self.end = end  # first sector boundary behind it and what it reserves
        # of all its records, in order, those that it places behind the one that does
        self.offsets: list[int] = []
        self.intact: list[bool] = []  # for each of them, whether it is intact
        self.blind: list[int] = []  # offsets of those of the damaged ones that say nothing any more
        self.unknown: list[int] = []  # groups that these can be of


@final
class _Frame:
    """Contents of a batch according to its intact end or ends; `kind` is that of its head."""

    def __init__(
        self, first: i64, stop: i64, end: i64, count: i64, groups: list[int], kind: i64 = HEAD_PLAIN
    ) -> None:
        self.first = first
        self.stop = stop
        self.end = end
        self.count = count
        self.groups = groups
        self.kind = kind


def read_damaged_batch(
    data: bytes, start: i64, number: i64, stop: i64, salt: i64
) -> DamagedBatch | None:
    """Split the records of a batch that failed `read_batch`.

    Args:
        data: a segment.
        start: where the batch begins.
        number: its number.
        stop: no byte of it stands there or behind.
        salt: the log's salt.

    Returns:
        None where neither end is intact, or the records between do not come out.
    """
    frame = _frame_of_head(data, start, number, salt)
    if frame is None:
        frame = _frame_of_trailer(data, start, number, stop, salt)
    if frame is None or frame.end > len(data) or frame.stop < frame.first:
        return None
    batch = DamagedBatch(frame.end)
    if not _take_records(data, batch, frame, salt, start == SEGMENT_HEADER_BYTES):
        return None
    if batch.blind:
        batch.unknown = _concerned(data, batch, frame)
    return batch


def _take_records(data: bytes, batch: DamagedBatch, frame: _Frame, salt: i64, lists: bool) -> bool:
    """Find the records of a frame; return whether as many come out as there should be.

    Args:
        data: a segment.
        batch: takes them.
        frame: where they are.
        salt: the log's salt.
        lists: whether the first one is the list of files.
    """
    position: i64 = frame.first
    count: i64 = 0
    while position < frame.stop:
        count += 1
        taken: i64 = record_bytes(data, position, frame.stop, salt)
        intact = taken > 0
        known = intact or _is_known(data, position, frame)
        if not intact:
            taken = _length(data, position, known, frame, salt) - position
        passed_over = (count == 1 and lists and not intact) or (
            not known and _is_reserving(data, position, taken, frame)
        )
        if not passed_over:
            batch.offsets.append(position)
            batch.intact.append(intact)
            if not known:
                batch.blind.append(position)
            elif not _follow(data, batch, position, frame, salt):
                return False
        position += taken
    return count == frame.count


def _is_reserving(data: bytes, position: i64, size: i64, frame: _Frame) -> bool:
    """Return whether a record of which nothing is believed is the one that reserves bytes.

    It has no payload, and comes first in its batch, or behind the one that places a record.
    """
    if frame.kind != HEAD_RESERVED or size != HEADER_BYTES:
        return False
    if position == frame.first:
        return True
    return (
        position == frame.first + HEADER_BYTES
        and record_type_at(data, frame.first) == RECORD_PLACED
    )


def _follow(data: bytes, batch: DamagedBatch, position: i64, frame: _Frame, salt: i64) -> bool:
    """Take what a record with a believed header places or reserves; False if that cannot be."""
    record_type: i64 = record_type_at(data, position)
    if record_type == RECORD_RESERVED:
        size: i64 = record_index_at(data, position)
        if size < 0 or batch.end + size > len(data):
            return False
        batch.end += size
    elif record_type == RECORD_PLACED:
        first: i64 = record_term_at(data, position)
        stop: i64 = first + record_index_at(data, position)
        if first < SEGMENT_HEADER_BYTES or stop > position:
            return False
        placed = _Frame(first, stop, frame.end, record_era_at(data, position), frame.groups)
        return _take_records(data, batch, placed, salt, False)
    return True


def _frame_of_head(data: bytes, start: i64, number: i64, salt: i64) -> _Frame | None:
    if head_number_at(data, start, salt) != number:
        return None
    size: i64 = record_term_at(data, start)
    frame: i64 = HEADER_BYTES + record_length_at(data, start)
    return _Frame(
        start + frame,
        start + size - frame,
        sector_end(start + size),
        record_index_at(data, start),
        groups_at(data, start),
        record_kind_at(data, start),
    )


def _frame_of_trailer(data: bytes, start: i64, number: i64, stop: i64, salt: i64) -> _Frame | None:
    at: i64 = data.find(_TRAILER_BYTE, start, stop)
    while at >= 0:
        record: i64 = at - _TYPE_AT
        if (
            record >= start + HEADER_BYTES
            and record + HEADER_BYTES <= stop
            and record_group_at(data, record) == number
            and record_term_at(data, record) == start
        ):
            size: i64 = record_bytes(data, record, stop, salt)
            if size > 0:
                return _Frame(
                    start + size,
                    record,
                    sector_end(record + size),
                    record_index_at(data, record),
                    groups_at(data, record),
                )
        at = data.find(_TRAILER_BYTE, at + 1, stop)
    return None


def _is_known(data: bytes, position: i64, frame: _Frame) -> bool:
    """Return whether the header of a damaged record can be believed.

    It passes its own check, is of a known kind, and of a group that the batch has records of.
    """
    if not header_is_checked(data, position):
        return False
    record_type: i64 = record_type_at(data, position)
    if record_type in _NO_GROUP:
        return True
    return record_type in RECORD_NAMES and record_group_at(data, position) in frame.groups


def _length(data: bytes, position: i64, known: bool, frame: _Frame, salt: i64) -> i64:
    """Return where the record behind a damaged one begins."""
    end: i64 = position + HEADER_BYTES + record_length_at(data, position)
    if end == frame.stop or (known and end < frame.stop):
        return end
    if end < frame.stop and record_bytes(data, end, frame.stop, salt) > 0:
        return end
    at: i64 = position + HEADER_BYTES
    while at + HEADER_BYTES <= frame.stop:
        if (
            RECORD_ENTRY <= record_type_at(data, at) < RECORD_FILES
            and record_group_at(data, at) in frame.groups
            and record_bytes(data, at, frame.stop, salt) > 0
        ):
            return at
        at += 1
    return frame.stop


def _concerned(data: bytes, batch: DamagedBatch, frame: _Frame) -> list[int]:
    """Return the possible groups of unreadable records.

    Every group that a batch names has a record in it: where as many have none left as records are
    not known, it is theirs.
    """
    seen: set[int] = set()
    for offset in batch.offsets:
        if offset not in batch.blind and record_type_at(data, offset) not in _NO_GROUP:
            seen.add(record_group_at(data, offset))
    silent = [group for group in frame.groups if group not in seen]
    return silent if len(silent) == len(batch.blind) else list(frame.groups)
