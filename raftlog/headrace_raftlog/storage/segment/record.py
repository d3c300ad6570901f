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
CHECKSUM_BYTES: Final = 4  # what a header begins with
SECTOR_BYTES: Final = 512
BATCH_FRAME_BYTES: Final = 2 * HEADER_BYTES  # head and trailer of a batch that names no group
GROUP_FRAME_BYTES: Final = 16  # what head and trailer grow by for each group named

RECORD_ENTRY: Final = 1
RECORD_STATE: Final = 2
RECORD_TOMBSTONE: Final = 3
RECORD_BASE: Final = 4
RECORD_PART: Final = 5
RECORD_SNAPSHOT: Final = 6
RECORD_INCOMING: Final = 7
RECORD_FILES: Final = 8
RECORD_GONE: Final = 9
RECORD_QUARANTINE: Final = 10
RECORD_RESERVED: Final = 11
RECORD_PLACED: Final = 12
RECORD_HEAD: Final = 16
RECORD_TRAILER: Final = 17

RECORD_NAMES: Final = {
    RECORD_ENTRY: "entry",
    RECORD_STATE: "state",
    RECORD_TOMBSTONE: "tombstone",
    RECORD_BASE: "base",
    RECORD_PART: "snapshot part",
    RECORD_SNAPSHOT: "snapshot",
    RECORD_INCOMING: "incoming",
    RECORD_FILES: "files",
    RECORD_GONE: "gone",
    RECORD_QUARANTINE: "quarantine",
    RECORD_RESERVED: "reserved",
    RECORD_PLACED: "placed",
    RECORD_HEAD: "head",
    RECORD_TRAILER: "trailer",
}

HEAD_PLAIN: Final = 0  # kind of a batch head
HEAD_FILES: Final = 1  # kind of the head of a batch that says which files exist
HEAD_RESERVED: Final = 2  # kind of the head of another batch that reserves bytes behind itself
FLAG_COPY: Final = 1  # a record that was moved here; it was written first somewhere else

_CHECKSUM: Final = Struct("<I")
_FIELDS: Final = Struct("<IBBBxIQQQ")  # length, type, kind, flags, era, group, term, index
_WITH_CHECK: Final = Struct("<IBBBBIQQQ")  # the same with the check behind the flags
_CHECK_AT: Final = 11  # where the check of a header's own fields stands, 0 in old records
_CHECK_MODULUS: Final = 227  # prime with 2 as a primitive root: notices every single flipped bit
_LEFT_32: Final = (1 << 32) % _CHECK_MODULUS  # what a field weighs that stands 32 bits further left
CHECKED_BYTES: Final = 256 << 10  # bytes of a record whose checksum is taken at once
_VOTE: Final = Struct("<Q")
_COPY: Final = bytes([FLAG_COPY])
_SECTOR_ZEROS: Final = bytes(SECTOR_BYTES)


def encode_record(
    salt: i64,
    record_type: i64,
    kind: i64,
    era: i64,
    group: i64,
    term: i64,
    index: i64,
    payload: bytes,
    flags: i64 = 0,
) -> bytes:
    """Return a record's header; the payload is written behind it, uncopied.

    Args:
        salt: the log's salt, unsigned 32 bits.
        record_type: one of the RECORD_ constants.
        kind: entry kind; a HEAD_ constant in a head; 0 for other records.
        era: how often the group's log was cut back or begun anew before, unsigned 32 bits.
        group: incarnation id; the batch number in a head or trailer.
        term: term; the batch's length in a head, its start in a trailer.
        index: index; the count of records in a head or trailer.
        payload: what follows, possibly empty.
        flags: FLAG_COPY or 0.
    """
    fields = header_fields(record_type, kind, era, group, term, index, len(payload), flags)
    checksum: int = extend(salt, fields)
    if payload:
        checksum = extend(checksum, payload)
    return _CHECKSUM.pack(checksum) + fields


