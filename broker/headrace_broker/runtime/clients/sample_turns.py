"""Turns of the loop for a sample of very many rows."""

from __future__ import annotations

import asyncio
import time
from typing import final

from headrace_broker.model.limits import SAMPLE_PAUSE_S, SAMPLE_SPREAD_S, SAMPLE_TURN_ROWS


@final
class SampleTurns:
    """Spreads one sample over time: nobody waits for it, and messages wait for the loop.

    After SAMPLE_SPREAD_S pauses are as short as others' turns, so that the next sample is in time.
    """

    def __init__(self, pause_s: float = SAMPLE_PAUSE_S) -> None:
        self._pause_s = pause_s
        self._rows = 0  # since the last pause
        self._until = time.monotonic() + SAMPLE_SPREAD_S

    async def row(self) -> None:
        """Count a row, and pause after each SAMPLE_TURN_ROWS of them."""
        self._rows += 1
        if self._rows >= SAMPLE_TURN_ROWS:
            self._rows = 0
            await self.pause()

    async def pause(self) -> None:
        """Pause for the turns of others."""
        await asyncio.sleep(self._pause_s if time.monotonic() < self._until else 0)
