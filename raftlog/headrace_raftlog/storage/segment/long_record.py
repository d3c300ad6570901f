"""Records that are too long for one turn of the event loop: their heads, checksums and payloads."""

from __future__ import annotations

from typing import Final

from google_crc32c import extend
from librt.strings import read_i32_le
from mypy_extensions import i64

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.storage.segment.record import (
    CHECKED_BYTES,
    CHECKSUM_BYTES,
    HEADER_BYTES,
    header_fields,
    record_index_at,
    record_kind_at,
    record_length_at,
    record_term_at,
)

_NO_CHECKSUM: Final = bytes(CHECKSUM_BYTES)


def encode_unchecked(
    record_type: i64,
    kind: i64,
    era: i64,
    group: i64,
    term: i64,
    index: i64,
    length: i64,
    flags: i64 = 0,
) -> bytes:
    """Return a record's header as `record.encode_record` does, without its checksum."""
    return _NO_CHECKSUM + header_fields(record_type, kind, era, group, term, index, length, flags)


def with_checksum(head: bytes, checksum: int) -> bytes:
    """Return a header with the checksum of its record."""
    return int(checksum).to_bytes(CHECKSUM_BYTES, "little") + head[CHECKSUM_BYTES:]


def extended(checksum: int, payload: bytes, start: i64, stop: i64) -> int:
    """Return a checksum carried on over `payload[start:stop]`."""
    at: i64 = start
    while at < stop:
        end: i64 = min(stop, at + CHECKED_BYTES)
        checksum = extend(checksum, payload[at:end])
        at = end
    return checksum


def is_whole_record(head: bytes, payload: bytes, salt: i64) -> bool:
    """Return whether a header and a payload of at least one byte are an intact record."""
    if len(head) < HEADER_BYTES or record_length_at(head, 0) != len(payload):
        return False
    begun = extend(salt, head[CHECKSUM_BYTES:HEADER_BYTES])
    actual: i64 = extended(begun, payload, 0, len(payload))
    return actual == i64(read_i32_le(head, 0)) & 0xFFFFFFFF


def entry_of(head: bytes, payload: bytes) -> Entry:
    """Return the entry of an intact record that is read in two parts, its data uncopied."""
    index, term = record_index_at(head, 0), record_term_at(head, 0)
    return Entry(index, term, record_kind_at(head, 0), payload)
