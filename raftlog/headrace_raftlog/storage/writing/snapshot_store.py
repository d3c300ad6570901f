"""Writing snapshots in steps and reading them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from google_crc32c import value as crc32c
from mypy_extensions import i64

from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.storage.disk.files import is_lost
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.group.snapshot_record import (
    FINAL_LEAD_BYTES,
    PART_LEAD_BYTES,
    SnapshotData,
    StoredSnapshot,
    checksum_of,
    decode_data,
    encode_final_lead,
    encode_lead,
    encode_part_lead,
)
from headrace_raftlog.storage.segment.record import (
    HEADER_BYTES,
    RECORD_PART,
    RECORD_SNAPSHOT,
    encode_record,
    record_bytes,
    record_group_at,
    record_payload_at,
    record_type_at,
)
from headrace_raftlog.storage.writing.write_job import JOB_PART, JOB_SNAPSHOT, WriteJob

TAKEN: Final = 0  # kind of a snapshot's record: the group's own
INSTALLED: Final = 1  # from a peer

_NOTHING_BEFORE: Final = 1  # a place that no record follows: nothing is read ahead with it


@final
class SnapshotWrite:
    """One snapshot on its way to the disk."""

    def __init__(
        self,
        group: StoredGroup,
        snapshot: Snapshot,
        serial: i64,
        token: object,
        kind: i64,
        bytes_max: i64,
    ) -> None:
        """Prepare one; its jobs are `bytes_max` bytes long at most."""
        self.group = group
        self.snapshot = snapshot  # what is written
        self.done = False  # every job was given out
        self.token = token  # for the callback
        self._kind = kind
        self._lead = encode_lead(snapshot)
        self._part_max: i64 = bytes_max - HEADER_BYTES - max(FINAL_LEAD_BYTES, PART_LEAD_BYTES)
        self._at: i64 = 0
        self.stored = StoredSnapshot(snapshot.index, snapshot.term, serial)  # where it will be
        self.stored.pending = snapshot
        self.stored.size = len(self._lead) + len(snapshot.state)
        self.stored.checksum = checksum_of([self._lead, snapshot.state])
        parts: i64 = (self.stored.size - 1) // self._part_max
        self.stored.expect_parts(parts)
        self._number: i64 = 0

    def _slice(self, start: i64, stop: i64) -> bytes:
        lead: i64 = len(self._lead)
        if start >= lead:
            return self.snapshot.state[start - lead : stop - lead]
        if stop <= lead:
            return self._lead[start:stop]
        return self._lead[start:] + self.snapshot.state[: stop - lead]

    def next_job(self, salt: i64, kept: i64) -> WriteJob:
        """Return the next job; with the last one, which has the token, it is done.

        Args:
            salt: the log's salt.
            kept: what the final record says about entries of earlier eras, if it is this job.
        """
        stored, group = self.stored, self.group
        stop: i64 = min(self._at + self._part_max, stored.size)
        data = self._slice(self._at, stop)
        self._at = stop
        if self._number < len(stored.parts):
            payload = encode_part_lead(stored.serial) + data
            job = WriteJob(group, None, JOB_PART)
            job.part = self._number
            head = encode_record(
                salt, RECORD_PART, 0, group.era, group.group, self._number, stored.index, payload
            )
            stored.part_bytes[self._number] = HEADER_BYTES + len(payload)
            self._number += 1
        else:
            stored.kept = kept
            payload = encode_final_lead(stored) + data
            job = WriteJob(group, self.token, JOB_SNAPSHOT)
            head = encode_record(
                salt,
                RECORD_SNAPSHOT,
                self._kind,
                group.era,
                group.group,
                stored.term,
                stored.index,
                payload,
            )
            stored.length = HEADER_BYTES + len(payload)
            self.done = True
        job.snapshot = stored
        job.pieces = [head, payload]
        job.size = HEADER_BYTES + len(payload)
        job.count = 1
        return job


@final
class SnapshotRead:
    """A group's durable snapshot, read record by record."""

    def __init__(self, group: StoredGroup, stored: StoredSnapshot) -> None:
        self.stored = stored  # where it lies
        self._group = group
        self._pieces: list[bytes] = []

    def advance(self, done: Callable[[], None]) -> bool:
        """Read what needs no disk.

        Args:
            done: called in a later turn of the loop, when the next record was read or could not be.

        Returns:
            Whether all is read; `done` is not called then.

        Raises CorruptLogError: a record is not intact; OSError: a file cannot be read.
        """
        stored, group = self.stored, self._group
        while len(self._pieces) <= len(stored.parts):
            location, size = self._next()
            newest: i64 = group.ledger.newest
            reader, owner = group.reader, group.group
            if not reader.prepare(location, size, _NOTHING_BEFORE, newest, owner, done):
                return False
            self._read()
        return True

    def read_all(self) -> None:
        """Read the rest, for which the caller waits; raises as `advance`."""
        while len(self._pieces) <= len(self.stored.parts):
            self._read()

    def data(self) -> bytes:
        """Return the snapshot, of which all was read.

        Raises CorruptLogError: it is not what was written.
        """
        stored = self.stored
        data = b"".join(self._pieces)
        if len(data) != stored.size or crc32c(data) != stored.checksum:
            raise _damaged(self._group, stored.location, "is not what was written")
        return data

    def snapshot(self) -> Snapshot:
        """Return it taken apart; raises as `data`."""
        data, stored = self.data(), self.stored
        known = _decoded(self._group, data)
        state = data[known.state_start :]
        return Snapshot(stored.index, stored.term, known.membership, state, known.live)

    def _next(self) -> tuple[i64, i64]:
        """Return location and length of the next record, wherever it was moved."""
        stored, part = self.stored, len(self._pieces)
        if part < len(stored.parts):
            return stored.parts[part], stored.part_bytes[part]
        return stored.location, stored.length

    def _read(self) -> None:
        location, size = self._next()
        if len(self._pieces) < len(self.stored.parts):
            record = _read_record(self._group, location, size, RECORD_PART)
            self._pieces.append(record[PART_LEAD_BYTES:])
        else:
            record = _read_record(self._group, location, size, RECORD_SNAPSHOT)
            self._pieces.append(record[FINAL_LEAD_BYTES:])


