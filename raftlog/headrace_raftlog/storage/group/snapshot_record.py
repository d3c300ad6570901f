"""Snapshots as records: as many parts as needed, then one record that makes them effective."""

from __future__ import annotations

from array import array
from struct import Struct, error
from typing import Final, final

from google_crc32c import extend
from librt.strings import BytesWriter
from mypy_extensions import i64

from headrace_raftlog.model.membership import NOBODY, Membership, decode_membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.storage.segment.sparse_index import ascending_run

PART_LEAD_BYTES: Final = 8  # the serial number in front of a part's bytes
_PART: Final = Struct("<Q")  # serial
_FINAL: Final = Struct("<QIQIQ")  # serial, parts, bytes, checksum, kept
_SIZES: Final = Struct("<IQQ")  # membership bytes, live entries, bytes of their list
_NO_PARTS: Final = array("Q")
_NO_PART_BYTES: Final = array("I")
FINAL_LEAD_BYTES: Final = _FINAL.size


@final
class StoredSnapshot:
    """Location of a snapshot."""

    def __init__(self, index: i64, term: i64, serial: i64) -> None:
        self.index = index  # what it contains ends there
        self.term = term  # term of the entry at `index`
        self.serial = serial  # tells its parts from those of other attempts, unique in the log
        self.size: i64 = 0  # bytes of membership, list of live entries and state
        self.checksum: i64 = 0  # CRC32C of these bytes
        self.kept: i64 = 0  # entries of eras before the record's own are void beyond this index
        # packed locations of the parts, 0 where not known to be durable
        self.parts: array[int] = _NO_PARTS
        self.part_bytes: array[int] = _NO_PART_BYTES  # lengths of their records
        self.location: i64 = 0  # of the record that makes it effective
        self.length: i64 = 0  # of that record
        self.pending: Snapshot | None = None  # the snapshot itself while it is not durable
        self.void = False  # it was given up or superseded before it was durable

    def expect_parts(self, count: i64) -> None:
        """Make room for the places of parts; most snapshots have none."""
        if count > 0:
            self.parts = array("Q", bytes(8 * count))
            self.part_bytes = array("I", bytes(4 * count))


def encode_lead(snapshot: Snapshot) -> bytes:
    """Return what stands before the state: membership and live indexes as ascending steps."""
    out = BytesWriter()
    last: i64 = 0
    live = snapshot.live
    at: i64 = 0
    count: i64 = len(live)
    while at < count:
        index: i64 = live[at]
        step: i64 = index - last
        while step > 127:
            out.append((step & 127) | 128)
            step >>= 7
        out.append(step)
        stop: i64 = ascending_run(live, at, count)
        out.write(b"\1" * (stop - at - 1))
        last = index + stop - at - 1
        at = stop
    members = snapshot.membership.encode()
    return _SIZES.pack(len(members), count, len(out)) + members + out.getvalue()


def checksum_of(pieces: list[bytes]) -> int:
    """Return the CRC32C of pieces one behind the other."""
    value = 0
    for piece in pieces:
        value = extend(value, piece)
    return value


def decode_live(data: bytes, start: i64, stop: i64, count: i64) -> array[int]:
    """Read ascending steps.

    Raises ValueError: they are not `count` indexes.
    """
    out: array[int] = array("Q")
    last: i64 = 0
    shift: i64 = 0
    step: i64 = 0
    at: i64 = start
    while at < stop:
        byte: i64 = data[at]
        at += 1
        step |= (byte & 127) << shift
        if byte > 127:
            shift += 7
            if shift > 63:
                raise ValueError("a step in the list of live entries is too long")
            continue
        last += step
        out.append(last)
        step = 0
        shift = 0
    if len(out) != count or shift:
        raise ValueError(f"the list of live entries has {len(out)} of {count}")
    return out


@final
class SnapshotData:
    """Decoded head of a snapshot; the state is not copied out."""

    def __init__(self, membership: Membership, live: array[int], state_start: i64) -> None:
        self.membership = membership  # of the group at its index
        self.live = live  # live indexes
        self.state_start = state_start  # where the state begins in the bytes


def decode_data(data: bytes) -> SnapshotData:
    """Read what stands before the state.

    Raises ValueError: it is not that.
    """
    try:
        sizes = _SIZES.unpack_from(data)
    except error as problem:
        raise ValueError(f"a snapshot of {len(data)} bytes is too short") from problem
    members: int = sizes[0]
    count: int = sizes[1]
    steps: int = sizes[2]
    start: int = _SIZES.size + members
    if start + steps > len(data):
        raise ValueError("a snapshot is shorter than it says")
    membership = decode_membership(data[_SIZES.size : start])
    live = decode_live(data, start, start + steps, count)
    return SnapshotData(membership if membership != NOBODY else NOBODY, live, start + steps)


def encode_part_lead(serial: i64) -> bytes:
    """Return what stands before the bytes of a part."""
    return _PART.pack(serial)


def encode_final_lead(stored: StoredSnapshot) -> bytes:
    """Return what stands before the last bytes of a snapshot in its effective record."""
    return _FINAL.pack(stored.serial, len(stored.parts), stored.size, stored.checksum, stored.kept)


def part_serial(payload: bytes) -> int:
    """Return the serial that a part belongs to."""
    return int.from_bytes(payload[:PART_LEAD_BYTES], "little")


def decode_final(payload: bytes, index: i64, term: i64) -> StoredSnapshot:
    """Read the effective record of a snapshot; its parts are not located yet.

    Raises ValueError: the payload is too short.
    """
    if len(payload) < FINAL_LEAD_BYTES:
        raise ValueError("the record of a snapshot is too short")
    fields = _FINAL.unpack_from(payload)
    serial: int = fields[0]
    stored = StoredSnapshot(index, term, serial)
    count: int = fields[1]
    stored.size = fields[2]
    stored.checksum = fields[3]
    stored.kept = fields[4]
    if count > stored.size:
        raise ValueError(f"a snapshot of {stored.size} bytes claims {count} parts")
    stored.expect_parts(count)
    return stored
