"""Looking into a log's files without changing them: `headrace log verify`, `dump`.

The log may be in use meanwhile; what is being written just then may look torn.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace_raftlog.model.errors import CorruptLogError, LostDirectoryError
from headrace_raftlog.model.membership import decode_membership, name_of
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.group.lost_entries import lost_indexes
from headrace_raftlog.storage.group.snapshot_record import decode_final
from headrace_raftlog.storage.recovery.recovery import Recovery
from headrace_raftlog.storage.segment.file_list import decode_files, decode_gone
from headrace_raftlog.storage.segment.file_survey import read_file
from headrace_raftlog.storage.segment.record import (
    RECORD_BASE,
    RECORD_ENTRY,
    RECORD_FILES,
    RECORD_GONE,
    RECORD_INCOMING,
    RECORD_NAMES,
    RECORD_PART,
    RECORD_PLACED,
    RECORD_QUARANTINE,
    RECORD_RESERVED,
    RECORD_SNAPSHOT,
    RECORD_STATE,
    RECORD_TOMBSTONE,
    Batch,
    decode_state,
    head_number_at,
    read_whole_batch,
    record_era_at,
    record_group_at,
    record_index_at,
    record_is_copy_at,
    record_kind_at,
    record_payload_at,
    record_term_at,
    record_type_at,
)
from headrace_raftlog.storage.segment.scan import later_head, nonzero_end
from headrace_raftlog.storage.segment.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    SegmentReader,
    decode_segment_header,
    segment_sequence,
)
from headrace_raftlog.storage.writing.identity import Identity, read_identity
from headrace_raftlog.storage.writing.mark_file import MarkFile


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage of a record or a file."""

    path: str  # file
    offset: int  # byte position
    reason: str  # what is wrong there


@dataclass(slots=True)
class VerifyReport:
    """Contents of a log's files."""

    segments: int = 0  # files
    batches: int = 0  # intact batches, empty ones included
    records: int = 0  # records in them
    data_bytes: int = 0  # bytes of the batches, with padding
    groups: int = 0  # groups with records that are not removed; 0 when something is damaged
    # the remains of a write that a crash cut off, which the next start cuts; or None
    torn: Damage | None = None
    damaged: list[Damage] = field(default_factory=list)  # what else is not intact
    # groups that a node would not serve, and why
    quarantined: dict[int, str] = field(default_factory=dict)
    # by group, entries that a node would fetch from its peers before it serves the group
    lost: dict[int, list[int]] = field(default_factory=dict)
    refused: str = ""  # why a node would not start at all, '' when it would
    # that the log lacks batches which the directory remembers to be synced, or ''
    ends_early: str = ""

    @property
    def intact(self) -> bool:
        """True if a node would start with this log and serve every group in it."""
        whole = not self.damaged and not self.quarantined
        return whole and not self.refused and not self.ends_early


@dataclass(slots=True)
class _Segment:
    path: str
    header: SegmentHeader
    data: bytes


def _segments(directory: str, files: Files) -> Iterator[_Segment | Damage]:
    for name in files.names(directory):
        if segment_sequence(name):
            path = os.path.join(directory, name)
            try:
                data = read_file(files, path)
                yield _Segment(path, decode_segment_header(path, data), data)
            except CorruptLogError as error:
                yield Damage(error.path, error.offset, error.reason)


def _batches(segment: _Segment, number: int) -> Iterator[Batch]:
    """Yield every batch of a segment; after a damaged one, continue at the next head."""
    data, salt = segment.data, segment.header.salt
    position = SEGMENT_HEADER_BYTES
    while position < len(data):
        end = nonzero_end(data, position)
        if end == position:
            return
        if number == 0:
            number = head_number_at(data, position, salt) or 1
        batch = read_whole_batch(data, position, number, salt)
        yield batch
        if batch.end == 0 and batch.stop == 0:
            position = later_head(data, position, end, number, salt)
            if position < 0:
                return
            number = head_number_at(data, position, salt)
        else:
            position = batch.follows
            number += 1


def verify(directory: str, files: Files | None = None) -> VerifyReport:
    """Check every byte of a log.

    Returns:
        Everything that is wrong, not just the first of it.

    Raises:
        IdentityError: the directory is of a release that is not known.
        OSError: the directory or a file cannot be read.
        UnknownVersionError: a file is of a later release.
    """
    disk = files if files is not None else Files()
    report = VerifyReport()
    remembered = _Remembered(directory, disk)  # first: a running node's log goes on meanwhile
    next_number = 1
    for segment in _segments(directory, disk):
        report.segments += 1
        if isinstance(segment, Damage):
            report.damaged.append(segment)
            next_number = 0
            continue
        for batch in _batches(segment, next_number):
            if batch.end == 0:
                report.damaged.append(Damage(segment.path, batch.damage, batch.reason))
                next_number = 0
                continue
            report.batches += 1
            report.records += len(batch.offsets)
            report.data_bytes += batch.end - batch.start
            next_number = batch.number + 1
    return _judged(directory, disk, report, remembered)


