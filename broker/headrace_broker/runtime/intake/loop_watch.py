"""Names the clients whose input keeps the loop for long."""

from __future__ import annotations

import logging
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.model.limits import LOOP_HELD_LOG_SECONDS
from headrace_broker.runtime.connection_info import ConnectionInfo

_LOG: Final = logging.getLogger(__name__)


@final
class LoopWatch:
    """Counts inputs that have kept the loop past LOOP_HELD_US.

    Attributes:
        held: how many there were.
    """

    def __init__(self) -> None:
        self.held: i64 = 0
        self._told: i64 = 0  # how many of them were there at the last log line
        self._next_us: i64 = 0  # when there may be another one

    def note(self, info: ConnectionInfo, held_us: i64, now_us: i64) -> None:
        """Count an input, and name its connection unless one was named a moment ago.

        Args:
            info: the connection.
            held_us: for how long it kept the loop.
            now_us: the time, from an unknown beginning.
        """
        self.held += 1
        if now_us < self._next_us:
            return
        _LOG.warning(
            "%s of user '%s' has kept this node's loop for %d ms with one input; other clients "
            "waited; %d inputs did so since the last such line",
            info.name,
            info.user,
            held_us // 1000,
            self.held - self._told,
        )
        self._told = self.held
        self._next_us = now_us + LOOP_HELD_LOG_SECONDS * 1_000_000
