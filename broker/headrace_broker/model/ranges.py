"""Sets of numbers that mostly stand in rows."""

from __future__ import annotations

from bisect import bisect_right
from typing import final

from mypy_extensions import i64


@final
class Ranges:
    """Numbers, as rows without gaps.

    Attributes:
        bounds: first number of a row, the number after its last, those of the next row, and so on;
            they ascend.
    """

    def __init__(self) -> None:
        self.bounds: list[int] = []

    def __bool__(self) -> bool:
        return len(self.bounds) > 0

    def __contains__(self, number: int) -> bool:
        return bisect_right(self.bounds, number) % 2 == 1

    @property
    def first(self) -> i64:
        """The lowest number; there must be one."""
        return self.bounds[0]

    @property
    def count(self) -> i64:
        """Number of numbers."""
        return count_rows(self.bounds)

    def append(self, first: i64, stop: i64) -> None:
        """Add `first` to `stop` - 1, which are higher than all that are there."""
        bounds = self.bounds
        if stop <= first:
            return
        if bounds and bounds[-1] == first:
            bounds[-1] = stop
        else:
            assert not bounds or bounds[-1] < first, "in ascending order"
            bounds.append(first)
            bounds.append(stop)

    def remove(self, first: i64, stop: i64) -> list[int]:
        """Remove the part of `first` to `stop` - 1 that is there; return it, as `bounds`."""
        gone = self.cut(first, stop)
        if gone:
            bounds = self.bounds
            low = self._row(first)
            high: i64 = low + len(gone)
            left: list[int] = []
            if bounds[low] < gone[0]:
                left += [bounds[low], gone[0]]
            if bounds[high - 1] > gone[-1]:
                left += [gone[-1], bounds[high - 1]]
            bounds[low:high] = left
        return gone

    def cut(self, first: i64, stop: i64) -> list[int]:
        """Return the part of `first` to `stop` - 1 that is there, as `bounds`; nothing changes."""
        bounds = self.bounds
        size: i64 = len(bounds) if first < stop else 0
        found: list[int] = []
        at = self._row(first)
        while at < size and bounds[at] < stop:
            found.append(max(bounds[at], first))
            found.append(min(bounds[at + 1], stop))
            at += 2
        return found

    def _row(self, number: i64) -> i64:
        """Return the index of the row that a number is in, or of the next one."""
        at: i64 = bisect_right(self.bounds, number)
        return at - at % 2


def count_rows(bounds: list[int]) -> i64:
    """Return how many numbers are in rows that stand as in `Ranges.bounds`."""
    count: i64 = 0
    for at in range(0, len(bounds), 2):
        count += bounds[at + 1] - bounds[at]
    return count
