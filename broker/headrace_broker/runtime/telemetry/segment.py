"""Files of a telemetry log: a header, then records, each a block of rows with a checksum.

    header   u8[8] magic | u32 checksum of the rest | u64 incarnation | u64 first index |
             u32 schema version | u32 bytes of columns | columns (MessagePack)
    record   u8[4] magic | u32 checksum of the rest | u32 bytes of the rest |
             u64 first index | u32 rows | u64 Unix time in ms | u32 bytes of the plain body |
             u8 deflated | u8[3] zero | u32 buffers | buffers x u32 length | body

Numbers are little-endian. A record is only ever appended, and what is behind the last whole one was
being written when the node stopped.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from struct import Struct, error
from typing import Final, NamedTuple

import msgspec
from google_crc32c import value as crc32c

from headrace_broker.codecs.column_block import Column, ColumnBlock, Schema
from headrace_broker.runtime.export.log import Block

SUFFIX: Final = ".rows"
DEFLATE_LEVEL: Final = 1
DEFLATE_BYTES_MIN: Final = 512  # of a body that is worth it

_MAGIC: Final = b"HRTELEM\x01"
_RECORD_MAGIC: Final = b"\xb1HRB"
_LEAD: Final = Struct("<8sI")
_HEAD: Final = Struct("<QQII")
_RECORD_LEAD: Final = Struct("<4sII")
_RECORD_HEAD: Final = Struct("<QIQIB3xI")
_COLUMNS: Final = msgspec.msgpack.Decoder(tuple[Column, ...])


class SegmentError(Exception):
    """A file is no segment, or its header is damaged."""


class Header(NamedTuple):
    """Header of a file."""

    incarnation: int  # of the log
    first_index: int  # of the first row that it may have
    schema: Schema  # of all rows in it


class Record(NamedTuple):
    """Position of a block."""

    first_index: int  # of its first row
    rows: int  # how many
    at_ms: int  # Unix time at which it was made
    offset: int  # in the file
    byte_count: int  # of the whole record


def segment_name(first_index: int) -> str:
    """Return the name of the file whose first row has an index; names sort as these do."""
    return f"{first_index:020d}{SUFFIX}"


def is_segment(name: str) -> bool:
    """Return whether a file's name is a segment's."""
    return name.endswith(SUFFIX)


def encode_header(header: Header) -> bytes:
    """Return the beginning of a file."""
    columns = msgspec.msgpack.encode(header.schema.columns)
    head = _HEAD.pack(header.incarnation, header.first_index, header.schema.version, len(columns))
    rest = head + columns
    return _LEAD.pack(_MAGIC, crc32c(rest)) + rest


def decode_header(path: str, data: bytes) -> tuple[Header, int]:
    """Return what a file says of itself, and where records begin; SegmentError if damaged."""
    try:
        magic, checksum = _LEAD.unpack_from(data)
        incarnation, first_index, version, length = _HEAD.unpack_from(data, _LEAD.size)
        start = _LEAD.size + _HEAD.size
        if magic != _MAGIC or checksum != crc32c(data[_LEAD.size : start + length]):
            raise SegmentError(f"{path}: the header is damaged")
        schema = Schema(version, _COLUMNS.decode(data[start : start + length]))
    except (error, msgspec.DecodeError) as failure:
        raise SegmentError(f"{path}: the header is damaged: {failure}") from failure
    return Header(incarnation, first_index, schema), start + length


def encode_record(first_index: int, at_ms: int, columns: ColumnBlock) -> bytes:
    """Return a block as a record."""
    body = columns.body
    deflated = False
    if len(body) >= DEFLATE_BYTES_MIN:
        packed = zlib.compress(body, DEFLATE_LEVEL)
        deflated = len(packed) < len(body)
        body = packed if deflated else body
    lengths = columns.buffer_bytes
    head = _RECORD_HEAD.pack(
        first_index, columns.rows, at_ms, len(columns.body), deflated, len(lengths)
    )
    rest = b"".join((head, Struct(f"<{len(lengths)}I").pack(*lengths), body))
    return _RECORD_LEAD.pack(_RECORD_MAGIC, crc32c(rest), len(rest)) + rest


def decode_record(data: bytes, offset: int, schema: Schema) -> tuple[Block, int] | None:
    """Return the block of a record and the offset of the next one; None where it is cut off."""
    rest = _checked(data, offset)
    if rest is None:
        return None
    first_index, rows, _, body_bytes, deflated, count = _RECORD_HEAD.unpack_from(rest)
    lengths = Struct(f"<{count}I").unpack_from(rest, _RECORD_HEAD.size)
    body = rest[_RECORD_HEAD.size + 4 * count :]
    block = Block(first_index, schema, ColumnBlock(rows, lengths, body), body_bytes, bool(deflated))
    return block, offset + _RECORD_LEAD.size + len(rest)


def inflated(block: Block) -> Block:
    """Return a block with its body decompressed."""
    if not block.deflated:
        return block
    plain = zlib.decompress(block.columns.body, bufsize=block.body_bytes)
    return block._replace(columns=block.columns._replace(body=plain), deflated=False)


def scan(data: bytes, start: int) -> Iterator[Record]:
    """Return where the whole records of a file are, also those behind damage."""
    offset = start
    while offset < len(data):
        rest = _checked(data, offset)
        if rest is None:
            offset = data.find(_RECORD_MAGIC, offset + 1)
            if offset < 0:
                return
            continue
        first_index, rows, at_ms, *_ = _RECORD_HEAD.unpack_from(rest)
        byte_count = _RECORD_LEAD.size + len(rest)
        yield Record(first_index, rows, at_ms, offset, byte_count)
        offset += byte_count


def _checked(data: bytes, offset: int) -> bytes | None:
    """Return a record's content behind its checksum, None if that is wrong."""
    if offset + _RECORD_LEAD.size + _RECORD_HEAD.size > len(data):
        return None
    magic, checksum, length = _RECORD_LEAD.unpack_from(data, offset)
    start = offset + _RECORD_LEAD.size
    if magic != _RECORD_MAGIC or length < _RECORD_HEAD.size or start + length > len(data):
        return None
    rest = data[start : start + length]
    return rest if checksum == crc32c(rest) else None


