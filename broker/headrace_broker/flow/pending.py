"""What this node's publishers have handed to one queue and what the queue has not applied."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.gate import Bell, Gate
from headrace_broker.flow.intake import Intake
from headrace_broker.model.flow import LIMIT_QUEUE


@final
class Pending:
    """Octets under way to one queue, and the gate that stops its publishers.

    Attributes:
        octets: under way.
        gate: closed above `queue_octets`, open again from half of that.
        users: sessions that may add to it.
    """

    def __init__(self, group: int, limits: FlowLimits, intake: Intake, bell: Bell | None) -> None:
        self.octets: i64 = 0
        self.users = 0
        self.gate = Gate(LIMIT_QUEUE, group, bell)
        self._limits = limits
        self._intake = intake

    def add(self, octets: i64) -> None:
        """So many were handed over."""
        self.octets += octets
        self._intake.add_pending(octets)
        if self.gate.room and self.octets > self._limits.scaled(self._limits.queue_octets):
            self.gate.set_room(False)

    def done(self, octets: i64) -> None:
        """So many are applied, or were refused or dropped."""
        assert octets <= self.octets, "done twice"
        self.octets -= octets
        self._intake.pending_done(octets)
        self.look()

    def look(self) -> None:
        """Open the gate if that may be; also called when limits have changed."""
        if not self.gate.room:
            limits = self._limits
            if self.octets <= limits.scaled(limits.queue_octets) // 2:
                self.gate.set_room(True)
