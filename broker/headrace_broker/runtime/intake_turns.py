"""Gives each turn of the event loop its budget of publishes, and serves the gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from headrace_broker.flow.gate import Bell, Gate
from headrace_broker.flow.intake import Intake


@final
class IntakeTurns(Bell):
    """Serves gates in turns of the loop of their own.

    Args:
        call_soon: has a function called in the next turn of the loop.
        clock_us: the monotonic clock in microseconds.

    Attributes:
        intake: the node's; set before anybody rings.
    """

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock_us: Callable[[], int]
    ) -> None:
        self.intake: Intake | None = None
        self._call_soon = call_soon
        self._clock_us = clock_us
        self._rung: dict[Gate, None] = {}
        self._queues_first = False
        self._follows = False  # the turn that is called for follows the one before at once
        self._began_us: i64 = 0
        self._asked_us: i64 = 0
        self._turns_us: i64 = 0
        self._turn_count: i64 = 0

    def ring(self, gate: Gate) -> None:
        """Have a gate served in the next turn."""
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
        rung, self._rung = self._rung, {}
        rung.pop(intake.gate, None)
        intake.begin_turn()
        if intake.shares.due:
            intake.shares.look()
        self._queues_first = not self._queues_first
        if not self._queues_first:
            intake.gate.serve(intake.octets_left)
        for gate in rung:
            if intake.gate.room:
                gate.serve(intake.octets_left)
            else:
                self.ring(gate)  # it goes on in the next turn, for it has rung and was not heard
        if self._queues_first and intake.gate.room:
            intake.gate.serve(intake.octets_left)
        self._follows = bool(self._rung)

    def take_turn_us(self) -> int:
        """Return the mean length of turns since the last call, 0 where there was none."""
        count = self._turn_count
        total = self._turns_us
        self._turn_count = 0
        self._turns_us = 0
        return int(total // count) if count > 0 else 0

    def _measure(self) -> None:
        now = self._clock_us()
        if self._follows:
            self._turns_us += now - self._began_us
        else:  # it was asked for some time during the turn before: in the middle, on average
            self._turns_us += 2 * (now - self._asked_us)
        self._turn_count += 1
        self._began_us = now
