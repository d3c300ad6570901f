"""Latencies counted in buckets of a fixed relative width."""

from __future__ import annotations

from typing import Final

SUB_BITS: Final = 7  # 128 buckets for each power of two: values are good to 0.8 %
SUB_BUCKETS: Final = 1 << SUB_BITS
MICROSECONDS_BITS: Final = 40  # up to 12 days; what takes longer counts as that


class Histogram:
    """Counts durations in a bounded number of buckets; exact minimum, maximum and mean."""

    def __init__(self) -> None:
        self.count = 0  # durations so far
        self._buckets: dict[int, int] = {}
        self._sum_us = 0
        self._min_us = 0
        self._max_us = 0

    def add(self, duration_us: int) -> None:
        """Count a duration in microseconds; one below zero counts as zero."""
        value = min(max(duration_us, 0), (1 << MICROSECONDS_BITS) - 1)
        self._min_us = value if self.count == 0 else min(self._min_us, value)
        self._max_us = max(self._max_us, value)
        self.count += 1
        self._sum_us += value
        bucket = _bucket_of(value)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def merge(self, other: Histogram) -> None:
        """Count what another one has counted, too."""
        if other.count == 0:
            return
        self._min_us = other._min_us if self.count == 0 else min(self._min_us, other._min_us)
        self._max_us = max(self._max_us, other._max_us)
        self.count += other.count
        self._sum_us += other._sum_us
        for bucket, count in other._buckets.items():
            self._buckets[bucket] = self._buckets.get(bucket, 0) + count

    @property
    def min_us(self) -> int:
        """The shortest, 0 without any."""
        return self._min_us

    @property
    def max_us(self) -> int:
        """The longest, 0 without any."""
        return self._max_us

    @property
    def mean_us(self) -> float:
        """The mean, 0 without any."""
        return self._sum_us / self.count if self.count else 0.0

    def percentile_us(self, percent: float) -> int:
        """Return what `percent` of all durations do not exceed, good to 0.8 %; 0 without any."""
        rank = self.count * percent / 100
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                return min(_upper_end(bucket), self._max_us)
        return 0


def _bucket_of(value: int) -> int:
    """Return a value's bucket: its exponent and its leading bits; ascending with the value."""
    shift = max(value.bit_length() - SUB_BITS - 1, 0)
    return (shift << (SUB_BITS + 1)) + (value >> shift)


def _upper_end(bucket: int) -> int:
    """Return the largest value of a bucket."""
    shift, leading = divmod(bucket, SUB_BUCKETS * 2)
    return ((leading + 1) << shift) - 1
