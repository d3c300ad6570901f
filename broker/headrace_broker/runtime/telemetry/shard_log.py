"""One log of one node on its disk: rows are appended, read by index, and dropped from the front.

Everything here is done by one thread at a time, and may wait for the disk. `summary` alone may be
looked at by others: it is replaced as a whole.

What was not synced is not told to readers, so a row that was read never gets another number: where
a node or its machine stops, what is lost was not read by anybody.
"""

from __future__ import annotations

import contextlib
import logging
import os
from bisect import bisect_right
from collections.abc import Callable
from typing import Final, NamedTuple

from headrace_broker.codecs.column_block import ColumnBlock, Schema
from headrace_broker.runtime.export.log import (
    Block,
    DataGoneError,
    NotYetError,
    OtherIncarnationError,
)
from headrace_broker.runtime.telemetry.book import GroupBook, GroupEntry
from headrace_broker.runtime.telemetry.segment import (
    Header,
    Record,
    Segment,
    SegmentError,
    decode_header,
    decode_record,
    encode_header,
    encode_record,
    is_segment,
    scan,
    segment_name,
)
from headrace_raftlog.storage.disk.files import Files

SEGMENTS: Final = (
    16  # files into which the most that may be kept is divided: what is dropped at once
)
SEGMENT_BYTES_MIN: Final = 64 << 10  # of a file that is full, at least
UNFINISHED: Final = ".new"  # ends the name of a file that is not there yet
INCARNATION_MAX: Final = (1 << 63) - 1

log = logging.getLogger("headrace.node")


class Bounds(NamedTuple):
    """Retention bounds, for read and unread rows alike."""

    bytes_max: int  # on the disk, about: the file that is written may be too much
    age_ms_max: int  # since it was noted, likewise


class Summary(NamedTuple):
    """Readable range; see `runtime.export.log.Shard`."""

    incarnation: int
    first_index: int
    next_index: int
    byte_count: int
    first_ms: int
    last_ms: int


