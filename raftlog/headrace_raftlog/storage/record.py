"""Records and batches as they stand in a segment; `LOG.md` has the byte diagrams.

Everything is little-endian. A checksum covers a record from its length field to the end of its
payload and starts from the log's salt, so that bytes of another log, or of a message that quotes
one, never pass for a record.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, final

from google_crc32c import extend
from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

from headrace_raftlog.model.entry import Entry, HardState

HEADER_BYTES: Final = 40
SECTOR_BYTES: Final = 512
BATCH_FRAME_BYTES: Final = 2 * HEADER_BYTES  # the head and the trailer of a batch

RECORD_ENTRY: Final = 1
RECORD_STATE: Final = 2
RECORD_TOMBSTONE: Final = 3
RECORD_HEAD: Final = 16
RECORD_TRAILER: Final = 17

RECORD_NAMES: Final = {
    RECORD_ENTRY: "entry",
    RECORD_STATE: "state",
    RECORD_TOMBSTONE: "tombstone",
    RECORD_HEAD: "head",
    RECORD_TRAILER: "trailer",
}

_CHECKSUM: Final = Struct("<I")
_FIELDS: Final = Struct("<IBB6xQQQ")  # length, type, kind, group, term, index
_VOTE: Final = Struct("<Q")
_SECTOR_ZEROS: Final = bytes(SECTOR_BYTES)


def encode_record(
    salt: i64, record_type: i64, kind: i64, group: i64, term: i64, index: i64, payload: bytes
) -> bytes:
    """Return a record's header; the payload is written behind it, uncopied.

    Args:
        salt: the log's salt, unsigned 32 bits.
        record_type: one of the RECORD_ constants.
        kind: entry kind, 0 for other records.
        group: incarnation id; the batch number in a head or trailer.
        term: term; the batch's length in a head, its start in a trailer.
        index: index; the count of records in a head or trailer.
        payload: what follows, possibly empty.
    """
    fields = _FIELDS.pack(len(payload), record_type, kind, group, term, index)
    checksum: int = extend(salt, fields)
    if payload:
        checksum = extend(checksum, payload)
    return _CHECKSUM.pack(checksum) + fields


def encode_entry(salt: i64, group: i64, entry: Entry) -> bytes:
    """Return the header of an entry's record; `entry.data` is its payload."""
    return encode_record(salt, RECORD_ENTRY, entry.kind, group, entry.term, entry.index, entry.data)


def encode_state(salt: i64, group: i64, state: HardState) -> bytes:
    """Return the whole record of a hard state: its commit stands in the index field."""
    payload = _VOTE.pack(state.vote)
    return encode_record(salt, RECORD_STATE, 0, group, state.term, state.commit, payload) + payload


def encode_head(salt: i64, number: i64, size: i64, count: i64) -> bytes:
    """Return the record that opens a batch of `size` bytes from here through its trailer."""
    return encode_record(salt, RECORD_HEAD, 0, number, size, count, b"")


def encode_trailer(salt: i64, number: i64, start: i64, count: i64) -> bytes:
    """Return the record that commits a batch that began at file offset `start`."""
    return encode_record(salt, RECORD_TRAILER, 0, number, start, count, b"")


def sector_end(offset: i64) -> i64:
    """Return the first sector boundary at or behind an offset."""
    return (offset + SECTOR_BYTES - 1) // SECTOR_BYTES * SECTOR_BYTES


def record_bytes(data: bytes, start: i64, stop: i64, salt: i64) -> i64:
    """Return the length of the whole, intact record at `start`, or -1 if there is none.

    Args:
        data: bytes of a segment.
        start: where the record begins.
        stop: where it ends at the latest, at most len(data).
        salt: the log's salt.
    """
    if stop - start < HEADER_BYTES:
        return -1
    length: i64 = i64(read_i32_le(data, start + 4)) & 0xFFFFFFFF
    end: i64 = start + HEADER_BYTES + length
    if end > stop:
        return -1
    expected: i64 = i64(read_i32_le(data, start)) & 0xFFFFFFFF
    actual: i64 = extend(salt, data[start + 4 : end])
    return end - start if actual == expected else -1


