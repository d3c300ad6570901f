"""Jobs of the event loop for the writer thread."""

from __future__ import annotations

from typing import Final, final

from google_crc32c import extend
from librt.strings import BytesWriter
from mypy_extensions import i64

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.limits import CHECKSUM_BYTES_MAX
from headrace_raftlog.storage.group.group_log import STATE_BYTES, StoredGroup
from headrace_raftlog.storage.group.snapshot_record import StoredSnapshot
from headrace_raftlog.storage.segment.long_record import encode_unchecked, extended, with_checksum
from headrace_raftlog.storage.segment.record import (
    CHECKSUM_BYTES,
    FLAG_COPY,
    GROUP_FRAME_BYTES,
    HEADER_BYTES,
    RECORD_BASE,
    RECORD_ENTRY,
    RECORD_INCOMING,
    RECORD_QUARANTINE,
    RECORD_TOMBSTONE,
    encode_entry,
    encode_incoming,
    encode_record,
    encode_state,
)

JOB_NOTE: Final = 0  # nothing to note once it is durable but its token
JOB_APPEND: Final = 1  # a hard state, entries or both
JOB_INCOMING: Final = 2
JOB_BASE: Final = 3
JOB_PART: Final = 4
JOB_SNAPSHOT: Final = 5
JOB_MOVE: Final = 6
JOB_TOMBSTONE: Final = 7
JOB_QUARANTINE: Final = 8
JOB_DELETE: Final = 9  # no records: the writer removes files


@final
class Moved:
    """One record that was copied forward."""

    def __init__(self, record_type: i64, group: i64, index: i64, location: i64, size: i64) -> None:
        self.record_type = record_type
        self.group = group
        self.index = index  # of the entry, or number of the snapshot part
        self.location = location  # where the original stands
        self.size = size  # bytes of the record


@final
class WriteJob:
    """Records that go into one batch."""

    def __init__(self, group: StoredGroup | None, token: object, kind: i64 = JOB_NOTE) -> None:
        self.kind = kind  # one of the JOB_ constants
        # ids of the groups with records in it
        self.groups: list[int] = [group.group] if group is not None else []
        # ids of the groups of whose jobs it keeps its place: those, or the one whose earlier jobs
        # its token waits for
        self.ordered = self.groups
        # the group whose index is to be changed once the job is durable, or None
        self.group = group
        self.token = token  # for the callback; None for none
        self.entries: list[Entry] = []  # its entries, consecutive; they come last in the job
        # the records' bytes, in order; until `is_checked`, some heads have no checksum
        self.pieces: list[bytes] = []
        self.size: i64 = 0  # sum of their lengths
        self.count: i64 = 0  # number of records
        self.lead: i64 = 0  # bytes before the first entry's record
        self.cached: i64 = 0  # what the entries cost in memory
        self.location: i64 = 0  # packed location of the job's first record, set by the writer
        # bytes by segment that are dead once this job is durable, or None
        self.dying: dict[int, int] | None = None
        # the snapshot that a part or a final record belongs to, or None
        self.snapshot: StoredSnapshot | None = None
        self.part: i64 = 0  # number of that part
        self.moved: list[Moved] = []  # what a JOB_MOVE copies, in order
        self.doomed: list[int] = []  # sequences of the segments that a JOB_DELETE removes
        self._unchecked: list[int] = []  # which pieces are heads without one, of the piece behind
        self._checked: i64 = 0  # bytes of the first of those payloads that are in `_sum`
        self._sum = 0

    def add(self, record: bytes) -> None:
        """Put a whole record behind the others."""
        self.pieces.append(record)
        self.size += len(record)
        self.count += 1

    def add_long(self, head: bytes, payload: bytes) -> None:
        """Put a record behind the others whose head has no checksum yet."""
        self._unchecked.append(len(self.pieces))
        self.pieces.append(head)
        self.pieces.append(payload)
        self.size += len(head) + len(payload)
        self.count += 1

    @property
    def is_checked(self) -> bool:
        """True if all checksums are there."""
        return not self._unchecked

    def check(self, salt: i64, count: i64) -> None:
        """Take the missing checksums, up to about `count` bytes of payload further."""
        left: i64 = count
        while self._unchecked and left > 0:
            at = self._unchecked[0]
            payload = self.pieces[at + 1]
            if self._checked == 0:
                self._sum = extend(salt, self.pieces[at][CHECKSUM_BYTES:])
            stop: i64 = min(len(payload), self._checked + left)
            self._sum = extended(self._sum, payload, self._checked, stop)
            left -= stop - self._checked
            self._checked = stop
            if stop == len(payload):
                self.pieces[at] = with_checksum(self.pieces[at], self._sum)
                del self._unchecked[0]
                self._checked = 0

    @property
    def cost(self) -> int:
        """Bytes that the job takes of a batch, its part of the frame included."""
        return self.size + GROUP_FRAME_BYTES * len(self.groups)


QUARANTINE_REASON_BYTES_MAX: Final = 400  # bytes; path, offset and a sentence
_COPY_BYTES_MAX: Final = 32 << 10  # bytes; a larger blob is written from where it lies


