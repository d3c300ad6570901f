"""Entries of one group that lie one behind the other in a segment."""

from __future__ import annotations

from mypy_extensions import i64

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.errors import LostEntryError
from headrace_raftlog.model.limits import READ_CACHED_BYTES_MAX
from headrace_raftlog.storage.disk.files import is_lost
from headrace_raftlog.storage.segment.long_record import entry_of
from headrace_raftlog.storage.segment.piece_cache import LongRecord
from headrace_raftlog.storage.segment.record import (
    RECORD_ENTRY,
    RECORD_INCOMING,
    decode_entry,
    record_bytes,
    record_group_at,
    record_index_at,
    record_term_at,
    record_type_at,
)
from headrace_raftlog.storage.segment.segment import SegmentReader


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

    Raises LostEntryError: a record fails its checksum, is another one, or the disk has lost it;
    OSError: the file cannot be read for another reason.
    """
    sequence: i64 = location >> 32
    offset: i64 = location & 0xFFFFFFFF
    if size > READ_CACHED_BYTES_MAX and len(terms) == 1:
        whole = _take_long(reader, group, location, low)
        if whole is not None:
            if not whole.is_intact or not _is_record_of(whole.head, 0, group, low, terms[0]):
                path = reader.path(sequence)
                raise LostEntryError(path, offset, group, low, "is not intact there")
            out.append(entry_of(whole.head, whole.payload))
            return
    data = _data_of(reader, group, location, size, low)
    position: i64 = 0
    index: i64 = low
    for term in terms:
        taken: i64 = record_bytes(data, position, len(data), reader.salt)
        if taken < 0 or not _is_record_of(data, position, group, index, term):
            raise LostEntryError(
                reader.path(sequence), offset + position, group, index, "is not intact there"
            )
        out.append(decode_entry(data, position))
        position += taken
        index += 1


def _take_long(reader: SegmentReader, group: i64, location: i64, low: i64) -> LongRecord | None:
    try:
        return reader.reads.take_record(location >> 32, location & 0xFFFFFFFF)
    except OSError as error:
        raise _lost(reader, group, location, low, error) from error


def _data_of(reader: SegmentReader, group: i64, location: i64, size: i64, low: i64) -> bytes:
    try:
        return reader.read(location >> 32, location & 0xFFFFFFFF, size)
    except OSError as error:
        raise _lost(reader, group, location, low, error) from error


def _lost(
    reader: SegmentReader, group: i64, location: i64, low: i64, error: OSError
) -> LostEntryError:
    """Return the error text if the disk has lost an entry; raise any other error as it is."""
    if not is_lost(error):
        raise error
    path = reader.path(location >> 32)
    reason = f"cannot be read: {error.strerror}"
    return LostEntryError(path, location & 0xFFFFFFFF, group, low, reason)


def _is_record_of(data: bytes, position: i64, group: i64, index: i64, term: i64) -> bool:
    record_type: i64 = record_type_at(data, position)
    if record_group_at(data, position) != group or record_index_at(data, position) != index:
        return False
    if term == 0:
        return record_type in (RECORD_ENTRY, RECORD_INCOMING)
    return record_type == RECORD_ENTRY and record_term_at(data, position) == term
