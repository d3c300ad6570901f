"""Keeps a publisher at its rate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

BURST_S_MAX: Final = 0.1  # seconds of its rate that a publisher may catch up at once


class Pace:
    """Lets so many through a second, evenly; 0 for as many as come."""

    def __init__(self, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1 / rate if rate else 0.0
        self._clock = clock  # seconds of a clock that never goes back
        self._next = clock()

    def delay(self) -> float:
        """Take the next turn; return how many seconds to wait for it."""
        if not self._interval:
            return 0.0
        now = self._clock()
        self._next = max(self._next, now - BURST_S_MAX) + self._interval
        return max(self._next - now, 0.0)

    async def wait(self) -> None:
        """Wait for the next turn."""
        delay = self.delay()
        if delay > 0:
            await asyncio.sleep(delay)
