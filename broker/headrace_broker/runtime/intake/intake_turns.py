"""Gives each turn of the event loop its budget of publishes, and serves the gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.flow.gate import Gate, GateScheduler
from headrace_broker.flow.intake import Intake

TURN_US_COUNTED: Final = 10_000_000  # of one turn; a process that was stopped says nothing


@final
class IntakeTurns(GateScheduler):
    """Serves gates in turns of the loop of their own."""

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock_us: Callable[[], int]
    ) -> None:
        self.intake: Intake | None = None  # the node's; set before anybody rings
        self._call_soon = call_soon  # has a function called in the next turn of the loop
        # the processor time of the loop's thread in microseconds. A turn that is long because
        # others have the processor does not become shorter by passing on less.
        self._clock_us = clock_us
        self._rung: dict[Gate, None] = {}
        self._parked: dict[Gate, None] = {}  # have rung, and too much is pending: so nobody passes
        self._queues_first = False
        self._follows = False  # the turn that is called for follows the one before at once
        self._began_us: i64 = 0
        self._asked_us: i64 = 0
        self._turns_us: i64 = 0
        self._squares: i64 = 0

    def ring(self, gate: Gate) -> None:
        """Serve a gate in the next turn."""
        if not self._rung:
            self._call_soon(self.turn)
            self._asked_us = self._clock_us()
        self._rung[gate] = None

    def turn(self) -> None:
        """Begin a new budget and let those pass who wait.

        Who waits at a queue's gate needs room at the node's as well, and the other way round: one
        is served first in every other turn, so that neither takes all of the budget for ever.
        """
        intake = self.intake
        assert intake is not None
        self._measure()
        rung, self._rung = self._parked | self._rung, {}
        self._parked = {}
        rung.pop(intake.gate, None)
        intake.begin_turn()
        if intake.shares.due:
            intake.shares.poll()
        self._queues_first = not self._queues_first
        if not self._queues_first:
            intake.gate.serve(intake.bytes_left)
        for gate in rung:
            if intake.gate.room:
                gate.serve(intake.bytes_left)
            elif intake.full:
                self._parked[gate] = None  # until the intake rings, for that is over
            else:
                self.ring(gate)  # it goes on in the next turn, for it has rung and was not heard
        if self._queues_first:
            intake.gate.serve(intake.bytes_left)  # without room that only takes note of its ring
        self._follows = bool(self._rung)

    def take_turn_us(self) -> int:
        """Return how long the turns since the last call were, 0 where there was none.

        It is the length of the turn that somebody meets who comes at any time: long ones count for
        more.
        """
        total = self._turns_us
        squares = self._squares
        self._turns_us = 0
        self._squares = 0
        return int(squares // total) if total > 0 else 0

    def _measure(self) -> None:
        now = self._clock_us()
        # One that does not follow was asked for during the turn before: in the middle, on average.
        length = now - self._began_us if self._follows else 2 * (now - self._asked_us)
        length = min(length, TURN_US_COUNTED)
        self._turns_us += length
        self._squares += length * length
        self._began_us = now
