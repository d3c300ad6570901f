"""Gives each turn of the event loop its budget of publishes, and serves the gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from headrace_broker.flow.gate import Bell, Gate
from headrace_broker.flow.intake import Intake


@final
class IntakeTurns(Bell):
    """Serves gates in turns of the loop of their own.

    Args:
        call_soon: has a function called in the next turn of the loop.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.intake: Intake | None = None
        self._call_soon = call_soon
        self._rung: dict[Gate, None] = {}
        self._queues_first = False

    def ring(self, gate: Gate) -> None:
        """Have a gate served in the next turn."""
        if not self._rung:
            self._call_soon(self.turn)
        self._rung[gate] = None

    def turn(self) -> None:
        """Begin a new budget and let those pass who wait.

        Who waits at a queue's gate needs room at the node's as well, and the other way round: one
        is served first in every other turn, so that neither takes all of the budget for ever.
        """
        intake = self.intake
        assert intake is not None
        rung, self._rung = self._rung, {}
        rung.pop(intake.gate, None)
        intake.begin_turn()
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
