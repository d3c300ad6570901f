"""Reading of sockets: one buffer for all, and a share of each turn of the loop.

A flooding client has megabytes in its socket. Read to its end it would take the loop for a tenth
of a second, in which no acknowledgement is read and nothing is delivered. So a socket brings in one
piece in a turn, a smaller one the more of them have as much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from headrace_broker.model.limits import READ_BYTES_MAX, READ_BYTES_MIN, READ_TURN_BYTES


@final
class Pace:
    """Shared state of a listener's sockets; all are on one loop."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        # the buffer; what is in it is taken out before anything else is read
        self.view = memoryview(bytearray(READ_BYTES_MAX))
        self.piece: i64 = READ_BYTES_MAX  # bytes that a socket may bring in during one turn now
        self._call_soon = call_soon  # has a function called in the next turn of the loop
        self._waiting: list[Callable[[], None]] = []

    def wait(self, read_on: Callable[[], None]) -> None:
        """Resume reading a socket in the next turn."""
        if not self._waiting:
            self._call_soon(self._turn)
        self._waiting.append(read_on)

    def _turn(self) -> None:
        waiting, self._waiting = self._waiting, []
        self.piece = min(max(READ_TURN_BYTES // len(waiting), READ_BYTES_MIN), READ_BYTES_MAX)
        for read_on in waiting:
            read_on()
