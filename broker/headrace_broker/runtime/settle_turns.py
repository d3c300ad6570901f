"""When the sessions of a node send settles that nobody is in a hurry for: all in the same turns."""

from __future__ import annotations

import asyncio
from typing import Final, final

from headrace_broker.model.limits import SETTLE_GATHER_MS
from headrace_broker.runtime.lane_port import Gathering

TURN_S: Final = SETTLE_GATHER_MS / 1000


@final
class SettleTurns:
    """One timer for all that gathers, and none while nothing does."""

    def __init__(self) -> None:
        self._waiting: dict[Gathering, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, gathering: Gathering) -> None:
        """Have its time be up at the next turn, at most SETTLE_GATHER_MS from now."""
        self._waiting[gathering] = None
        if self._timer is None:
            loop = asyncio.get_running_loop()
            turn = loop.time() // TURN_S + 1
            self._timer = loop.call_at(turn * TURN_S, self._turn)

    def stop(self) -> None:
        """Have nobody's time be up any more."""
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