def header_fields(
    record_type: i64,
    kind: i64,
    era: i64,
    group: i64,
    term: i64,
    index: i64,
    length: i64,
    flags: i64,
) -> bytes:
    """Return a header behind its checksum."""
    marks: i64 = record_type | kind << 8 | flags << 16
    check: i64 = _check_of(length, marks, era, group, term, index)
    return _WITH_CHECK.pack(length, record_type, kind, flags, check, era, group, term, index)


def encode_entry(salt: i64, era: i64, group: i64, entry: Entry) -> bytes:
    """Return the header of an entry's record; `entry.data` is its payload."""
    return encode_record(
        salt, RECORD_ENTRY, entry.kind, era, group, entry.term, entry.index, entry.data
    )


def encode_incoming(salt: i64, era: i64, group: i64, entry: Entry) -> bytes:
    """Return the header of the record of an entry fetched from a peer."""
    return encode_record(
        salt, RECORD_INCOMING, entry.kind, era, group, entry.term, entry.index, entry.data
    )


def encode_state(salt: i64, era: i64, group: i64, state: HardState) -> bytes:
    """Return the whole record of a hard state: its commit stands in the index field."""
    payload = _VOTE.pack(state.vote)
    head = encode_record(salt, RECORD_STATE, 0, era, group, state.term, state.commit, payload)
    return head + payload


def encode_copy(salt: i64, data: bytes, start: i64, stop: i64) -> bytes:
    """Return the intact record at `start` as a copy: the same but for its flag and checksum."""
    fields = data[start + 4 : start + 10] + _COPY + b"\0" + data[start + 12 : start + HEADER_BYTES]
    rest = _with_check(fields) + data[start + HEADER_BYTES : stop]
    return _CHECKSUM.pack(extend(salt, rest)) + rest


def _check_of(length: i64, marks: i64, era: i64, group: i64, term: i64, index: i64) -> i64:
    """Return the check of a header's fields, 1 to _CHECK_MODULUS, without one long number.

    Args:
        length: of the payload.
        marks: type, kind and flags, the type in the lowest 8 bits.
        era: unsigned 32 bits, as `length`.
        group: not negative, as `term` and `index`.
        term: see `encode_record`.
        index: likewise.
    """
    rest: i64 = index % _CHECK_MODULUS
    rest = rest * _LEFT_32 * _LEFT_32 + term % _CHECK_MODULUS  # a sum of the whole might overflow
    rest = rest % _CHECK_MODULUS * _LEFT_32 * _LEFT_32 + group % _CHECK_MODULUS
    rest = (rest % _CHECK_MODULUS * _LEFT_32 + era) % _CHECK_MODULUS
    rest = (rest * _LEFT_32 + marks) % _CHECK_MODULUS
    return (rest * _LEFT_32 + length) % _CHECK_MODULUS + 1


def _with_check(fields: bytes) -> bytes:
    """Return a header without its checksum, 36 bytes, with the check of its fields in place."""
    check: int = int.from_bytes(fields, "little") % _CHECK_MODULUS + 1
    at: i64 = _CHECK_AT - 4
    return fields[:at] + bytes([check]) + fields[at + 1 :]


def header_is_checked(data: bytes, start: i64) -> bool:
    """Return whether the header at `start` fits its own check, whatever became of the payload.

    False for a header of an old record, which has none.
    """
    if start + HEADER_BYTES > len(data) or data[start + _CHECK_AT] == 0:
        return False
    at: i64 = start + _CHECK_AT
    fields = data[start + 4 : at] + b"\0" + data[at + 1 : start + HEADER_BYTES]
    return int.from_bytes(fields, "little") % _CHECK_MODULUS + 1 == data[at]


def encode_groups(groups: list[int]) -> bytes:
    """Return the payload of a head or trailer: the ids of the groups with records in the batch."""
    return b"".join([group.to_bytes(8, "little") for group in groups])


def encode_head(salt: i64, kind: i64, number: i64, size: i64, count: i64, groups: bytes) -> bytes:
    """Return the whole record that opens a batch of `size` bytes from here through its trailer."""
    return encode_record(salt, RECORD_HEAD, kind, 0, number, size, count, groups) + groups


