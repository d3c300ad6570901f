"""Segment files: names, headers, creation ahead of use, reading."""

from __future__ import annotations

import contextlib
import os
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final, final

from google_crc32c import value as crc32c
from mypy_extensions import i64

from headrace_raftlog.model.errors import CorruptLogError, UnknownVersionError
from headrace_raftlog.model.limits import (
    CLUSTER_NAME_BYTES_MAX,
    OPEN_SEGMENTS_MAX,
    READ_AHEAD_BYTES,
    READ_AHEAD_GAP_BYTES_MAX,
    READ_PIECE_BYTES,
)
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.disk.read_cache import ReadCache
from headrace_raftlog.storage.segment.disk_reads import DiskReads, Place

SEGMENT_HEADER_BYTES: Final = 512
SEGMENT_MAGIC: Final = b"HEADRACE"
SEGMENT_VERSION: Final = 3  # of new segments
SEGMENT_VERSION_WHOLE: Final = 2  # of releases that know no placed records; read, and written on
UNFINISHED_SUFFIX: Final = ".new"

_NAME: Final = re.compile(r"(\d{16})\.log")
_LEAD: Final = Struct("<8sI")  # magic, checksum of everything behind it
_FIELDS: Final = Struct("<IQQIQH")  # version, sequence, bytes, salt, node, cluster name length
_ZEROS: Final = bytes(1 << 20)


def segment_name(sequence: int) -> str:
    """Return the file name of a segment; names sort as sequences do."""
    return f"{sequence:016d}.log"


def segment_sequence(name: str) -> int:
    """Return the sequence of a segment's file name, 0 for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else 0


@final
@dataclass(eq=False)
class SegmentHeader:
    """Header of a segment, in its first sector."""

    sequence: int  # place of the file in the log, from 1
    size: int  # length of the file in bytes, a multiple of 512
    salt: int  # start value of every checksum of this log, unsigned 32 bits, not 0
    node: int  # id of the node that owns the log, 0 for none
    cluster: str  # name of its cluster
    # SEGMENT_VERSION, or SEGMENT_VERSION_WHOLE in a segment of an earlier release
    version: int = SEGMENT_VERSION

    def encode(self) -> bytes:
        """Return the sector.

        Raises ValueError: the cluster name is too long.
        """
        cluster = self.cluster.encode()
        if len(cluster) > CLUSTER_NAME_BYTES_MAX:
            raise ValueError(f"cluster name exceeds {CLUSTER_NAME_BYTES_MAX} bytes")
        fields = _FIELDS.pack(
            self.version, self.sequence, self.size, self.salt, self.node, len(cluster)
        )
        rest = (fields + cluster).ljust(SEGMENT_HEADER_BYTES - _LEAD.size, b"\0")
        return _LEAD.pack(SEGMENT_MAGIC, crc32c(rest)) + rest


def decode_segment_header(path: str, data: bytes) -> SegmentHeader:
    """Read a segment's first sector.

    Raises CorruptLogError: it is not one, or is damaged; UnknownVersionError: it is of a later
    release.
    """
    sector = data[:SEGMENT_HEADER_BYTES]
    if len(sector) < SEGMENT_HEADER_BYTES:
        raise CorruptLogError(path, 0, "the file is shorter than a segment header")
    magic, checksum = _LEAD.unpack_from(sector)
    if magic != SEGMENT_MAGIC:
        raise CorruptLogError(path, 0, "not a segment: its first bytes are wrong")
    if checksum != crc32c(sector[_LEAD.size :]):
        raise CorruptLogError(path, 0, "the segment header fails its checksum")
    version, sequence, size, salt, node, length = _FIELDS.unpack_from(sector, _LEAD.size)
    if version not in (SEGMENT_VERSION, SEGMENT_VERSION_WHOLE):
        raise UnknownVersionError(path, version)
    start = _LEAD.size + _FIELDS.size
    cluster = sector[start : start + length].decode()
    return SegmentHeader(sequence, size, salt, node, cluster, version)


def header_is_intact(data: bytes) -> bool:
    """Return whether a file's first sector is a segment header, of whatever version."""
    sector = data[:SEGMENT_HEADER_BYTES]
    if len(sector) < SEGMENT_HEADER_BYTES:
        return False
    magic, checksum = _LEAD.unpack_from(sector)
    return bool(magic == SEGMENT_MAGIC and checksum == crc32c(sector[_LEAD.size :]))


