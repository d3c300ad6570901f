"""Watch on inputs that keep the loop for long; it names their clients."""

from __future__ import annotations

import logging
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.model.limits import LOOP_HELD_LOG_SECONDS

_LOG: Final = logging.getLogger("headrace.node")


@final
class LoopWatch:
    """Counts inputs, and steps of calls, that have kept the loop past LOOP_HELD_US."""

    def __init__(self) -> None:
        self.held: i64 = 0  # how many there were
        self._told: i64 = 0  # how many of them were there at the last log line
        self._next_us: i64 = 0  # when there may be another one

    def note(self, name: str, user: str, held_us: i64, now_us: i64) -> None:
        """Count an input, and name its client unless one was named a moment ago.

        Args:
            name: the connection, or the call and its connection.
            user: whose it is, "" where nobody has logged in.
            held_us: for how long it kept the loop.
            now_us: the time, from an unknown beginning.
        """
        self.held += 1
        if now_us < self._next_us:
            return
        _LOG.warning(
            "%s of user '%s' has kept this node's loop for %d ms with one input, or one step of a "
            "call; other clients waited; %d did so since the last such line",
            name,
            user,
            held_us // 1000,
            self.held - self._told,
        )
        self._told = self.held
        self._next_us = now_us + LOOP_HELD_LOG_SECONDS * 1_000_000