def encode_trailer(salt: i64, number: i64, start: i64, count: i64, groups: bytes) -> bytes:
    """Return the whole record that commits a batch that began at file offset `start`."""
    return encode_record(salt, RECORD_TRAILER, 0, 0, number, start, count, groups) + groups


def encode_reserved(salt: i64, size: i64) -> bytes:
    """Return the record of a batch behind which `size` bytes, whole sectors, are no batches."""
    return encode_record(salt, RECORD_RESERVED, 0, 0, 0, 0, size, b"")


def encode_placed(salt: i64, count: i64, start: i64, size: i64) -> bytes:
    """Return the record that makes records count that stand in reserved bytes of its segment.

    Args:
        salt: the log's salt.
        count: how many records these are.
        start: file offset of the first.
        size: bytes of all of them.
    """
    return encode_record(salt, RECORD_PLACED, 0, count, 0, start, size, b"")


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
    actual: i64 = salt
    at: i64 = start + 4
    while at < end:
        # Of a long record each slice is a copy: of short ones the memory is used again at once.
        stop_at: i64 = min(end, at + CHECKED_BYTES)
        actual = extend(actual, data[at:stop_at])
        at = stop_at
    return end - start if actual == expected else -1


def record_fields(data: bytes, start: i64) -> tuple[int, int, int, int, int, int, int, int]:
    """Return length, type, kind, flags, era, group, term and index of the record at `start`.

    One call instead of eight: recovery looks at every record there is.
    """
    return _FIELDS.unpack_from(data, start + 4)


def record_type_at(data: bytes, start: i64) -> i64:
    """Return the type byte of the record at `start`."""
    return data[start + 8]


def record_kind_at(data: bytes, start: i64) -> i64:
    """Return the kind byte of the record at `start`."""
    return data[start + 9]


def record_is_copy_at(data: bytes, start: i64) -> bool:
    """Return whether the record at `start` was moved there."""
    return data[start + 10] & FLAG_COPY != 0


def record_era_at(data: bytes, start: i64) -> i64:
    """Return the era field of the record at `start`."""
    return i64(read_i32_le(data, start + 12)) & 0xFFFFFFFF


def record_length_at(data: bytes, start: i64) -> i64:
    """Return the length of the payload of the record at `start`."""
    return i64(read_i32_le(data, start + 4)) & 0xFFFFFFFF


def record_payload_at(data: bytes, start: i64) -> bytes:
    """Return the payload of the record at `start`."""
    payload: i64 = start + HEADER_BYTES
    return data[payload : payload + record_length_at(data, start)]


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


def groups_at(data: bytes, start: i64) -> list[int]:
    """Return the group ids that an intact head or trailer at `start` names."""
    payload = record_payload_at(data, start)
    return [int.from_bytes(payload[at : at + 8], "little") for at in range(0, len(payload), 8)]


def head_number_at(data: bytes, start: i64, salt: i64) -> i64:
    """Return the number of the batch whose intact head stands at `start`, or 0."""
    if start + HEADER_BYTES > len(data) or data[start + 8] != RECORD_HEAD:
        return 0
    if record_bytes(data, start, len(data), salt) < 0:
        return 0
    return read_i64_le(data, start + 16)


@final
class Batch:
    """One batch found in a segment."""

    def __init__(self, number: i64, start: i64) -> None:
        self.number = number  # its number, counted from 1 over the whole log
        self.start = start  # offset of its head
        # first sector boundary behind its trailer; 0 when head, trailer or a record between them is
        # not intact
        self.stop: i64 = 0
        # where the next batch begins: there, or behind the bytes that it reserves; likewise
        self.follows: i64 = 0
        self.end: i64 = 0  # `follows`, but 0 as well when a record that it places is not intact
        # where its records begin, without head and trailer; `read_whole_batch` puts the placed ones
        # behind the record that places them
        self.offsets: list[int] = []
        self.places = False  # whether a record of it places others
        self.damage: i64 = -1  # offset of the first record that is not intact, -1 for none
        self.reason = ""  # what is wrong there