_HURRIED_SHARE: Final = 16  # one part in so many of a segment is zeroed though batches wait: 4 MiB


@final
class SegmentDraft:
    """A segment under preparation: zero-filled step by step under a temporary name.

    A file gets its name only when its header and every zero are durable, so a named file is
    always whole. Zeros are written, not just reserved: a later write then changes no metadata
    and its sync is a single write. Only where the writer waits for the file and much of it is
    missing, that is reserved: to zero it would take longer than its batches will.
    """

    def __init__(self, files: Files, directory: str, header: SegmentHeader) -> None:
        """Start one; nothing touches the disk before `step`."""
        self.files = files
        self.directory = directory
        self.header = header
        self.path = os.path.join(directory, segment_name(header.sequence))
        self._fd = -1
        self.filled: i64 = 0

    def resize(self, header: SegmentHeader) -> None:
        """Make it the segment of another header, which differs in its length alone.

        Raises OSError: as in `step`.
        """
        self.header = header
        if self._fd < 0:
            return
        try:
            done = 0
            sector = header.encode()
            while done < min(self.filled, SEGMENT_HEADER_BYTES):
                done += self.files.write(self._fd, sector[done:], done)
            self.filled = max(self.filled, done)
        except OSError:
            self.abandon()
            raise

    def step(self, count: int) -> None:
        """Fill and sync up to `count` more bytes.

        Raises OSError: as the system says, ENOSPC among others; the draft is gone from the disk, if
        that lets go of it, and the next step starts it anew.
        """
        try:
            self._fill(count)
        except OSError:
            self.abandon()
            raise

    def finish(self, hurried: bool = False) -> int:
        """Fill the rest, give the file its name, make that durable.

        Args:
            hurried: whether batches wait for it; the rest, if long, is reserved then.

        Returns:
            The descriptor, open for writing.

        Raises OSError: as in `step`.
        """
        try:
            rest = self.header.size - self.filled
            self._fill(rest, hurried and rest > self.header.size // _HURRIED_SHARE)
            self.files.rename(self.path + UNFINISHED_SUFFIX, self.path)
            self.files.sync_directory(self.directory)
        except OSError:
            self.abandon()
            raise
        fd, self._fd = self._fd, -1
        return fd

    def abandon(self) -> None:
        """Remove the prepared part."""
        if self._fd >= 0:
            self.files.close(self._fd)
            for path in (self.path + UNFINISHED_SUFFIX, self.path):
                with contextlib.suppress(OSError):
                    self.files.remove(path)
        self._fd = -1
        self.filled = 0

    def _fill(self, count: int, reserving: bool = False) -> None:
        """Fill and sync `count` more bytes; with `reserving`, zeros all at once if possible."""
        stop = min(self.filled + count, self.header.size)
        if self.filled >= stop:
            return
        if self._fd < 0:
            self._fd = self._create()
        while self.filled < stop:
            if self.filled < SEGMENT_HEADER_BYTES:
                chunk = self.header.encode()[self.filled :]
            elif reserving and self.files.reserve(self._fd, self.filled, stop - self.filled):
                self.filled = stop
                break
            else:
                reserving = False
                chunk = _ZEROS[: stop - self.filled]
            self.filled += self.files.write(self._fd, chunk, self.filled)
        self.files.sync(self._fd)

    def _create(self) -> int:
        path = self.path + UNFINISHED_SUFFIX
        try:
            return self.files.create(path)
        except FileExistsError:  # a disk was too full to remove it when it was abandoned
            self.files.remove(path)
            return self.files.create(path)


@final
class OpenSegment:
    """A file that is being read."""

    def __init__(self, fd: int) -> None:
        self.fd = fd  # its descriptor
        self.end: i64 = 0  # offset behind the last read
        self.ahead: i64 = 0  # up to here the system was told that reads will follow


def _follows(location: i64, after: i64) -> bool:
    """Return whether who read up to `after`, and now reads at `location`, reads in order."""
    gap: i64 = location - after
    if gap >= 0 and gap <= READ_AHEAD_GAP_BYTES_MAX:
        return True
    return after == 0 or location >> 32 == (after >> 32) + 1


@final
class SegmentReader:
    """Reads records of any segment, keeping a bounded number of files open.

    `prepare` has bytes read by a thread before `read` takes them on the event loop. A read that
    was not prepared goes to the system at once; where such reads follow each other, it is told
    early what comes next.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self.files = files  # the file system
        self.directory = directory  # of the segments
        self.salt: i64 = 0  # start value of every checksum
        self.cache = ReadCache()  # entries that were read last
        self.reads = DiskReads(files)  # pieces that are read beside the event loop
        # reads that the event loop has waited for since it runs: none but those of groups that are
        # created, unless a caller has not asked `prepare`
        self.blocking: i64 = 0
        self._open: OrderedDict[int, OpenSegment] = OrderedDict()

    def read(self, sequence: int, offset: int, count: int) -> bytes:
        """Return bytes of a segment, fewer than `count` only at its end.

        Raises OSError: the file is gone or unreadable.
        """
        held = self.reads.find(sequence, offset, count)
        if held is None and self.reads.is_started:
            held = self.reads.join(sequence, offset, count)
            if held is None:
                self.blocking += 1
        if held is not None:
            return held
        segment = self._segment(sequence)
        self._look_ahead(segment, offset, offset + count)
        return self.files.read(segment.fd, count, offset)

    def prepare(
        self,
        location: i64,
        size: i64,
        after: i64,
        newest: i64,
        owner: i64,
        done: Callable[[], None],
    ) -> bool:
        """Read a durable record ahead for `read`, without waiting for the disk.

        Args:
            location: packed, of its first byte.
            size: its length.
            after: location behind what the caller read before, 0 for nothing; what follows the
                record is read with it where the record is the next one.
            newest: the segment that is still written; nothing is read ahead in it.
            owner: group that it is read for, 0 for none.
            done: called in a later turn when it is there, or cannot be read, which `read` says.

        Returns:
            Whether `read` may be called: it is there now, or cannot be read. `done` is not called
            then.
        """
        sequence: i64 = location >> 32
        offset: i64 = location & 0xFFFFFFFF
        reads = self.reads
        if not reads.is_started or reads.holds(sequence, offset, size):
            return True
        count: i64 = size
        if sequence < newest and _follows(location, after):
            count = max(size, READ_PIECE_BYTES)
        place = Place(self.path(sequence), sequence, offset, count, owner)
        try:
            return reads.fetch(place, self._segment(sequence).fd, size, done)
        except OSError:
            return True

    def prepare_record(
        self, location: i64, size: i64, owner: i64, done: Callable[[], None]
    ) -> bool:
        """Read a long record in a thread for `take_record`, and check it; as `prepare`."""
        sequence: i64 = location >> 32
        if not self.reads.is_started:
            return True
        offset: i64 = location & 0xFFFFFFFF
        place = Place(self.path(sequence), sequence, offset, size, owner, 0, self.salt)
        return self.reads.fetch_record(place, done)

    def _segment(self, sequence: int) -> OpenSegment:
        segment = self._open.get(sequence)
        if segment is None:
            segment = OpenSegment(self.files.open(self.path(sequence)))
            self._open[sequence] = segment
            if len(self._open) > OPEN_SEGMENTS_MAX:
                self.files.close(self._open.popitem(last=False)[1].fd)
        else:
            self._open.move_to_end(sequence)
        return segment

    def _look_ahead(self, segment: OpenSegment, offset: i64, end: i64) -> None:
        gap: i64 = offset - segment.end
        segment.end = end
        if gap < 0 or gap > READ_AHEAD_GAP_BYTES_MAX:
            segment.ahead = end
        elif end + READ_AHEAD_BYTES // 2 > segment.ahead:
            start: i64 = max(end, segment.ahead)
            segment.ahead = end + READ_AHEAD_BYTES
            self.files.expect(segment.fd, start, segment.ahead - start)

    def forget(self, sequence: int) -> None:
        """Close a segment that is to be removed."""
        self.reads.forget(sequence)
        segment = self._open.pop(sequence, None)
        if segment is not None:
            self.files.close(segment.fd)

    def path(self, sequence: int) -> str:
        """Return the path of a segment."""
        return os.path.join(self.directory, segment_name(sequence))

    def close(self) -> None:
        """Close every file."""
        self.reads.close()
        for segment in self._open.values():
            self.files.close(segment.fd)
        self._open.clear()