def read_bytes(group: StoredGroup) -> bytes:
    """Return the bytes of a group's durable snapshot.

    Raises CorruptLogError: a record is not intact; OSError: a file cannot be read.
    """
    stored = group.snapshot
    assert stored is not None
    reading = SnapshotRead(group, stored)
    reading.read_all()
    return reading.data()


def _read_record(group: StoredGroup, location: i64, size: i64, record_type: i64) -> bytes:
    reader = group.reader
    try:
        data = reader.read(location >> 32, location & 0xFFFFFFFF, size)
    except OSError as error:
        if not is_lost(error):
            raise
        raise _damaged(group, location, f"cannot be read: {error.strerror}") from error
    if (
        record_bytes(data, 0, len(data), reader.salt) != size
        or record_type_at(data, 0) != record_type
        or record_group_at(data, 0) != group.group
    ):
        raise _damaged(group, location, "has a damaged record")
    return record_payload_at(data, 0)


def _damaged(group: StoredGroup, location: i64, what: str) -> CorruptLogError:
    return CorruptLogError(
        group.reader.path(location >> 32),
        location & 0xFFFFFFFF,
        f"the snapshot of group {group.group} at entry {group.snapshot_index} {what}",
    )


def read_data(group: StoredGroup) -> SnapshotData:
    """Return what a group's durable snapshot says before its state.

    Raises CorruptLogError: it is not intact; OSError: a file cannot be read.
    """
    return _decoded(group, read_bytes(group))


def _decoded(group: StoredGroup, data: bytes) -> SnapshotData:
    try:
        return decode_data(data)
    except ValueError as problem:
        stored = group.snapshot
        assert stored is not None
        raise _damaged(group, stored.location, f"cannot be read: {problem}") from problem


def read_snapshot(group: StoredGroup) -> Snapshot | None:
    """Return a group's newest effective snapshot, from memory or disk, None for none.

    Raises CorruptLogError: it is not intact; OSError: a file cannot be read.
    """
    stored = group.snapshot
    if stored is None:
        return None
    if stored.pending is not None:
        return stored.pending
    reading = SnapshotRead(group, stored)
    reading.read_all()
    return reading.snapshot()