class _Remembered:
    """Memory of a directory beside its log: its owner, and how far the log had come."""

    def __init__(self, directory: str, files: Files) -> None:
        self._identity: Identity | None = None
        with contextlib.suppress(LostDirectoryError):
            self._identity = read_identity(directory, files)
        self._marks = MarkFile.read(directory, files)

    def lost(self, found: int) -> str:
        """Return what a log lacks, given its last batch, "" for nothing known."""
        return self._marks.lost(self._identity, found) if self._identity is not None else ""


def _judged(
    directory: str, files: Files, report: VerifyReport, remembered: _Remembered
) -> VerifyReport:
    """Let recovery say whether the damage is a torn tail, and what else does not fit."""
    recovery = Recovery(files, directory, SegmentReader(files, directory))
    try:
        recovery.run()
    except CorruptLogError as error:
        report.refused = error.reason
        if all((d.path, d.offset) != (error.path, error.offset) for d in report.damaged):
            report.damaged.append(Damage(error.path, error.offset, error.reason))
        return report
    finally:
        recovery.reader.close()
    report.ends_early = remembered.lost(recovery.next_number - 1)
    report.groups = len(recovery.groups)
    lost = {group: lost_indexes(view) for group, view in recovery.groups.items()}
    report.lost = {group: indexes for group, indexes in lost.items() if indexes}
    report.quarantined = {group: q.reason for group, q in recovery.quarantined.items()}
    report.damaged = [
        Damage(recovery.reader.path(stretch.sequence), stretch.offset, stretch.reason)
        for stretch in recovery.damaged
    ]
    torn = recovery.torn
    if torn is not None:
        path = recovery.reader.path(torn.sequence)
        report.torn = Damage(path, torn.damage, torn.reason)
    return report


def _record_line(data: bytes, offset: int) -> str:
    group = record_group_at(data, offset)
    kind = record_type_at(data, offset)
    name = RECORD_NAMES.get(kind, f"type {kind}")
    if record_is_copy_at(data, offset):
        name = f"copy of {name}"
    line = f"    {offset} {name}"
    if kind == RECORD_FILES:
        spans = decode_files(record_payload_at(data, offset))
        return line + "".join(f" {s.sequence} ({s.first} to {s.last})" for s in spans)
    if kind == RECORD_GONE:
        return line + "".join(f" {s}" for s in decode_gone(record_payload_at(data, offset)))
    if kind == RECORD_RESERVED:
        return f"{line} bytes {record_index_at(data, offset)}"
    if kind == RECORD_PLACED:
        start = record_term_at(data, offset)
        return f"{line} at {start} to {start + record_index_at(data, offset)}"
    line += f" group {group} era {record_era_at(data, offset)}"
    if kind == RECORD_STATE:
        state = decode_state(data, offset)
        return f"{line} term {state.term} vote {state.vote} commit {state.commit}"
    return line + _detail(data, offset, kind)


def _detail(data: bytes, offset: int, kind: int) -> str:
    index, term = record_index_at(data, offset), record_term_at(data, offset)
    payload = record_payload_at(data, offset)
    if kind in (RECORD_ENTRY, RECORD_INCOMING):
        return (
            f" index {index} term {term} kind {record_kind_at(data, offset)} bytes {len(payload)}"
        )
    if kind == RECORD_BASE:
        members = decode_membership(payload[8:])
        return f" member {name_of(int.from_bytes(payload[:8], 'little'))} of {members}"
    if kind == RECORD_PART:
        return f" index {index} number {term} bytes {len(payload)}"
    if kind == RECORD_SNAPSHOT:
        stored = decode_final(payload, index, term)
        whence = "installed" if record_kind_at(data, offset) else "taken"
        return (
            f" {whence} at index {index} term {term}, {stored.size} bytes, "
            f"{len(stored.parts)} parts, kept {stored.kept}"
        )
    if kind == RECORD_TOMBSTONE:
        return f" since segment {index}"
    if kind == RECORD_QUARANTINE:
        return f": {payload.decode(errors='replace')}"
    return f" bytes {len(payload)}"


def dump(directory: str, files: Files | None = None) -> Iterator[str]:
    """Describe a log in lines: segments, their batches, their records, with byte offsets.

    Raises OSError: the directory or a file cannot be read; UnknownVersionError: a file is of a
    later release.
    """
    disk = files if files is not None else Files()
    for segment in _segments(directory, disk):
        if isinstance(segment, Damage):
            yield f"{segment.path}: DAMAGED at byte {segment.offset}: {segment.reason}"
            continue
        header = segment.header
        yield (
            f"{segment.path}: segment {header.sequence}, {header.size} bytes, "
            f"node {header.node} of cluster {header.cluster!r}"
        )
        for batch in _batches(segment, 0):
            if batch.end == 0:
                yield f"  {batch.damage} NOT INTACT: {batch.reason}"
                continue
            what = f"{len(batch.offsets)} records" if batch.offsets else "seal"
            yield f"  {batch.start} batch {batch.number}, {what}, to byte {batch.end}"
            for offset in batch.offsets:
                yield _record_line(segment.data, offset)
