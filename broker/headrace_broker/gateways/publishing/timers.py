"""Several timers of a connection on the one that its shell has beside the heartbeat's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.gateways.publishing.shell import Shell
from headrace_broker.runtime.broker_port import Broker

TIMER_RATE: Final = 1  # look again whether a publish rate allows more
TIMER_TELL: Final = 2  # tell the client that it is held
TIMER_CLOSE: Final = 3  # look whether channels that are to close still move

_SECOND_US: Final = 1_000_000


@final
class Timers:
    """One timer of each kind."""

    def __init__(self, broker: Broker, shell: Shell) -> None:
        self._broker = broker
        self._shell = shell
        self._due: dict[int, tuple[int, Callable[[], None]]] = {}
        self._set_for: i64 = 0

    def set(self, kind: int, seconds: float, callback: Callable[[], None]) -> None:
        """Call back once in so many seconds; replaces the timer of this kind."""
        due = self._broker.clock_us() + int(seconds * _SECOND_US)
        self._due[kind] = (int(due), callback)
        self._arm()

    def is_set(self, kind: int) -> bool:
        """Return whether a timer of this kind will fire."""
        return kind in self._due

    def cancel(self, kind: int) -> None:
        """Forget a timer; one that is not set is ignored."""
        self._due.pop(kind, None)

    def clear(self) -> None:
        """Forget all timers."""
        self._due.clear()

    def _arm(self) -> None:
        """Schedule a call at the earliest; one that comes too early finds nothing due."""
        if self._due:
            first = min([due for due, _ in self._due.values()])
            wait = max(first - int(self._broker.clock_us()), 0)
            self._set_for = first
            self._shell.call_later(wait / _SECOND_US, self._fire)

    def _fire(self) -> None:
        """Call back everyone who is due; the awaited time has come, whatever the clock says."""
        now = max(self._broker.clock_us(), self._set_for)
        for kind, (due, callback) in list(self._due.items()):
            if due <= now and self._due.get(kind) == (due, callback):
                del self._due[kind]
                callback()
        self._arm()
