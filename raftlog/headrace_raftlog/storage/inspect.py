"""Looking into a log's files without changing them: `headrace log verify` and `dump`.

The log may be in use meanwhile; what is being written just then may look torn.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.storage.file_survey import read_file
from headrace_raftlog.storage.files import Files
from headrace_raftlog.storage.record import (
    RECORD_ENTRY,
    RECORD_NAMES,
    RECORD_STATE,
    Batch,
    decode_entry,
    decode_state,
    head_number_at,
    read_batch,
    record_group_at,
    record_type_at,
)
from headrace_raftlog.storage.recovery import Recovery
from headrace_raftlog.storage.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    SegmentReader,
    decode_segment_header,
    segment_sequence,
)
from headrace_raftlog.storage.segment_scan import later_head, nonzero_end


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is not intact.

    Attributes:
        path: file.
        offset: byte position.
        reason: what is wrong there.
    """

    path: str
    offset: int
    reason: str


@dataclass(slots=True)
class VerifyReport:
    """What a log's files hold.

    Attributes:
        segments: files.
        batches: intact batches, empty ones included.
        records: records in them.
        data_bytes: bytes of the batches, with padding.
        groups: groups with records that are not removed; 0 when something is damaged.
        torn: the remains of a write that a crash cut off, which the next start cuts; or None.
        damaged: what a node refuses to start with.
    """

    segments: int = 0
    batches: int = 0
    records: int = 0
    data_bytes: int = 0
    groups: int = 0
    torn: Damage | None = None
    damaged: list[Damage] = field(default_factory=list)

    @property
    def intact(self) -> bool:
        """Whether a node would start with this log."""
        return not self.damaged


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
    """Give every batch of a segment; after one that is not intact, go on at the next head."""
    data, salt = segment.data, segment.header.salt
    position = SEGMENT_HEADER_BYTES
    while position < len(data):
        end = nonzero_end(data, position)
        if end == position:
            return
        if number == 0:
            number = head_number_at(data, position, salt) or 1
        batch = read_batch(data, position, number, salt)
        yield batch
        if batch.end == 0:
            position = later_head(data, position, end, number, salt)
            if position < 0:
                return
            number = head_number_at(data, position, salt)
        else:
            position = batch.end
            number += 1


def verify(directory: str, files: Files | None = None) -> VerifyReport:
    """Check every byte of a log.

    Args:
        directory: of the segments.
        files: the file system, for tests.

    Returns:
        Everything that is wrong, not just the first of it.

    Raises:
        OSError: the directory or a file cannot be read.
    """
    disk = files if files is not None else Files()
    report = VerifyReport()
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
    return _judged(directory, disk, report)


def _judged(directory: str, files: Files, report: VerifyReport) -> VerifyReport:
    """Let recovery say whether the damage is a torn tail, and what else does not fit."""
    recovery = Recovery(files, directory, SegmentReader(files, directory))
    try:
        recovery.run()
    except CorruptLogError as error:
        if all((d.path, d.offset) != (error.path, error.offset) for d in report.damaged):
            report.damaged.append(Damage(error.path, error.offset, error.reason))
        return report
    report.groups = len(recovery.groups)
    report.damaged.clear()
    torn = recovery.torn
    if torn is not None:
        path = recovery.reader.path(torn.sequence)
        report.torn = Damage(path, torn.damage, torn.reason)
    return report


def _record_line(data: bytes, offset: int) -> str:
    group = record_group_at(data, offset)
    kind = record_type_at(data, offset)
    name = RECORD_NAMES.get(kind, f"type {kind}")
    if kind == RECORD_ENTRY:
        entry = decode_entry(data, offset)
        return (
            f"    {offset} {name} group {group} index {entry.index} term {entry.term} "
            f"kind {entry.kind} bytes {len(entry.data)}"
        )
    if kind == RECORD_STATE:
        state = decode_state(data, offset)
        return (
            f"    {offset} {name} group {group} term {state.term} vote {state.vote} "
            f"commit {state.commit}"
        )
    return f"    {offset} {name} group {group}"


def dump(directory: str, files: Files | None = None) -> Iterator[str]:
    """Describe a log in lines: segments, their batches, their records, with byte offsets.

    Args:
        directory: of the segments.
        files: the file system, for tests.

    Raises:
        OSError: the directory or a file cannot be read.
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
