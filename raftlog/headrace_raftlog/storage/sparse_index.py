"""Where single entries of a group lie that are not part of its contiguous log."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64

LENGTH_MASK: Final = 0x7FFFFFFF  # bits of a stored length that are one
HINTED: Final = 0x80000000  # bit of a stored length: the application reads that entry no more


@final
class SparseIndex:
    """Entries by index: 20 bytes each, looked up by bisection.

    Attributes:
        indexes: ascending.
        locations: packed locations; 0 while an entry is not known to be durable.
        lengths: bytes of the blobs, with the bit HINTED.
    """

    def __init__(self) -> None:
        self.indexes: array[int] = array("Q")
        self.locations: array[int] = array("Q")
        self.lengths: array[int] = array("I")

    def find(self, index: i64) -> i64:
        """Return the position of `index` in the arrays, -1 where it is not there."""
        at: i64 = bisect_left(self.indexes, index)
        if at < len(self.indexes) and self.indexes[at] == index:
            return at
        return -1

    def add(self, index: i64, location: i64, length: i64) -> None:
        """Put an entry in its place, quickly when it is behind all others."""
        if not self.indexes or self.indexes[-1] < index:
            self.indexes.append(index)
            self.locations.append(location)
            self.lengths.append(length)
            return
        at: i64 = bisect_left(self.indexes, index)
        assert self.indexes[at] != index, f"entry {index} is there already"
        self.indexes.insert(at, index)
        self.locations.insert(at, location)
        self.lengths.insert(at, length)
