"""Turns of queues at reading the log for answers, a few at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import final


@final
class ReadTurns:
    """Turns of those who hold entries in memory until all that they need are read.

    Args:
        places: how many may at a time.

    Attributes:
        taken: places that are taken.
    """

    def __init__(self, places: int) -> None:
        self.taken = 0
        self._places = places
        self._waiting: dict[int, deque[asyncio.Future[None]]] = {}  # by group, in rotation

    @property
    def waiting_count(self) -> int:
        """Number of those who wait, and of some who have ceased to."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, group: int) -> AsyncIterator[None]:
        """Hold a place, once it is the turn of that group's readers."""
        if self.taken < self._places:
            self.taken += 1
        else:
            await self._wait(group)
        try:
            yield
        finally:
            self._release()

    async def _wait(self, group: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # it was given the place in the same moment
            raise

    def _release(self) -> None:
        """Give the place to the next who still waits; its queue is last in the rotation then."""
        while self._waiting:
            group = next(iter(self._waiting))
            waiting = self._waiting.pop(group)
            turn = waiting.popleft()
            if waiting:
                self._waiting[group] = waiting
            if not turn.done():
                turn.set_result(None)
                return
        self.taken -= 1
