"""Histogram of durations in microseconds."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

# Upper bounds, inclusive: from what memory takes to what an overloaded disk takes.
DURATION_BOUNDS_US: Final = (
    *(250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000),
    *(1_000_000, 2_500_000, 5_000_000, 10_000_000),
)


@final
class Histogram:
    """Counts of durations. Written by one thread; another one may read."""

    def __init__(self, bounds_us: tuple[int, ...] = DURATION_BOUNDS_US) -> None:
        # upper bounds of the buckets, ascending; what is longer has a bucket of its own
        self.bounds_us = bounds_us
        # of each bucket and of what is longer; they only grow
        self.counts: list[int] = [0] * (len(bounds_us) + 1)
        self.sum_us: i64 = 0  # of all durations

    def observe(self, duration_us: i64) -> None:
        """Count a duration; a negative one, of a clock that was set back, counts as none."""
        duration = max(duration_us, 0)
        at: i64 = 0
        for bound in self.bounds_us:
            if duration <= bound:
                break
            at += 1
        self.counts[at] += 1
        self.sum_us += duration