class Segment:
    """A file, and where its blocks are."""

    def __init__(self, path: str, schema: Schema, first_index: int, byte_count: int) -> None:
        self.path = path  # of the file
        self.schema = schema  # of its rows
        self.first_index = first_index  # of its first row
        self.next_index = first_index  # of the row behind its last one
        self.byte_count = byte_count  # of the file
        self.first_ms = 0  # Unix time of the first block, 0 without one
        self.last_ms = 0  # of the last block
        self._indexes = array("Q")
        self._offsets = array("Q")

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return self.next_index - self.first_index

    def add(self, record: Record) -> None:
        """Note a block that was appended."""
        if not self._indexes:
            self.first_ms = record.at_ms
        self.last_ms = record.at_ms
        self._indexes.append(record.first_index)
        self._offsets.append(record.offset)
        self.next_index = record.first_index + record.rows
        self.byte_count = record.offset + record.byte_count

    def forget_before(self, index: int) -> None:
        """Note that rows before an index cannot be read any more."""
        kept = bisect_right(self._indexes, index) - 1
        if kept > 0:
            del self._indexes[:kept]
            del self._offsets[:kept]
        self.first_index = max(self.first_index, index)

    def cut_at(self, index: int) -> None:
        """Note that rows from an index on, which begins a block, do not count."""
        while self._indexes and self._indexes[-1] >= index:
            self.byte_count = self._offsets.pop()
            self._indexes.pop()
        self.next_index = min(self.next_index, index)

    def place(self, start: int, end: int, bytes_max: int) -> tuple[int, int]:
        """Return offset and bytes of the blocks of rows `start` to `end` - 1, one at least.

        A later block that exceeds `bytes_max` is left out.
        """
        first = bisect_right(self._indexes, start) - 1
        offset = self._offsets[first]
        stop = first + 1
        while stop < len(self._indexes) and self._indexes[stop] < end:
            if self._end_of(stop) - offset > bytes_max:
                break
            stop += 1
        return offset, self._end_of(stop - 1) - offset

    def end_of_block(self, index: int) -> int:
        """Return the index behind the block that has a row."""
        following = bisect_right(self._indexes, index)
        return self._indexes[following] if following < len(self._indexes) else self.next_index

    def _end_of(self, position: int) -> int:
        following = position + 1
        return self._offsets[following] if following < len(self._offsets) else self.byte_count
