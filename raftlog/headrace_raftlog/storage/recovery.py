"""Reading a log back: what stands in it, what is torn, what is damaged.

Reading changes nothing on disk; `repair` then makes the log writable again.
"""

from __future__ import annotations

import contextlib
import os
from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.entry import HardState
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.storage.files import Files
from headrace_raftlog.storage.group_log import StoredGroup
from headrace_raftlog.storage.record import (
    HEADER_BYTES,
    RECORD_ENTRY,
    RECORD_STATE,
    RECORD_TOMBSTONE,
    SECTOR_BYTES,
    Batch,
    decode_state,
    head_number_at,
    read_batch,
    record_group_at,
    record_index_at,
    record_term_at,
    record_type_at,
    sector_end,
)
from headrace_raftlog.storage.segment import (
    SEGMENT_HEADER_BYTES,
    UNFINISHED_SUFFIX,
    SegmentHeader,
    SegmentReader,
    decode_segment_header,
    segment_sequence,
)
from headrace_raftlog.storage.writer import write_all

_ZEROS = bytes(1 << 20)


def nonzero_end(data: bytes, start: i64) -> i64:
    """Return the end of the last sector from `start` on that is not all zero, or `start`."""
    end: i64 = len(data)
    while end > start:
        chunk: i64 = min(len(_ZEROS), end - start)
        if data[end - chunk : end] != _ZEROS[:chunk]:
            return sector_end(start + len(data[start:end].rstrip(b"\0")))
        end -= chunk
    return start


@final
class Torn:
    """The remains of the one batch that was being written.

    Attributes:
        sequence: its segment.
        start: where the batch began or should have.
        damage: offset of its first record that is not intact.
        end: sector boundary behind its last byte that is not zero.
        reason: what is missing.
    """

    def __init__(self, sequence: int, start: int, damage: int, end: int, reason: str) -> None:
        self.sequence = sequence
        self.start = start
        self.damage = damage
        self.end = end
        self.reason = reason


@final
class Recovery:
    """Reads segments in order and builds the groups' indexes.

    Attributes:
        groups: what was found, without removed groups.
        removed: ids of removed groups.
        headers: every segment's header, in order.
        last: the last intact batch, or None.
        last_sequence: the segment that it stands in; the first one while there is no batch.
        torn: what is to be cut, or None.
        torn_names: unfinished files that may go.
    """

    def __init__(self, files: Files, directory: str, reader: SegmentReader) -> None:
        self.files = files
        self.directory = directory
        self.reader = reader
        self.groups: dict[int, StoredGroup] = {}
        self.removed: set[int] = set()
        self.headers: list[SegmentHeader] = []
        self.last: Batch | None = None
        self.last_sequence: i64 = 0
        self.torn: Torn | None = None
        self.torn_names: list[str] = []
        self._number: i64 = 1

    @property
    def next_number(self) -> int:
        """Number of the next batch to write."""
        return self._number

    def run(self) -> None:
        """Read everything.

        Raises:
            CorruptLogError: something is damaged that may have been acknowledged.
            OSError: a file cannot be read.
        """
        for name in self.files.names(self.directory):
            sequence = segment_sequence(name)
            if sequence:
                self._read_segment(sequence, os.path.join(self.directory, name))
            elif name.endswith(UNFINISHED_SUFFIX):
                self.torn_names.append(name)
        for group in self.groups.values():
            state = group.hard_state
            if state.commit > group.last_index():
                group.hard_state = HardState(state.term, state.vote, group.last_index())

    def _read_segment(self, sequence: int, path: str) -> None:
        data = read_file(self.files, path)
        header = decode_segment_header(path, data)
        self._check_header(header, sequence, path, len(data))
        self.headers.append(header)
        if self.last_sequence == 0:
            self.last_sequence = sequence
        position: i64 = SEGMENT_HEADER_BYTES
        salt: i64 = header.salt
        while position < len(data):
            batch = read_batch(data, position, self._number, salt)
            if batch.end == 0:
                break
            if self.torn is not None:
                self._refuse_torn(f"batch {batch.number} follows in {path}")
            self._apply(data, batch, sequence, path)
            self.last = batch
            self.last_sequence = sequence
            self._number += 1
            position = batch.end
        end = nonzero_end(data, position)
        if end > position:
            self._judge(data, batch, header, end, path)

    def _check_header(self, header: SegmentHeader, sequence: int, path: str, size: int) -> None:
        if header.sequence != sequence:
            raise CorruptLogError(path, 0, f"the header says segment {header.sequence}")
        if header.size != size:
            raise CorruptLogError(path, size, f"the file is not {header.size} bytes long")
        expected = self.headers[-1].sequence + 1 if self.headers else 1
        if sequence != expected:
            raise CorruptLogError(path, 0, f"segment {expected} is missing")
        if self.headers and header.salt != self.headers[0].salt:
            raise CorruptLogError(path, 0, "the segment belongs to another log")

    def _judge(self, data: bytes, batch: Batch, header: SegmentHeader, end: i64, path: str) -> None:
        """Decide whether what is not a batch is torn or damaged.

        A batch is begun only when the one before it is synced. So bytes behind a batch's own
        length, or the head of any later batch, prove that it was acknowledged.
        """
        if self.torn is not None:
            self._refuse_torn(f"more follows in {path}")
        size = claimed_bytes(data, batch, header.salt)
        if size and sector_end(batch.start + size) < end:
            raise CorruptLogError(
                path, batch.damage, f"{batch.reason}, and more was written behind that batch"
            )
        later = later_head(data, batch.start, end, batch.number, header.salt)
        if later >= 0:
            raise CorruptLogError(
                path, batch.damage, f"{batch.reason}, and a later batch stands at byte {later}"
            )
        self.torn = Torn(header.sequence, batch.start, batch.damage, end, batch.reason)

    def _refuse_torn(self, proof: str) -> None:
        torn = self.torn
        assert torn is not None
        raise CorruptLogError(
            self.reader.path(torn.sequence), torn.damage, f"{torn.reason}, and {proof}"
        )

    def _apply(self, data: bytes, batch: Batch, sequence: i64, path: str) -> None:
        groups = self.groups
        for start in batch.offsets:
            offset: i64 = start
            group_id: i64 = record_group_at(data, offset)
            record_type: i64 = record_type_at(data, offset)
            if record_type == RECORD_TOMBSTONE:
                self.removed.add(group_id)
                groups.pop(group_id, None)
                continue
            if group_id in self.removed:
                continue
            group = groups.get(group_id)
            if group is None:
                group = StoredGroup(group_id, self.reader)
                groups[group_id] = group
            if record_type == RECORD_ENTRY:
                problem = self._restore(group, data, offset, sequence)
                if problem:
                    raise CorruptLogError(path, offset, problem)
            elif record_type == RECORD_STATE:
                group.hard_state = decode_state(data, offset)
            else:
                raise CorruptLogError(path, offset, f"record type {record_type} is not known")

    def _restore(self, group: StoredGroup, data: bytes, offset: i64, sequence: i64) -> str:
        size: i64 = record_bytes_claimed(data, offset)
        return group.restore(
            record_index_at(data, offset),
            record_term_at(data, offset),
            (sequence << 32) | offset,
            size - HEADER_BYTES,
        )


