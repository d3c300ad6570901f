"""Turns of a node's sessions: to send settles that are not urgent, to copy, and to end.

Those settles are sent in the same turns. Sessions that end at once, since their connection is lost,
tell their queues so in turns one after the other: each is an entry of a queue's log, and may
give back what its consumers held. What is large is copied in turns as well.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, final

from headrace_broker.model.limits import CLOSES_AT_ONCE, SETTLE_GATHER_MS
from headrace_broker.runtime.contract.lane_port import Copying, Gathering

TURN_S: Final = SETTLE_GATHER_MS / 1000


@final
class SettleTurns:
    """One timer for all that gathers, and none while nothing does."""

    def __init__(self) -> None:
        self._waiting: dict[Gathering, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, gathering: Gathering) -> None:
        """End its time at the next turn, at most SETTLE_GATHER_MS from now."""
        self._waiting[gathering] = None
        if self._timer is None:
            loop = asyncio.get_running_loop()
            turn = loop.time() // TURN_S + 1
            self._timer = loop.call_at(turn * TURN_S, self._turn)

    def stop(self) -> None:
        """Cancel all pending flushes."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self) -> None:
        self._timer = None
        waiting = self._waiting
        self._waiting = {}
        loop = asyncio.get_running_loop()
        for gathering in waiting:
            loop.call_soon(gathering.time_is_up)  # what goes wrong with one is not the others'


@final
class CloseTurns:
    """Closing sessions: how many tell their queues in a turn of the loop."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._waiting: deque[Gathering] = deque()
        self._room = CLOSES_AT_ONCE
        self._asked = False
        self._call_soon = call_soon  # has a function called in the next turn of the loop

    def add(self, closing: Gathering) -> None:
        """End a session now, or in a later turn where many did so in this one."""
        self._waiting.append(closing)
        if not self._asked:
            self._asked = True
            self._call_soon(self._turn)
        self._send()

    def _turn(self) -> None:
        self._room = CLOSES_AT_ONCE
        self._asked = bool(self._waiting)
        if self._asked:
            self._call_soon(self._turn)
        self._send()

    def _send(self) -> None:
        while self._room > 0 and self._waiting:
            self._room -= 1
            self._waiting.popleft().send_close()


@final
class CopyTurns:
    """Scheduler of copies: one session copies a piece in each turn of the loop, all in turn."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._copying: deque[Copying] = deque()  # at most the sessions of the node
        self._call_soon = call_soon  # has a function called in the next turn of the loop

    def add(self, copying: Copying) -> None:
        """Call a session's `copy_some`, from the next turn on, until nothing is left."""
        self._copying.append(copying)
        if len(self._copying) == 1:
            self._call_soon(self._turn)

    def _turn(self) -> None:
        copying = self._copying[0]
        goes_on = False
        try:
            goes_on = copying.copy_some()
        finally:
            self._copying.popleft()
            if goes_on:
                self._copying.append(copying)
            if self._copying:
                self._call_soon(self._turn)