def _damaged(batch: Batch, offset: i64, reason: str) -> Batch:
    batch.damage = offset
    batch.reason = reason
    return batch


def read_batch(data: bytes, start: i64, number: i64, salt: i64, base: i64 = 0) -> Batch:
    """Read the batch that must stand at `start`; never raises.

    Args:
        data: a segment, or a stretch of one that holds the batch whole.
        start: a sector boundary in it.
        number: the number the batch must have.
        salt: the log's salt.
        base: where in the segment `data` begins.
    """
    batch = Batch(number, start)
    found: i64 = head_number_at(data, start, salt)
    if found != number:
        text = f"batch {found} stands here" if found else "no batch head"
        return _damaged(batch, start, f"{text}, expected batch {number}")
    size: i64 = record_term_at(data, start)
    count: i64 = record_index_at(data, start)
    end: i64 = sector_end(start + size)
    frame: i64 = HEADER_BYTES + record_length_at(data, start)
    if size < 2 * frame or end > len(data):
        return _damaged(batch, start, f"batch {number} claims {size} bytes")
    offsets = batch.offsets
    reserved: i64 = 0
    position: i64 = start + frame
    trailer: i64 = start + size - frame
    while position < trailer:
        taken: i64 = record_bytes(data, position, trailer, salt)
        if taken < 0:
            return _damaged(batch, position, f"checksum or length wrong in batch {number}")
        offsets.append(position)
        record_type: i64 = data[position + 8]
        if record_type == RECORD_RESERVED:
            reserved = read_i64_le(data, position + 32)
        elif record_type == RECORD_PLACED:
            batch.places = True
        position += taken
    if (
        record_bytes(data, trailer, start + size, salt) < 0
        or record_type_at(data, trailer) != RECORD_TRAILER
        or record_group_at(data, trailer) != number
        or record_term_at(data, trailer) != base + start
        or record_index_at(data, trailer) != count
        or len(offsets) != count
        or data[trailer + HEADER_BYTES : start + size] != data[start + HEADER_BYTES : start + frame]
    ):
        return _damaged(batch, trailer, f"trailer of batch {number} missing or wrong")
    padding: i64 = end - start - size
    if padding and data[start + size : end] != _SECTOR_ZEROS[:padding]:
        return _damaged(batch, start + size, f"padding behind batch {number} is not zero")
    batch.stop = end
    batch.follows = batch.end = end + reserved
    return batch


def read_whole_batch(data: bytes, start: i64, number: i64, salt: i64) -> Batch:
    """Read the batch that must stand at `start`, with the records that it places."""
    batch = read_batch(data, start, number, salt)
    return _with_placed(data, batch, salt) if batch.stop and batch.places else batch


def _with_placed(data: bytes, batch: Batch, salt: i64) -> Batch:
    out: list[int] = []
    for offset in batch.offsets:
        out.append(offset)
        if data[offset + 8] != RECORD_PLACED:
            continue
        start: i64 = record_term_at(data, offset)
        stop: i64 = start + record_index_at(data, offset)
        count: i64 = record_era_at(data, offset)
        if start < 0 or stop > batch.start or not find_records(data, start, stop, count, salt, out):
            batch.end = 0
            where: i64 = out[-1]
            return _damaged(batch, where, f"a record that batch {batch.number} places is damaged")
    batch.offsets = out
    return batch


def find_records(data: bytes, start: i64, stop: i64, count: i64, salt: i64, out: list[int]) -> bool:
    """Find records that stand one behind the other; return whether all are intact.

    Args:
        data: bytes of a segment.
        start: where the first one begins.
        stop: where the last one ends.
        count: how many there are.
        salt: the log's salt.
        out: takes their offsets; the last is that of the first one that is not intact, if any.
    """
    position: i64 = start
    left: i64 = count
    while position < stop:
        out.append(position)
        taken: i64 = record_bytes(data, position, stop, salt)
        if taken < 0:
            return False
        position += taken
        left -= 1
    return left == 0
