"""Accounts of the bytes of each segment that are still needed.

Bytes count as live from the moment they are known to be durable until what makes them superfluous
is durable as well. So a segment without live bytes can be removed at any time, in whatever order.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class SegmentUse:
    """One segment's part in the accounts."""

    def __init__(self, sequence: i64, size: i64) -> None:
        self.sequence = sequence  # its place in the log
        self.size = size  # length of the file in bytes
        self.live: i64 = 0  # bytes of records that are needed
        # bytes among them of entries that the application reads no more: they go with their group's
        # next snapshot
        self.soon: i64 = 0
        # why the file must stay though nothing in it may be live; '' for no reason
        self.pinned = ""
        self.rest: i64 = 0  # how many more steps of collection leave it alone
        self.passes: i64 = 0  # how often it was looked through
        # something in it cannot be moved, as it is not intact or too long for the log
        self.stuck = False


@final
class Ledger:
    """Accounts of all segments. Belongs to the event loop's thread."""

    def __init__(self, segment_bytes: i64) -> None:
        # by sequence; those that were decided to be removed are not among them
        self.segments: dict[int, SegmentUse] = {}
        # highest sequence that anything durable was found in; only older ones are closed
        self.newest: i64 = 0
        self.size: i64 = 0  # bytes of all files
        self.live: i64 = 0  # live bytes over all segments
        self.soon: i64 = 0  # bytes among them that go with their groups' next snapshots
        # bytes by sequence that die as soon as what was appended last is durable
        self.dying: dict[int, int] = {}
        # length of each new segment, unless it is among `lengths`
        self.segment_bytes = segment_bytes
        # of segments that were made longer and of which nothing is durable yet, by sequence
        self.lengths: dict[int, int] = {}

    def open(self, sequence: i64, size: i64) -> SegmentUse:
        """Take in a segment."""
        use = SegmentUse(sequence, size)
        self.segments[sequence] = use
        self.size += size
        self.newest = max(self.newest, sequence)
        return use

    def close(self, sequence: i64) -> None:
        """Forget a segment that is to be removed."""
        use = self.segments.pop(sequence)
        self.size -= use.size
        self.live -= use.live
        self.soon -= use.soon

    def expect(self, location: i64) -> SegmentUse:
        """Return the accounts of the segment of a packed location, opened if it is new."""
        sequence: i64 = location >> 32
        use = self.segments.get(sequence)
        if use is None:
            use = self.open(sequence, self.lengths.pop(sequence, int(self.segment_bytes)))
        return use

    def add(self, location: i64, size: i64) -> None:
        """Count bytes that are durable at a packed location."""
        use = self.expect(location)
        use.live += size
        self.live += size

    def drop(self, sequence: i64, size: i64) -> None:
        """Subtract bytes whose successor is durable."""
        use = self.segments[sequence]
        use.live -= size
        self.live -= size

    def die(self, location: i64, size: i64) -> None:
        """Subtract bytes once the newest append is durable; nothing before."""
        if location != 0:
            sequence: i64 = location >> 32
            self.dying[sequence] = self.dying.get(sequence, 0) + size

    def hint(self, location: i64, size: i64) -> None:
        """Count live bytes as such that the next snapshot frees; a negative size takes back."""
        if location != 0:
            self.segments[location >> 32].soon += size
            self.soon += size

    def settle(self, dying: dict[int, int]) -> None:
        """Take off what waited for its job to be durable."""
        for sequence, size in dying.items():
            self.drop(sequence, size)
