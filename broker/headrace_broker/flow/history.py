"""Figures over the last hour: every five seconds for ten minutes, every minute for the rest."""

from __future__ import annotations

from array import array
from typing import Final, final

from mypy_extensions import i64

FINE_MS: Final = 5_000  # between samples of the finer series; RabbitMQ's default
COARSE_MS: Final = 60_000
_FINE_SAMPLES: Final = 122  # ten minutes of them
_COARSE_SAMPLES: Final = 62  # an hour of them


@final
class Series:
    """A ring of samples of some integers each."""

    def __init__(self, width: i64, size: i64) -> None:
        self._width = width
        self._size = size  # how many samples are kept
        self._times = array("q", bytes(8 * int(size)))
        self._values = array("q", bytes(8 * int(size * width)))
        self._count: i64 = 0  # that were ever taken

    def add(self, values: tuple[int, ...], now_ms: i64) -> None:
        """Take a sample."""
        slot = self._count % self._size
        self._times[slot] = int(now_ms)
        first = slot * self._width
        for at, value in enumerate(values):
            self._values[first + at] = value
        self._count += 1

    def newest_ms(self) -> int:
        """Return when the newest sample was taken, 0 before the first."""
        return int(self._times[(self._count - 1) % self._size]) if self._count else 0

    def since(self, from_ms: i64) -> list[tuple[int, ...]]:
        """Return time and values of the samples from a time on, the oldest first."""
        found: list[tuple[int, ...]] = []
        kept = min(self._count, self._size)
        for number in range(int(self._count - kept), int(self._count)):
            slot = number % int(self._size)
            when = int(self._times[slot])
            if when >= from_ms:
                first = slot * int(self._width)
                found.append((when, *self._values[first : first + int(self._width)]))
        return found


@final
class History:
    """Some figures of a queue or a node over the last hour, in some 10 KiB for five of them."""

    def __init__(self, values: tuple[int, ...], now_ms: i64) -> None:
        self._fine = Series(len(values), _FINE_SAMPLES)
        self._coarse = Series(len(values), _COARSE_SAMPLES)
        self._values = values  # where the figures stood
        self.changed_ms: int = int(now_ms)
        self._fine.add(values, now_ms)
        self._coarse.add(values, now_ms)

    def sample(self, values: tuple[int, ...], now_ms: i64) -> None:
        """Note where the figures stand; every FINE_MS."""
        if values != self._values:
            self._values = values
            self.changed_ms = int(now_ms)
        self._fine.add(values, now_ms)
        if now_ms - self._coarse.newest_ms() >= COARSE_MS:
            self._coarse.add(values, now_ms)

    def is_over(self, now_ms: i64) -> bool:
        """Return whether nothing has changed for as long as samples are kept."""
        return now_ms - self.changed_ms > _COARSE_SAMPLES * COARSE_MS

    def last(self) -> list[tuple[int, ...]]:
        """Return time and values of the last two samples, or of the only one."""
        return self._fine.since(self._fine.newest_ms() - 2 * FINE_MS)[-2:]

    def samples(self, age_ms: i64, step_ms: i64) -> list[tuple[int, ...]]:
        """Return time and values up to an age, newest first, `step_ms` or more apart.

        Up to ten minutes there is one for every five seconds, beyond for every minute.
        """
        newest = self._fine.newest_ms()
        series = self._fine if age_ms <= _FINE_SAMPLES * FINE_MS else self._coarse
        found: list[tuple[int, ...]] = []
        before: int = 0
        for sample in reversed(series.since(newest - age_ms)):
            if not found or before - sample[0] >= step_ms - FINE_MS // 2:
                found.append(sample)
                before = sample[0]
        return found