def record_type_at(data: bytes, start: i64) -> i64:
    """Return the type byte of the record at `start`."""
    return data[start + 8]


def record_group_at(data: bytes, start: i64) -> i64:
    """Return the group field (a head's batch number) of the record at `start`."""
    return read_i64_le(data, start + 16)


def record_term_at(data: bytes, start: i64) -> i64:
    """Return the term field (a head's batch length) of the record at `start`."""
    return read_i64_le(data, start + 24)


def record_index_at(data: bytes, start: i64) -> i64:
    """Return the index field (a head's count of records) of the record at `start`."""
    return read_i64_le(data, start + 32)


def decode_entry(data: bytes, start: i64) -> Entry:
    """Return the entry of an intact record at `start`."""
    length: i64 = i64(read_i32_le(data, start + 4)) & 0xFFFFFFFF
    payload: i64 = start + HEADER_BYTES
    return Entry(
        read_i64_le(data, start + 32),
        read_i64_le(data, start + 24),
        i64(data[start + 9]),
        data[payload : payload + length],
    )


def decode_state(data: bytes, start: i64) -> HardState:
    """Return the hard state of an intact record at `start`."""
    return HardState(
        read_i64_le(data, start + 24),
        read_i64_le(data, start + HEADER_BYTES),
        read_i64_le(data, start + 32),
    )


def head_number_at(data: bytes, start: i64, salt: i64) -> i64:
    """Return the number of the batch whose intact head stands at `start`, or 0."""
    if start + HEADER_BYTES > len(data) or data[start + 8] != RECORD_HEAD:
        return 0
    if record_bytes(data, start, start + HEADER_BYTES, salt) < 0:
        return 0
    return read_i64_le(data, start + 16)


@final
class Batch:
    """One batch found in a segment.

    Attributes:
        number: its number, counted from 1 over the whole log.
        start: offset of its head.
        end: first sector boundary behind its trailer; 0 when it is not intact.
        offsets: where its records begin, without head and trailer.
        damage: offset of the first record that is not intact, -1 for none.
        reason: what is wrong there.
    """

    def __init__(self, number: i64, start: i64) -> None:
        self.number = number
        self.start = start
        self.end: i64 = 0
        self.offsets: list[int] = []
        self.damage: i64 = -1
        self.reason = ""


def _damaged(batch: Batch, offset: i64, reason: str) -> Batch:
    batch.damage = offset
    batch.reason = reason
    return batch


def read_batch(data: bytes, start: i64, number: i64, salt: i64) -> Batch:
    """Read the batch that must stand at `start`; never raises.

    Args:
        data: a whole segment.
        start: a sector boundary.
        number: the number the batch must have.
        salt: the log's salt.
    """
    batch = Batch(number, start)
    found: i64 = head_number_at(data, start, salt)
    if found != number:
        text = f"batch {found} stands here" if found else "no batch head"
        return _damaged(batch, start, f"{text}, expected batch {number}")
    size: i64 = record_term_at(data, start)
    count: i64 = record_index_at(data, start)
    end: i64 = sector_end(start + size)
    if size < BATCH_FRAME_BYTES or end > len(data):
        return _damaged(batch, start, f"batch {number} claims {size} bytes")
    offsets = batch.offsets
    position: i64 = start + HEADER_BYTES
    trailer: i64 = start + size - HEADER_BYTES
    while position < trailer:
        taken: i64 = record_bytes(data, position, trailer, salt)
        if taken < 0:
            return _damaged(batch, position, f"checksum or length wrong in batch {number}")
        offsets.append(position)
        position += taken
    if (
        record_bytes(data, trailer, start + size, salt) < 0
        or record_type_at(data, trailer) != RECORD_TRAILER
        or record_group_at(data, trailer) != number
        or record_term_at(data, trailer) != start
        or record_index_at(data, trailer) != count
        or len(offsets) != count
    ):
        return _damaged(batch, trailer, f"trailer of batch {number} missing or wrong")
    padding: i64 = end - start - size
    if padding and data[start + size : end] != _SECTOR_ZEROS[:padding]:
        return _damaged(batch, start + size, f"padding behind batch {number} is not zero")
    batch.end = end
    return batch
