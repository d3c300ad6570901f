"""Checks a batch (layout in `model.message`) once, on entry, and keeps the sizes of its bodies."""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, write_i32_be
from mypy_extensions import i32, i64, mypyc_attr

U32: Final = 0xFFFFFFFF
UNEQUAL: Final = -1
MESSAGE_HEAD_BYTES: Final = 8  # two empty short strings, a length, empty property flags
PROPERTIES_BYTES_MIN: Final = 2


@mypyc_attr(acyclic=True)
@final
class BatchSizes:
    """Body sizes of a batch's messages: one number where they are equal, else 4 bytes each."""

    def __init__(self, count: i64, size: i64, table: bytes) -> None:
        self.count = count  # number of messages
        self.size = size  # bytes of every body, or UNEQUAL
        self.table = table  # `count` x u32 when unequal, else empty
        self.flags: i64 = 0  # property flags that any of the messages has; known only on arrival

    def byte_count(self, position: i64) -> i64:
        """Return the body size of the message at `position`."""
        if self.size != UNEQUAL:
            return self.size
        return i64(read_i32_be(self.table, position * 4)) & U32

    def bytes_between(self, start: i64, stop: i64) -> i64:
        """Return the sum of the body sizes at positions `start` to `stop` - 1."""
        if self.size != UNEQUAL:
            return self.size * (stop - start)
        total: i64 = 0
        for position in range(start, stop):
            total += i64(read_i32_be(self.table, position * 4)) & U32
        return total


def measure_batch(blob: bytes, base: i64, end: i64 = -1) -> BatchSizes | None:
    """Check the batch in `blob[base:end]` (-1: to the blob's end); None if malformed."""
    blob_bytes = end if end >= 0 else len(blob)
    if base + 4 > blob_bytes:
        return None
    count = i64(read_i32_be(blob, base)) & U32
    table: i64 = base + 4
    origin = table + 4 * count
    if count == 0 or origin > blob_bytes:
        return None
    start = origin
    size: i64 = 0
    unequal: BytesWriter | None = None
    flags: i64 = 0
    for k in range(count):
        stop = origin + (i64(read_i32_be(blob, table + 4 * k)) & U32)
        byte_count = _body_bytes(blob, start, stop, blob_bytes)
        if byte_count < 0:
            return None
        at = start + 1 + blob[start]
        at += 1 + blob[at]
        flags |= i64(read_i16_be(blob, at + 4)) & 0xFFFF
        if k == 0:
            size = byte_count
        elif unequal is None and byte_count != size:
            unequal = BytesWriter()
            for _ in range(k):
                write_i32_be(unequal, i32(size))
        if unequal is not None:
            write_i32_be(unequal, i32(byte_count))
        start = stop
    if start != blob_bytes:
        return None
    if unequal is None:
        sizes = BatchSizes(count, size, b"")
    else:
        sizes = BatchSizes(count, UNEQUAL, unequal.getvalue())
    sizes.flags = flags
    return sizes


def _body_bytes(blob: bytes, start: i64, stop: i64, blob_bytes: i64) -> i64:
    """Return the body size of the message from `start` to `stop`, -1 where it does not fit."""
    if stop > blob_bytes or start + MESSAGE_HEAD_BYTES > stop:
        return -1
    at: i64 = start + 1 + blob[start]
    if at >= stop:
        return -1
    at += 1 + blob[at]
    if at + 4 > stop:
        return -1
    properties = i64(read_i32_be(blob, at)) & U32
    body = at + 4 + properties
    return stop - body if properties >= PROPERTIES_BYTES_MIN and body <= stop else -1
