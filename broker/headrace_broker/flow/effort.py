"""Budget of a connection for work other than publishes and acknowledgements in a turn.

A method costs a node about as much as 30 publishes, and some 2,000 of them fit into what one read
of a socket brings. So all connections together may cause a bounded number in a turn of the loop,
in equal parts; what is left waits for the next turn, and its socket is not read meanwhile.

A confirm takes several turns. So methods have few units in a turn that does little else, and more
in one that messages make long anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from headrace_broker.model.limits import (
    CONTROL_PARTS,
    CONTROL_TURN_UNITS,
    CONTROL_TURN_UNITS_MIN,
    METHOD_UNITS,
)


@final
class EffortTurns:
    """The turns of a node's loop, as far as methods are handled in them.

    Args:
        call_soon: has a function called in the next turn of the loop.
        clock_us: the processor time of the loop's thread in microseconds.

    Attributes:
        number: of the turn; counts up.
        units: what each connection may spend in this turn, at least one method's.
        call_units: the same of all calls, whose steps are turns by themselves.
        spent: in this turn, by all.
        exhausted: connections that have spent all of it in this turn.
        deferred: how often a connection had to wait with what it had left.
    """

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock_us: Callable[[], int]
    ) -> None:
        self.number: i64 = 0
        self.units: i64 = CONTROL_TURN_UNITS
        self.call_units: i64 = CONTROL_TURN_UNITS
        self.spent: i64 = 0
        self.exhausted: i64 = 0
        self.deferred: i64 = 0
        self._call_soon = call_soon
        self._clock_us = clock_us
        self._asked = False
        self._asked_us: i64 = 0
        self._sharers: i64 = 1

    def ask(self) -> None:
        """Begin another turn."""
        if not self._asked:
            self._asked = True
            self._asked_us = self._clock_us()
            self._call_soon(self._begin)

    def _begin(self) -> None:
        self._asked = False
        self.number += 1
        # Who has come to the end of what was read needs a turn to read on, and is back then.
        self._sharers = max(self.exhausted, self._sharers // 2, 1)
        self.units = max(self._turn_units() // self._sharers, METHOD_UNITS)
        self.call_units = max(CONTROL_TURN_UNITS // self._sharers, METHOD_UNITS)
        self.exhausted = 0
        self.spent = 0

    def _turn_units(self) -> i64:
        """Return what all connections may spend, by what else the last turn had to do."""
        others_us = self._clock_us() - self._asked_us - self.spent
        return min(max(others_us // CONTROL_PARTS, CONTROL_TURN_UNITS_MIN), CONTROL_TURN_UNITS)


@final
class Effort:
    """Rest of a connection's budget in this turn, or of that of all calls."""

    def __init__(self, turns: EffortTurns, of_calls: bool = False) -> None:
        self._turns = turns
        self._of_calls = of_calls
        self._number: i64 = -1
        self._left: i64 = 0

    def spend(self, units: i64) -> None:
        """Charge the cost of finished work."""
        turns = self._turns
        if self._number != turns.number:
            self._number = turns.number
            self._left = turns.call_units if self._of_calls else turns.units
            turns.ask()
        turns.spent += units
        before = self._left
        self._left = before - units
        if before > 0 and self._left <= 0:
            turns.exhausted += 1

    @property
    def is_spent(self) -> bool:
        """True if input has to wait for another turn."""
        return self._number == self._turns.number and self._left <= 0

    def defer(self) -> None:
        """Note that something has to wait."""
        self._turns.deferred += 1
