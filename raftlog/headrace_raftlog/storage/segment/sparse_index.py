"""Positions of single entries of a group that are not part of its contiguous log."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64

_EQUAL_MAX: Final = 1 << 14  # indexes compared at once
_ONE_BY_ONE: Final = 16  # entries; below, handling them one by one is faster than as a stretch

LENGTH_MASK: Final = 0x7FFFFFFF  # bits of a stored length that are one
HINTED: Final = 0x80000000  # bit of a stored length: the application reads that entry no more


@final
class SparseIndex:
    """Entries by index: 20 bytes each, looked up by bisection."""

    def __init__(self) -> None:
        self.indexes: array[int] = array("Q")  # ascending
        # packed locations; 0 while an entry is not known to be durable
        self.locations: array[int] = array("Q")
        self.lengths: array[int] = array("I")  # bytes of the blobs, with the bit HINTED

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

    def take(
        self,
        indexes: array[int],
        at: i64,
        locations: array[int],
        lengths: array[int],
        place: i64,
        count: i64,
    ) -> None:
        """Put entries behind all others: indexes from position `at`, the rest from `place` on."""
        if count < _ONE_BY_ONE:
            for step in range(count):
                self.indexes.append(indexes[at + step])
                self.locations.append(locations[place + step])
                self.lengths.append(lengths[place + step])
        else:
            self.indexes += indexes[at : at + count]
            self.locations += locations[place : place + count]
            self.lengths += lengths[place : place + count]

    def cut(self, start: i64, stop: i64) -> None:
        """Take entries out by their positions."""
        del self.indexes[start:stop]
        del self.locations[start:stop]
        del self.lengths[start:stop]


@final
class Matching:
    """Positions of wanted indexes among known ones; both ascend.

    What is dropped or added between two snapshots is little beside what stays, so equal stretches
    are compared as a whole: millions of entries take milliseconds.
    """

    def __init__(self, known: array[int], wanted: array[int], count: i64) -> None:
        """Find the first `count` wanted indexes."""
        # positions among the known indexes at which a stretch of wanted ones begins
        self.starts: list[int] = []
        self.stops: list[int] = []  # positions behind the ends of these stretches
        self.missing: list[int] = []  # wanted indexes that are not known
        end: i64 = len(known)
        at: i64 = 0
        place: i64 = 0
        while at < count:
            if place == end:
                self.missing.extend(wanted[at:count])
                return
            index: i64 = known[place]
            sought: i64 = wanted[at]
            if index < sought:
                place += 1
            elif index > sought:
                self.missing.append(sought)
                at += 1
            else:
                same: i64 = _equal(known, place, wanted, at, min(end - place, count - at))
                self.starts.append(place)
                self.stops.append(place + same)
                place += same
                at += same


def _equal(known: array[int], place: i64, wanted: array[int], at: i64, room: i64) -> i64:
    """Return how many indexes, of `room` at most, are the same from two positions on; one is."""
    same: i64 = 1
    few: i64 = min(room, _ONE_BY_ONE)
    while same < few:
        ours: i64 = known[place + same]
        theirs: i64 = wanted[at + same]
        if ours != theirs:
            return same
        same += 1
    step: i64 = _ONE_BY_ONE
    while same < room and step > 0:
        count: i64 = min(step, room - same)
        stretch = known[place + same : place + same + count]
        if stretch == wanted[at + same : at + same + count]:
            same += count
            step = min(2 * step, _EQUAL_MAX)
        else:
            step = min(step, count) >> 1
    return same


def ascending_run(indexes: array[int], start: i64, stop: i64) -> i64:
    """Return the position behind the stretch of consecutive indexes that begins at `start`."""
    first: i64 = indexes[start]
    low: i64 = start
    step: i64 = 1
    while step > 0:
        if low + step < stop and i64(indexes[low + step]) - first == low + step - start:
            low += step
            step *= 2
        else:
            step >>= 1
    return low + 1
