"""What the event loop hands to the writer thread."""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.storage.group_log import StoredGroup
from headrace_raftlog.storage.record import (
    HEADER_BYTES,
    RECORD_TOMBSTONE,
    encode_entry,
    encode_record,
    encode_state,
)


@final
class WriteJob:
    """Records of one group that go into one batch.

    Attributes:
        group: the group; None when nothing is to be noted once the job is durable.
        entries: its entries, consecutive; they come last in the job.
        pieces: the records' bytes, in order.
        size: sum of their lengths.
        count: number of records.
        lead: bytes before the first entry's record.
        cached: what the entries cost in memory.
        token: for the callback; None for none.
        location: packed location of the job's first record, set by the writer.
    """

    def __init__(self, group: StoredGroup | None, token: object) -> None:
        self.group = group
        self.token = token
        self.entries: list[Entry] = []
        self.pieces: list[bytes] = []
        self.size: i64 = 0
        self.count: i64 = 0
        self.lead: i64 = 0
        self.cached: i64 = 0
        self.location: i64 = 0


_COPY_BYTES_MAX: Final = 32 << 10  # bytes; a larger blob is written from where it lies


def _fill(
    job: WriteJob, salt: i64, group: i64, entries: list[Entry], start: i64, bytes_max: i64
) -> i64:
    """Add entries from position `start` while the job has room; return the next position."""
    out = BytesWriter()
    at: i64 = start
    end: i64 = len(entries)
    while at < end:
        entry = entries[at]
        length: i64 = len(entry.data)
        if at > start and job.size + HEADER_BYTES + length > bytes_max:
            break
        out.write(encode_entry(salt, group, entry))
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
    job = WriteJob(group, None)
    jobs = [job]
    if state is not None:
        job.pieces.append(encode_state(salt, group.group, state))
        job.lead = len(job.pieces[0])
        job.size = job.lead
        job.count = 1
    at: i64 = 0
    end: i64 = len(entries)
    while at < end:
        if at > 0:
            job = WriteJob(group, None)
            jobs.append(job)
        at = _fill(job, salt, group.group, entries, at, bytes_max)
    job.token = token
    return jobs


def state_job(salt: i64, group: i64, state: HardState) -> WriteJob:
    """Encode a hard state that need not become durable at any particular time."""
    job = WriteJob(None, None)
    job.pieces.append(encode_state(salt, group, state))
    job.size = len(job.pieces[0])
    job.count = 1
    return job


def tombstone_job(salt: i64, group: i64, token: object) -> WriteJob:
    """Encode the removal of a group."""
    job = WriteJob(None, token)
    job.pieces.append(encode_record(salt, RECORD_TOMBSTONE, 0, group, 0, 0, b""))
    job.size = HEADER_BYTES
    job.count = 1
    return job
