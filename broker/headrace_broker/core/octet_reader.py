"""Reads fields from octets in order; an early end is remembered and not raised."""

from __future__ import annotations

from typing import final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64


@final
class OctetReader:
    """A cursor over big-endian fields.

    Attributes:
        data: what is read.
        position: offset of the next field.
        failed: a field reached beyond the end or its top bit was set where no number may be that
            large; from then on every field reads as zero or empty.
    """

    def __init__(self, data: bytes, position: i64) -> None:
        self.data = data
        self.position = position
        self.failed = position > len(data)

    def _advance(self, octets: i64) -> bool:
        if self.failed or octets > len(self.data) - self.position:
            self.failed = True
            return False
        self.position += octets
        return True

    def u8(self) -> i64:
        """Read one octet."""
        if not self._advance(1):
            return 0
        return self.data[self.position - 1]

    def u32(self) -> i64:
        """Read four octets."""
        if not self._advance(4):
            return 0
        return i64(read_i32_be(self.data, self.position - 4)) & 0xFFFFFFFF

    def u64(self) -> i64:
        """Read eight octets that hold a number below 2**63."""
        if not self._advance(8):
            return 0
        value = read_i64_be(self.data, self.position - 8)
        if value < 0:
            self.failed = True
            return 0
        return value

    def octets(self, count: i64) -> bytes:
        """Read `count` octets, 0 or more."""
        if not self._advance(count):
            return b""
        return self.data[self.position - count : self.position]

    def at_end(self) -> bool:
        """Whether everything was there and nothing is left over."""
        return not self.failed and self.position == len(self.data)
