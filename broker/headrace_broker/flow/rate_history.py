"""Rates of a queue over the last minute, from counters that only grow."""

from __future__ import annotations

from array import array
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.flow.activity import SECOND_US, WINDOWS_S

_SAMPLES: Final = 64  # a minute of one a second, and some that come early


@final
class Moves:
    """Messages through a queue that a node leads, since it does; they only grow.

    Attributes:
        arrived: taken in.
        delivered: handed to consumers and basic.get, repetitions included.
        settled: gone for good because a consumer said so.
    """

    def __init__(self) -> None:
        self.arrived: i64 = 0
        self.delivered: i64 = 0
        self.settled: i64 = 0

    def counts(self) -> tuple[int, int, int]:
        """Return all three."""
        return int(self.arrived), int(self.delivered), int(self.settled)


@final
class RateHistory:
    """Samples of a queue's counters over the last minute, in some 2 KiB.

    Args:
        counts: where the counters stood; see `Moves.counts`.
        now_us: at that time, of a clock that never goes back.
    """

    def __init__(self, counts: tuple[int, int, int], now_us: i64) -> None:
        self._times = array("q", bytes(8 * _SAMPLES))
        self._counts = array("q", bytes(8 * 3 * _SAMPLES))
        self._next: i64 = 0
        self.sample(counts, now_us)

    def sample(self, counts: tuple[int, int, int], now_us: i64) -> None:
        """Note where the counters stand; about once a second."""
        slot = self._next % _SAMPLES
        self._times[slot] = int(now_us)
        for which, count in enumerate(counts):
            self._counts[3 * slot + which] = count
        self._next += 1

    def is_over(self, counts: tuple[int, int, int], now_us: i64) -> bool:
        """Return whether nothing has moved for so long that all rates are 0."""
        oldest = self._sample_before(now_us - WINDOWS_S[2] * SECOND_US)
        age: i64 = now_us - self._times[oldest]
        if age < WINDOWS_S[2] * SECOND_US:
            return False
        kept = self._counts
        return (kept[3 * oldest], kept[3 * oldest + 1], kept[3 * oldest + 2]) == counts

    def rates(self, counts: tuple[int, int, int], now_us: i64) -> list[tuple[float, float, float]]:
        """Return the rates of what arrived, was delivered and was settled, each by WINDOWS_S.

        A rate is a mean since the sample that is at least as old as its window; where there is
        none, since the oldest one, over the whole window.
        """
        rates: list[list[float]] = [[], [], []]
        for seconds in WINDOWS_S:
            slot = self._sample_before(now_us - seconds * SECOND_US)
            elapsed: i64 = now_us - self._times[slot]
            span = max(elapsed, seconds * SECOND_US) / SECOND_US
            for which, count in enumerate(counts):
                rates[which].append((count - self._counts[3 * slot + which]) / span)
        return [(each[0], each[1], each[2]) for each in rates]

    def _sample_before(self, time_us: i64) -> i64:
        """Return the slot of the latest sample at or before a time, otherwise of the oldest one."""
        number = self._next - 1
        oldest = max(self._next - _SAMPLES, 0)
        while number > oldest and self._times[number % _SAMPLES] > time_us:
            number -= 1
        return number % _SAMPLES
