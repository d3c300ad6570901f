"""Files of messages: blocks with checksums, and an end that says that nothing is missing.

All numbers are big-endian and without a sign.

    file     header | n x block | end
    header   8 bytes "HRBACKUP" | u16 version | u16 0 | u32 CRC32C of these 12
    block    4 bytes "BLK1" | u32 messages | u32 bytes of heads | u32 bytes of the batch
                | u64 first id | u64 last id | u32 CRC32C of these 32 bytes, heads and batch
                | heads | batch
    end      4 bytes "END1" | u32 blocks | u64 messages | u64 last id, 0 without messages
                | u32 CRC32C of these 24

Heads and batches are those of `ReadPointResponse` in protos/headrace/broker/v1/backup.proto.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

import google_crc32c

from headrace_broker.codecs.batch import batch_count, batch_end, check_batch
from headrace_broker.runtime.backup.chunk import HEAD_BYTES, Head, read_heads

VERSION: Final = 1
BLOCK_BYTES_MAX: Final = 1 << 30  # of heads or batch; a chunk of the broker has a few MiB

_MAGIC: Final = b"HRBACKUP"
_HEADER: Final = struct.Struct(">8sHH")
_BLOCK: Final = struct.Struct(">4sIIIQQ")
_END: Final = struct.Struct(">4sIQQ")
_CRC: Final = struct.Struct(">I")
_BLOCK_MARK: Final = b"BLK1"
_END_MARK: Final = b"END1"


class DamagedError(Exception):
    """A file of a backup is not what was written; the text names it, and what is wrong."""


class Block(NamedTuple):
    """Messages that follow one another."""

    heads: bytes  # 48 bytes for each
    batch: bytes  # the messages themselves

    @property
    def messages(self) -> int:
        """Number of messages."""
        return len(self.heads) // HEAD_BYTES

    def read_heads(self) -> list[Head]:
        """Return what the queue knew of each message."""
        return list(read_heads(self.heads))


class DataWriter:
    """Writes one file."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._blocks = 0
        self._digest = hashlib.sha256()
        # written so far; ids of messages, 0 without any
        self.messages = self.byte_count = self.first_id = self.last_id = 0
        self._write(_with_crc(_HEADER.pack(_MAGIC, VERSION, 0)))

    def add(self, block: Block, first_id: int, last_id: int) -> None:
        """Write a block of at least one message."""
        sizes = (block.messages, len(block.heads), len(block.batch))
        fixed = _BLOCK.pack(_BLOCK_MARK, *sizes, first_id, last_id)
        crc = google_crc32c.extend(google_crc32c.value(fixed), block.heads)
        self._write(fixed + _CRC.pack(google_crc32c.extend(crc, block.batch)))
        self._write(block.heads)
        self._write(block.batch)
        self._blocks += 1
        self.messages += block.messages
        self.first_id = self.first_id or first_id
        self.last_id = last_id

    def end(self) -> None:
        """Write that nothing follows."""
        self._write(_with_crc(_END.pack(_END_MARK, self._blocks, self.messages, self.last_id)))

    @property
    def sha256(self) -> str:
        """Checksum of what was written, in hexadecimal."""
        return self._digest.hexdigest()

    def _write(self, data: bytes) -> None:
        self._out.write(data)
        self._digest.update(data)
        self.byte_count += len(data)


def read_blocks(source: BinaryIO, name: str) -> Iterator[Block]:
    """Return the blocks of a file, each checked before; DamagedError where one is wrong."""
    reader = _Reader(source, name)
    reader.header()
    blocks = messages = last_id = 0
    while True:
        mark = reader.take(4, "a block or the end")
        if mark == _END_MARK:
            break
        if mark != _BLOCK_MARK:
            raise reader.damaged("neither a block nor the end begins there")
        block, first, last = reader.block()
        if first <= last_id:
            raise reader.damaged(f"ids do not ascend: {first} behind {last_id}")
        blocks, messages, last_id = blocks + 1, messages + block.messages, last
        yield block
    reader.end((blocks, messages, last_id))


class _Reader:
    """Takes fields out of a file, and knows where it is."""

    def __init__(self, source: BinaryIO, name: str) -> None:
        self._source = source
        self._name = name
        self._offset = 0

    def damaged(self, what: str) -> DamagedError:
        return DamagedError(f"{self._name}, offset {self._offset}: {what}")

    def take(self, byte_count: int, what: str) -> bytes:
        """Return so many bytes."""
        parts: list[bytes] = []
        left = byte_count
        while left:
            part = self._source.read(left)
            if not part:
                at = self._offset + byte_count - left
                raise DamagedError(f"{self._name} is torn: it ends at {at}, within {what}")
            parts.append(part)
            left -= len(part)
        self._offset += byte_count
        return b"".join(parts)

    def header(self) -> None:
        data = self.take(_HEADER.size + _CRC.size, "the header")
        magic, version, _ = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise self.damaged("it is no file of a backup")
        self._check(data, "the header")
        if version != VERSION:
            text = f"{self._name} has version {version} of the format, known here is {VERSION}"
            raise DamagedError(f"{text}: take a release that is as new as the one that wrote it")

    def block(self) -> tuple[Block, int, int]:
        """Return a block behind its mark, and its first and last id."""
        rest = self.take(_BLOCK.size - 4 + _CRC.size, "the head of a block")
        fixed = _BLOCK_MARK + rest[: -_CRC.size]
        _, count, heads_bytes, batch_bytes, first, last = _BLOCK.unpack(fixed)
        if heads_bytes != count * HEAD_BYTES or not 0 < heads_bytes <= BLOCK_BYTES_MAX:
            raise self.damaged("the head of a block is changed")
        if batch_bytes > BLOCK_BYTES_MAX:
            raise self.damaged("the head of a block is changed")
        heads = self.take(heads_bytes, "a block")
        batch = self.take(batch_bytes, "a block")
        crc = google_crc32c.extend(google_crc32c.value(fixed), heads)
        if google_crc32c.extend(crc, batch) != _CRC.unpack(rest[-_CRC.size :])[0]:
            raise self.damaged("the block before it fails its checksum")
        if not check_batch(batch, 0) or batch_end(batch, 0) != len(batch):
            raise self.damaged("the block before it holds no batch")
        if batch_count(batch, 0) != count:
            raise self.damaged("the block before it has another number of messages than heads")
        return Block(heads, batch), first, last

    def end(self, seen: tuple[int, int, int]) -> None:
        """Read the end behind its mark; compare it with what there was."""
        data = _END_MARK + self.take(_END.size - 4 + _CRC.size, "the end")
        self._check(data, "the end")
        if _END.unpack_from(data)[1:] != seen:
            raise self.damaged("the end counts other blocks or messages than there are")
        if self._source.read(1):
            raise self.damaged("something follows the end")

    def _check(self, data: bytes, what: str) -> None:
        if google_crc32c.value(data[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
            raise self.damaged(f"{what} fails its checksum")


def _with_crc(data: bytes) -> bytes:
    return data + _CRC.pack(google_crc32c.value(data))
