"""Survey of a log's files: those of its newest list against those in the directory."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.storage.disk.files import Files, read_around
from headrace_raftlog.storage.segment.file_list import FileSpan, decode_files, decode_gone
from headrace_raftlog.storage.segment.record import (
    HEAD_PLAIN,
    HEADER_BYTES,
    RECORD_FILES,
    RECORD_GONE,
    SECTOR_BYTES,
    Batch,
    head_number_at,
    read_batch,
    record_bytes,
    record_kind_at,
    record_length_at,
    record_payload_at,
    record_term_at,
    record_type_at,
    sector_end,
)
from headrace_raftlog.storage.segment.scan import later_head
from headrace_raftlog.storage.segment.segment import (
    SEGMENT_HEADER_BYTES,
    UNFINISHED_SUFFIX,
    SegmentHeader,
    SegmentReader,
    decode_segment_header,
    header_is_intact,
    segment_name,
    segment_sequence,
)


@final
class Survey:
    """The files of a log."""

    def __init__(self, files: Files, directory: str, reader: SegmentReader) -> None:
        self.files = files
        self.directory = directory
        self.reader = reader
        self.sequences: list[int] = []  # of the segments to read, ascending
        self.headers: dict[int, SegmentHeader] = {}
        # what is known of their batches: of all closed segments
        self.spans: dict[int, FileSpan] = {}
        # the segment whose list of the others was used; 0 when there is none yet
        self.listed_in: i64 = 0
        self.first_number: i64 = 1  # number of that segment's first batch
        self.superfluous: list[str] = []  # names of files that may go
        # headers that are damaged on disk and known from the other segments
        self.restored: dict[int, SegmentHeader] = {}
        self._present: list[int] = []
        self._gone: set[int] = set()
        self._held: dict[int, bytes] = {}

    def run(self) -> None:
        """Survey the directory.

        Raises CorruptLogError: a file is missing, or is no segment of this log; OSError: a file
        cannot be read.
        """
        for name in self.files.names(self.directory):
            sequence = segment_sequence(name)
            if sequence:
                self._present.append(sequence)
            elif name.endswith(UNFINISHED_SUFFIX):
                self.superfluous.append(name)
        for sequence in reversed(self._present):
            if self._find_list(sequence):
                break
            del self._held[sequence]
        self._select()
        salt = 0
        for sequence in self.sequences:
            header = self._header(sequence)
            self.headers[sequence] = header
            if salt and header.salt != salt:
                path = self.reader.path(sequence)
                raise CorruptLogError(path, 0, "the segment belongs to another log")
            salt = header.salt
        self.reader.salt = salt

    def take(self, sequence: int) -> bytes:
        """Return a segment's bytes."""
        held = self._held.pop(sequence, None)
        return held if held is not None else read_file(self.files, self.reader.path(sequence))

    def _header(self, sequence: int) -> SegmentHeader:
        path = self.reader.path(sequence)
        data, size = self._first_sectors(sequence)
        header = self._decoded(sequence, data, size)
        if header.sequence != sequence:
            raise CorruptLogError(path, 0, f"the header says segment {header.sequence}")
        if header.size != size:
            raise CorruptLogError(path, size, f"the file is not {header.size} bytes long")
        return header

    def _first_sectors(self, sequence: int) -> tuple[bytes, int]:
        """Return the header of a file with what can be a batch's head behind it, and its length."""
        fd = self.files.open(self.reader.path(sequence))
        try:
            size = self.files.size(fd)
            data = read_around(self.files, fd, SEGMENT_HEADER_BYTES + SECTOR_BYTES, 0)
            if header_is_intact(data):
                return data, size
            return read_around(self.files, fd, size, 0), size
        finally:
            self.files.close(fd)

    def _decoded(self, sequence: int, data: bytes, size: int) -> SegmentHeader:
        """Return a segment's header; one that is damaged says nothing that is not known otherwise.

        Its sequence and length are the file's, all else is the same in all segments; and the batch
        that follows it shows by its checksum whether the file is of this log.
        """
        path = self.reader.path(sequence)
        if header_is_intact(data):
            return decode_segment_header(path, data)
        for other in self._present:
            found = self._first_sectors(other)[0] if other != sequence else b""
            if not header_is_intact(found):
                continue
            known = decode_segment_header(self.reader.path(other), found)
            if head_number_at(data, SEGMENT_HEADER_BYTES, known.salt) > 0:
                header = SegmentHeader(sequence, size, known.salt, known.node, known.cluster)
                self.restored[sequence] = header
                return header
        return decode_segment_header(path, data)

    def _find_list(self, sequence: int) -> bool:
        """Read the list at the beginning of a segment, and its later changes."""
        path = self.reader.path(sequence)
        data = read_file(self.files, path)
        self._held[sequence] = data
        salt: i64 = self._decoded(sequence, data, len(data)).salt
        number: i64 = head_number_at(data, SEGMENT_HEADER_BYTES, salt)
        if number == 0:
            return False
        offset: i64 = (
            SEGMENT_HEADER_BYTES + HEADER_BYTES + record_length_at(data, SEGMENT_HEADER_BYTES)
        )
        batch = read_batch(data, SEGMENT_HEADER_BYTES, number, salt)
        if record_bytes(data, offset, len(data), salt) < 0:
            return False
        if batch.end == 0 and later_head(data, SEGMENT_HEADER_BYTES, len(data), number, salt) < 0:
            return False  # torn: what it says was never acted on
        if record_type_at(data, offset) != RECORD_FILES:
            return False
        for span in self._decode(path, data, offset):
            self.spans[span.sequence] = span
        self.listed_in = sequence
        self.first_number = number
        self._follow(data, batch.follows or SEGMENT_HEADER_BYTES + SECTOR_BYTES, salt)
        return True

    def _decode(self, path: str, data: bytes, offset: i64) -> list[FileSpan]:
        try:
            return decode_files(record_payload_at(data, offset))
        except ValueError as error:
            raise CorruptLogError(path, offset, str(error)) from error

    def _follow(self, data: bytes, start: i64, salt: i64) -> None:
        """Read which files were removed later, mostly from heads; damage is skipped.

        What is reserved is passed over too: clients choose the bytes there.
        """
        position: i64 = start
        while position < len(data):
            number: i64 = head_number_at(data, position, salt)
            if number == 0:
                position += SECTOR_BYTES
                continue
            size: i64 = record_term_at(data, position)
            if record_kind_at(data, position) != HEAD_PLAIN:
                batch = read_batch(data, position, number, salt)
                self._take_gone(data, batch)
                if batch.end:
                    position = batch.follows
                    continue
            position = max(position + SECTOR_BYTES, sector_end(position + size))

    def _take_gone(self, data: bytes, batch: Batch) -> None:
        if batch.end == 0:
            return
        for offset in batch.offsets:
            if record_type_at(data, offset) == RECORD_GONE:
                self._gone.update(decode_gone(record_payload_at(data, offset)))

    def _select(self) -> None:
        """Compare the expected files with the existing ones."""
        present = set(self._present)
        newest = max(present, default=0)
        expected = sorted(self.spans)
        expected.extend(range(self.listed_in if self.listed_in else 1, newest + 1))
        for sequence in expected:
            if sequence in self._gone:
                continue
            if sequence not in present:
                path = self.reader.path(sequence)
                raise CorruptLogError(path, 0, f"segment {sequence} is missing")
            self.sequences.append(sequence)
        wanted = set(self.sequences)
        for sequence in self._present:
            if sequence not in wanted:
                self.superfluous.append(segment_name(sequence))


def read_file(files: Files, path: str) -> bytes:
    """Return a whole file."""
    fd = files.open(path)
    try:
        return read_around(files, fd, files.size(fd), 0)
    finally:
        files.close(fd)
