"""So many rows a second, and no more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_PARTS_A_SECOND: Final = 10  # in which rows go, so that brokers see no bursts


class Pacer:
    """Lets rows go at a rate; one that was late does not make up for it."""

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate  # rows a second; 0 for any
        self._clock = clock  # seconds
        self._sleep = sleep  # for seconds
        self._next = clock()

    def parts(self, rows: Sequence[T]) -> Iterator[Sequence[T]]:
        """Give rows back in parts, each when it may go."""
        if not self._rate:
            yield rows
            return
        size = max(int(self._rate / _PARTS_A_SECOND), 1)
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            now = self._clock()
            if self._next > now:
                self._sleep(self._next - now)
            self._next = max(self._next, now) + len(part) / self._rate
            yield part