class ShardLog:
    """Keeps rows of one schema."""

    def __init__(
        self,
        files: Files,
        directory: str,
        schema: Schema,
        bounds: Bounds,
        clock_ms: Callable[[], int],
    ) -> None:
        self.summary = Summary(0, 0, 0, 0, 0, 0)  # what can be read
        self._files = files
        self._directory = directory  # where its files are, and no others
        self._schema = schema  # of the rows that are appended
        self._bounds = bounds  # how much is kept
        self._clock_ms = clock_ms  # Unix time
        self._book = GroupBook(files, directory)
        self._segments: list[Segment] = []
        self._incarnation = 0
        self._fd = -1
        self._opened_ms = 0  # when the file that is written was begun

    def open(self) -> None:
        """Find existing files, and prepare to append.

        Raises OSError: no directory; or no room for another file, and what was found can be read.
        """
        self.close()
        self._segments, self._incarnation = [], 0  # of an attempt that failed
        self._files.make_directory(self._directory)
        names = [name for name in self._files.names(self._directory) if is_segment(name)]
        paths = [os.path.join(self._directory, name) for name in names]
        try:
            for path in paths:
                self._recover(path)
        except SegmentError as error:  # how far rows were numbered is not known
            log.error("log in %s discarded and restarted empty: %s", self._directory, error)
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    self._files.remove(path)
            self._segments.clear()
            self._incarnation = 0
        if not self._incarnation:
            self._incarnation = int.from_bytes(self._files.random(8), "big") & INCARNATION_MAX or 1
        self._drop_gaps()
        self._book.load(self._incarnation)
        if self._segments:
            self._summarize()  # that there is room for more is not needed to read, and to drop
        try:
            self._begin_segment()
        finally:
            self.trim()

    def close(self) -> None:
        """Release the file that is written."""
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1

    # What is there

    def _recover(self, path: str) -> None:
        """Take in a file newer than those before; older incarnations go. Raises SegmentError."""
        data = self._contents(path)
        header, start = decode_header(path, data)
        if header.incarnation != self._incarnation:
            for older in self._segments:
                self._files.remove(older.path)
            self._segments.clear()
            self._incarnation = header.incarnation
        segment = Segment(path, header.schema, header.first_index, start)
        for record in scan(data, start):
            if record.first_index != segment.next_index:
                log.error("%s is damaged: rows before %d are lost", path, record.first_index)
                segment = Segment(path, header.schema, record.first_index, record.offset)
            segment.add(record)
        self._segments.append(segment)

    def _contents(self, path: str) -> bytes:
        fd = self._files.open(path)
        try:
            return self._files.read(fd, self._files.size(fd), 0)
        finally:
            self._files.close(fd)

    def _drop_gaps(self) -> None:
        """Keep only rows behind the last gap; what a later file has as well counts there."""
        kept: list[Segment] = []
        for segment in self._segments:
            if kept:
                kept[-1].cut_at(segment.first_index)
            if kept and kept[-1].next_index < segment.first_index:
                log.error(
                    "%s is damaged: rows before %d are lost", kept[-1].path, segment.first_index
                )
                for lost in kept:
                    self._files.remove(lost.path)
                kept.clear()
            kept.append(segment)
        self._segments = kept

    # Appending

    def append(self, at_ms: int, blocks: list[ColumnBlock]) -> None:
        """Note rows, durably: they can be read when this returns; OSError where none is noted."""
        if not self.summary.incarnation:
            self.open()  # what is there was not found at the start: nothing of it may be replaced
        if self._fd < 0:
            self._begin_segment()
        segment = self._segments[-1]
        index, offset = segment.next_index, segment.byte_count
        parts: list[bytes] = []
        records: list[Record] = []
        for columns in blocks:
            parts.append(encode_record(index, at_ms, columns))
            records.append(Record(index, columns.rows, at_ms, offset, len(parts[-1])))
            index += columns.rows
            offset += len(parts[-1])
        try:
            self._write(self._fd, b"".join(parts), segment.byte_count)
            self._files.sync(self._fd)
        except OSError:
            self.close()  # what became of it is not known: the next rows go into another file
            raise
        for record in records:
            segment.add(record)
        if self._is_full(segment, at_ms):
            self.close()
        self._summarize()

    def _is_full(self, segment: Segment, at_ms: int) -> bool:
        byte_count = max(self._bounds.bytes_max // SEGMENTS, SEGMENT_BYTES_MIN)
        return segment.byte_count >= byte_count or (
            at_ms - self._opened_ms >= self._bounds.age_ms_max // SEGMENTS
        )

    def _begin_segment(self) -> None:
        """Open a file for the next rows; it replaces one that has none of its rows."""
        index = self._segments[-1].next_index if self._segments else 0
        path = os.path.join(self._directory, segment_name(index))
        header = encode_header(Header(self._incarnation, index, self._schema))
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(path + UNFINISHED)
        fd = self._files.create(path + UNFINISHED)
        try:
            self._write(fd, header, 0)
            self._files.sync(fd)
            self._files.rename(path + UNFINISHED, path)
            self._files.sync_directory(self._directory)
        except OSError:
            self._files.close(fd)
            raise
        if self._segments and self._segments[-1].path == path:
            self._segments.pop()
        self._fd = fd
        self._opened_ms = self._clock_ms()
        self._segments.append(Segment(path, self._schema, index, len(header)))
        self._summarize()

    def _write(self, fd: int, data: bytes, offset: int) -> None:
        done = 0
        while done < len(data):
            done += self._files.write(fd, data[done:], offset + done)

    # Forgetting

    def trim(self) -> None:
        """Drop rows that all groups are done with, and those that are too many or too old.

        Raises OSError: a file, which counts no more, is not removed; or the last one stays, for
        room.
        """
        if not self.summary.incarnation:
            return  # what is there is not known
        now_ms = self._clock_ms()
        last = self._segments[-1]
        try:
            if last.row_count and (self._fd < 0 or self._is_full(last, now_ms)):
                self.close()
                self._begin_segment()
        finally:
            self._drop_front(now_ms)

    def _drop_front(self, now_ms: int) -> None:
        done = self._book.least()
        oldest_ms = now_ms - self._bounds.age_ms_max
        bytes_max = self._bounds.bytes_max - self._bounds.bytes_max // SEGMENTS
        byte_count = sum(segment.byte_count for segment in self._segments)
        gone: list[Segment] = []
        for segment in self._segments[:-1]:
            read = done is not None and segment.next_index <= done
            if not read and byte_count <= bytes_max and segment.last_ms >= oldest_ms:
                break
            gone.append(segment)
            byte_count -= segment.byte_count
        del self._segments[: len(gone)]
        self._summarize()
        for segment in gone:
            self._files.remove(segment.path)

    def _summarize(self) -> None:
        filled = [each for each in self._segments if each.row_count]
        last = self._segments[-1].next_index if self._segments else 0
        self.summary = Summary(
            self._incarnation,
            filled[0].first_index if filled else last,
            last,
            sum(segment.byte_count for segment in self._segments),
            filled[0].first_ms if filled else 0,
            filled[-1].last_ms if filled else 0,
        )

    # Reading

    def read(self, incarnation: int, start: int, end: int, bytes_max: int) -> list[Block]:
        """Return the first blocks that hold rows `start` to `end` - 1, one at least for one row.

        A later block that exceeds `bytes_max` is left out. Raises OtherIncarnationError,
        DataGoneError, NotYetError beyond the last row, and OSError.
        """
        self.check(incarnation)
        summary = self.summary
        if end > summary.next_index:
            raise NotYetError(f"the last row is {summary.next_index - 1}", summary.next_index)
        if start < summary.first_index:
            raise DataGoneError("rows were dropped", summary.first_index)
        if start == end:
            return []
        segment = self._segment_of(start)
        offset, byte_count = segment.place(start, end, bytes_max)
        fd = self._files.open(segment.path)
        try:
            data = self._files.read(fd, byte_count, offset)
        finally:
            self._files.close(fd)
        found: list[Block] = []
        at = 0
        while at < byte_count:
            decoded = decode_record(data, at, segment.schema)
            if decoded is None:
                break
            found.append(decoded[0])
            at = decoded[1]
        if not found:
            self._lose(segment, start, offset)
        return found

    def _segment_of(self, index: int) -> Segment:
        firsts = [segment.first_index for segment in self._segments]
        at = bisect_right(firsts, index) - 1
        while self._segments[at].next_index <= index:  # it has no rows
            at -= 1
        return self._segments[at]

    def _lose(self, segment: Segment, start: int, offset: int) -> None:
        """Give up a block that fails its checksum, and all before it, by a DataGoneError."""
        lost = segment.end_of_block(start)
        log.error("%s is damaged at byte %d: rows before %d are lost", segment.path, offset, lost)
        at = self._segments.index(segment)
        gone, self._segments = self._segments[:at], self._segments[at:]
        segment.forget_before(lost)
        self._summarize()
        for each in gone:
            self._files.remove(each.path)
        raise DataGoneError("rows are damaged", self.summary.first_index)

    # Groups; a group's changes are durable when these return, and raise OSError otherwise

    def check(self, incarnation: int) -> None:
        """Refuse what is about rows of another incarnation, by an OtherIncarnationError."""
        if incarnation != self._incarnation:
            raise OtherIncarnationError("the log was lost and began anew", self._incarnation)

    def open_group(self, name: str, opener: bytes) -> GroupEntry:
        """Open a group, see `ExportLog.open_group`."""
        return self._book.open(name, opener, self.summary.first_index, self._clock_ms())

    def commit(self, name: str, epoch: int, incarnation: int, up_to: int) -> GroupEntry:
        """Note a group's position, see `ExportLog.commit`; drop rows that are needed no more."""
        self.check(incarnation)
        if up_to > self.summary.next_index:
            next_index = self.summary.next_index
            raise NotYetError(f"the last row is {next_index - 1}", next_index)
        entry = self._book.commit(name, epoch, up_to, self._clock_ms())
        self.trim()
        return entry

    def close_group(self, name: str, epoch: int) -> None:
        """Forget a group, see `ExportLog.close_group`."""
        self._book.close(name, epoch)

    def groups(self) -> dict[str, GroupEntry]:
        """Return the groups by name."""
        return self._book.groups
