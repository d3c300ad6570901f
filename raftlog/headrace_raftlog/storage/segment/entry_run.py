"""Entries of one group that lie one behind the other in a segment."""

from __future__ import annotations

from mypy_extensions import i64

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.storage.record import (
    RECORD_ENTRY,
    RECORD_INCOMING,
    decode_entry,
    record_bytes,
    record_group_at,
    record_index_at,
    record_term_at,
    record_type_at,
)
from headrace_raftlog.storage.segment import SegmentReader


def read_run(
    reader: SegmentReader,
    group: i64,
    location: i64,
    size: i64,
    low: i64,
    terms: list[int],
    out: list[Entry],
) -> None:
    """Read entries from `low` on and put them behind those in `out`.

    Args:
        reader: of the segments.
        group: incarnation id.
        location: packed, of the first one's record.
        size: of all their records.
        low: index of the first one.
        terms: one for each; 0 for an entry that its snapshot left out, of any term.
        out: where they go.

    Raises:
        CorruptLogError: a record fails its checksum, or is another one.
        OSError: the file cannot be read.
    """
    sequence: i64 = location >> 32
    offset: i64 = location & 0xFFFFFFFF
    data = reader.read(sequence, offset, size)
    position: i64 = 0
    index: i64 = low
    for term in terms:
        taken: i64 = record_bytes(data, position, len(data), reader.salt)
        if taken < 0 or not _is_record_of(data, position, group, index, term):
            raise CorruptLogError(
                reader.path(sequence),
                offset + position,
                f"entry {index} of group {group} is not intact there",
            )
        out.append(decode_entry(data, position))
        position += taken
        index += 1


def _is_record_of(data: bytes, position: i64, group: i64, index: i64, term: i64) -> bool:
    record_type: i64 = record_type_at(data, position)
    if record_group_at(data, position) != group or record_index_at(data, position) != index:
        return False
    if term == 0:
        return record_type in (RECORD_ENTRY, RECORD_INCOMING)
    return record_type == RECORD_ENTRY and record_term_at(data, position) == term
