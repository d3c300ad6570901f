"""Reads fields from bytes in order; an early end is remembered and not raised."""

from __future__ import annotations

from typing import final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64


@final
class ByteReader:
    """A cursor over big-endian fields."""

    def __init__(self, data: bytes, position: i64) -> None:
        self.data = data  # what is read
        self.position = position  # offset of the next field
        # a field reached beyond the end or its top bit was set where no number may be that large;
        # from then on every field reads as zero or empty
        self.failed = position > len(data)

    def _advance(self, byte_count: i64) -> bool:
        if self.failed or byte_count > len(self.data) - self.position:
            self.failed = True
            return False
        self.position += byte_count
        return True

    def u8(self) -> i64:
        """Read one byte."""
        if not self._advance(1):
            return 0
        return self.data[self.position - 1]

    def u16(self) -> i64:
        """Read two bytes."""
        if not self._advance(2):
            return 0
        data = self.data
        return (i64(data[self.position - 2]) << 8) | i64(data[self.position - 1])

    def s32(self) -> i64:
        """Read four bytes that hold a number with a sign."""
        value = self.u32()
        return value - 0x100000000 if value > 0x7FFFFFFF else value

    def s64(self) -> i64:
        """Read eight bytes that hold a number with a sign."""
        if not self._advance(8):
            return 0
        return read_i64_be(self.data, self.position - 8)

    def varint(self) -> i64:
        """Read a number from 0 to 2**63-1 in groups of 7 bits, the lowest first."""
        data = self.data
        position = self.position
        size: i64 = len(data)
        value: i64 = 0
        shift: i64 = 0
        while shift < 63 and position < size and not self.failed:
            byte: i64 = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return value
            shift += 7
        self.failed = True
        return 0

    def ids(self) -> list[int]:
        """Read a count and as many numbers of 8 bytes."""
        count = self.u32()
        if count * 8 > len(self.data) - self.position:
            self.failed = True
            return []
        return [self.u64() for _ in range(count)]

    def u32(self) -> i64:
        """Read four bytes."""
        if not self._advance(4):
            return 0
        return i64(read_i32_be(self.data, self.position - 4)) & 0xFFFFFFFF

    def u64(self) -> i64:
        """Read eight bytes that hold a number below 2**63."""
        if not self._advance(8):
            return 0
        value = read_i64_be(self.data, self.position - 8)
        if value < 0:
            self.failed = True
            return 0
        return value

    def read_bytes(self, count: i64) -> bytes:
        """Read `count` bytes, 0 or more."""
        if not self._advance(count):
            return b""
        return self.data[self.position - count : self.position]

    def at_end(self) -> bool:
        """True if everything was there and nothing is left over."""
        return not self.failed and self.position == len(self.data)