def _fill(job: WriteJob, salt: i64, entries: list[Entry], start: i64, bytes_max: i64) -> i64:
    """Add entries from position `start` while the job has room; return the next position."""
    group = job.group
    assert group is not None
    incoming = job.kind == JOB_INCOMING
    out = BytesWriter()
    at: i64 = start
    end: i64 = len(entries)
    while at < end:
        entry = entries[at]
        length: i64 = len(entry.data)
        if at > start and job.size + HEADER_BYTES + length > bytes_max:
            break
        if length > CHECKSUM_BYTES_MAX:
            if len(out) > 0:
                job.pieces.append(out.getvalue())
                out = BytesWriter()
            record_type: i64 = RECORD_INCOMING if incoming else RECORD_ENTRY
            job.add_long(_unchecked_head(record_type, group, entry), entry.data)
            at += 1
            continue
        if incoming:
            out.write(encode_incoming(salt, group.era, group.group, entry))
        else:
            out.write(encode_entry(salt, group.era, group.group, entry))
        if length > _COPY_BYTES_MAX:
            job.pieces.append(out.getvalue())
            job.pieces.append(entry.data)
            out = BytesWriter()
        else:
            out.write(entry.data)
        job.size += HEADER_BYTES + length
        job.count += 1
        at += 1
    if len(out) > 0:
        job.pieces.append(out.getvalue())
    job.entries = entries if start == 0 and at == end else entries[start:at]
    return at


def _unchecked_head(record_type: i64, group: StoredGroup, entry: Entry) -> bytes:
    """Return the head of the record of a long entry, without its checksum."""
    length: i64 = len(entry.data)
    return encode_unchecked(
        record_type, entry.kind, group.era, group.group, entry.term, entry.index, length
    )


def append_jobs(
    salt: i64,
    group: StoredGroup,
    state: HardState | None,
    entries: list[Entry],
    token: object,
    bytes_max: i64,
) -> list[WriteJob]:
    """Encode an append, in several jobs when it is long; the last one carries the token.

    The hard state comes first, so that no entry is ever durable before the term it came in. A
    job exceeds `bytes_max` only by a first entry that is longer, and the hard state before it.
    """
    job = WriteJob(group, None, JOB_APPEND)
    jobs = [job]
    if state is not None:
        job.add(encode_state(salt, group.era, group.group, state))
        job.lead = STATE_BYTES
    at: i64 = 0
    end: i64 = len(entries)
    while at < end:
        if at > 0:
            job = WriteJob(group, None, JOB_APPEND)
            jobs.append(job)
        at = _fill(job, salt, entries, at, bytes_max)
    job.token = token
    return jobs


def incoming_jobs(
    salt: i64, group: StoredGroup, entries: list[Entry], bytes_max: i64
) -> list[WriteJob]:
    """Encode entries fetched from a peer, ascending but not consecutive."""
    jobs: list[WriteJob] = []
    at: i64 = 0
    end: i64 = len(entries)
    while at < end:
        job = WriteJob(group, None, JOB_INCOMING)
        jobs.append(job)
        at = _fill(job, salt, entries, at, bytes_max)
    return jobs


def mend_job(salt: i64, group: StoredGroup, entry: Entry) -> WriteJob:
    """Encode an entry with a damaged record anew; the new record supersedes the damaged one.

    It counts like a copy that collection moves: in its own era, behind the original.
    """
    job = WriteJob(None, None, JOB_MOVE)
    job.groups.append(group.group)
    index: i64 = entry.index
    record_type = RECORD_ENTRY if index > group.snapshot_index else RECORD_INCOMING
    era = group.era_of(index)
    fields = record_type, entry.kind, era, group.group, entry.term, index
    if len(entry.data) > CHECKSUM_BYTES_MAX:
        job.add_long(encode_unchecked(*fields, len(entry.data), FLAG_COPY), entry.data)
    else:
        job.add(encode_record(salt, *fields, entry.data, FLAG_COPY) + entry.data)
    job.moved.append(Moved(record_type, group.group, index, group.location_of(index), job.size))
    return job


def state_job(salt: i64, group: StoredGroup, state: HardState) -> WriteJob:
    """Encode a hard state alone."""
    job = WriteJob(group, None, JOB_APPEND)
    job.add(encode_state(salt, group.era, group.group, state))
    job.lead = STATE_BYTES
    return job


def base_job(salt: i64, group: StoredGroup, since: i64) -> WriteJob:
    """Encode the beginning of a group; all segments up to `since` were complete before it."""
    job = WriteJob(group, None, JOB_BASE)
    payload = int(group.member).to_bytes(8, "little") + group.membership.encode()
    head = encode_record(salt, RECORD_BASE, 0, group.era, group.group, 0, since, payload)
    job.add(head + payload)
    return job


def tombstone_job(salt: i64, group: i64, origin: i64, token: object) -> WriteJob:
    """Encode the removal of a group that has no record before segment `origin`."""
    job = WriteJob(None, token, JOB_TOMBSTONE)
    job.groups.append(group)
    job.add(encode_record(salt, RECORD_TOMBSTONE, 0, 0, group, 0, origin, b""))
    return job


def quarantine_job(salt: i64, group: i64, era: i64, reason: str) -> WriteJob:
    """Encode that a group was found damaged, so that later starts know it as well."""
    job = WriteJob(None, None, JOB_QUARANTINE)
    job.groups.append(group)
    payload = reason.encode()[:QUARANTINE_REASON_BYTES_MAX]
    job.add(encode_record(salt, RECORD_QUARANTINE, 0, era, group, 0, 0, payload) + payload)
    return job


def note_job(group: i64, token: object) -> WriteJob:
    """Return a job of nothing but a token that follows a group's earlier jobs."""
    job = WriteJob(None, token)
    job.ordered = [group]
    return job


def delete_job(doomed: list[int]) -> WriteJob:
    """Return a job that makes the writer remove segments."""
    job = WriteJob(None, None, JOB_DELETE)
    job.doomed = doomed
    return job
