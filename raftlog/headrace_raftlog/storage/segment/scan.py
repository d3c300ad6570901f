"""Looking at one segment's bytes: where data ends, which batches a damaged stretch held."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from headrace_raftlog.storage.segment.record import (
    HEADER_BYTES,
    RECORD_TRAILER,
    SECTOR_BYTES,
    Batch,
    groups_at,
    head_number_at,
    record_bytes,
    record_group_at,
    record_term_at,
    record_type_at,
    sector_end,
)

_ZEROS: Final = bytes(1 << 20)
_TRAILER_BYTE: Final = bytes([RECORD_TRAILER])
_TYPE_AT: Final = 8  # where a record's type stands


def nonzero_end(data: bytes, start: i64) -> i64:
    """Return the end of the last sector from `start` on that is not all zero, or `start`."""
    end: i64 = len(data)
    while end > start:
        chunk: i64 = min(len(_ZEROS), end - start)
        if data[end - chunk : end] != _ZEROS[:chunk]:
            return sector_end(start + len(data[start:end].rstrip(b"\0")))
        end -= chunk
    return start


def claimed_bytes(data: bytes, batch: Batch, salt: i64) -> i64:
    """Return the length that a damaged batch's own head claims, 0 when the head is not intact."""
    if head_number_at(data, batch.start, salt) != batch.number:
        return 0
    return record_term_at(data, batch.start)


def later_head(data: bytes, start: i64, end: i64, number: i64, salt: i64) -> i64:
    """Return where the first intact head of a batch after `number` stands, or -1."""
    position: i64 = start
    while position < end:
        if head_number_at(data, position, salt) > number:
            return position
        position += SECTOR_BYTES
    return -1


def named_groups(data: bytes, start: i64, stop: i64, salt: i64) -> dict[int, list[int]]:
    """Return which groups the heads and trailers in a damaged stretch name, by batch number.

    Every batch names them twice, at its two ends, so one of the lists is usually left.
    """
    out: dict[int, list[int]] = {}
    position: i64 = start
    while position < stop:
        number: i64 = head_number_at(data, position, salt)
        if number > 0:
            out[number] = groups_at(data, position)
        position += SECTOR_BYTES
    at: i64 = data.find(_TRAILER_BYTE, start, stop)
    while at >= 0:
        record: i64 = at - _TYPE_AT
        if (
            record >= start
            and record + HEADER_BYTES <= stop
            and record_type_at(data, record) == RECORD_TRAILER
            and record_bytes(data, record, stop, salt) > 0
        ):
            out[record_group_at(data, record)] = groups_at(data, record)
        at = data.find(_TRAILER_BYTE, at + 1, stop)
    return out