def read_file(files: Files, path: str) -> bytes:
    """Return a whole file."""
    fd = files.open(path)
    try:
        return files.read(fd, files.size(fd), 0)
    finally:
        files.close(fd)


def record_bytes_claimed(data: bytes, start: i64) -> i64:
    """Return the length of a record that is known to be intact."""
    return HEADER_BYTES + int.from_bytes(data[start + 4 : start + 8], "little")


def claimed_bytes(data: bytes, batch: Batch, salt: i64) -> i64:
    """Return the length that a damaged batch's own head claims, 0 when the head is not intact."""
    if head_number_at(data, batch.start, salt) != batch.number:
        return 0
    return record_term_at(data, batch.start)


def later_head(data: bytes, start: i64, end: i64, number: i64, salt: i64) -> i64:
    """Return where the first intact head of a batch after `number` stands, or -1."""
    position: i64 = start
    while position < end:
        if head_number_at(data, position, salt) > number:
            return position
        position += SECTOR_BYTES
    return -1


def repair(recovery: Recovery) -> None:
    """Make a recovered log writable: nothing torn is left and what was read is durable.

    The last intact batch is written again: after a crash of the process alone it may never have
    been synced, and after a failed sync the system may hold it for clean. Segments behind the
    last batch are removed; nothing is in them.

    Raises:
        OSError: as the system says; recovery can be tried again.
    """
    files, directory, torn = recovery.files, recovery.directory, recovery.torn
    if torn is not None:
        _zero(files, recovery.reader.path(torn.sequence), torn.start, torn.end)
    last = recovery.last
    if last is not None:
        _write_again(files, recovery.reader.path(recovery.last_sequence), last)
    while recovery.headers and recovery.headers[-1].sequence > recovery.last_sequence:
        files.remove(recovery.reader.path(recovery.headers.pop().sequence))
    for name in recovery.torn_names:
        with contextlib.suppress(FileNotFoundError):
            files.remove(os.path.join(directory, name))
    files.sync_directory(directory)


def _zero(files: Files, path: str, start: int, end: int) -> None:
    fd = files.open(path, write=True)
    try:
        position = start
        while position < end:
            chunk = _ZEROS[: end - position]
            write_all(files, fd, [chunk], len(chunk), position)
            position += len(chunk)
    finally:
        files.close(fd)


def _write_again(files: Files, path: str, batch: Batch) -> None:
    fd = files.open(path, write=True)
    try:
        data = files.read(fd, batch.end - batch.start, batch.start)
        write_all(files, fd, [data], len(data), batch.start)
    finally:
        files.close(fd)
