"""What this node's publishers have handed to one queue and what the queue has not applied."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.gate import Bell, Gate
from headrace_broker.flow.intake import Intake
from headrace_broker.model.flow import LIMIT_QUEUE
from headrace_broker.model.limits import LEADER_PENDING_OCTETS


@final
class Pending:
    """Octets under way to one queue, and the gate that stops its publishers.

    A queue's leader refuses what is far more than it can work off, and refused commands come again
    after a while. So that it never comes to that, each node takes its part of what a leader takes.

    Args:
        group: the queue's.
        limits: of the node.
        intake: of the node.
        nodes: how many may publish to the queue, 1 or more.
        bell: rung for the gate.

    Attributes:
        octets: under way.
        gate: closed where another batch like the last would be too much, open again from half.
        users: sessions that may add to it.
    """

    def __init__(
        self, group: int, limits: FlowLimits, intake: Intake, nodes: int, bell: Bell | None
    ) -> None:
        self.octets: i64 = 0
        self.users = 0
        self.gate = Gate(LIMIT_QUEUE, group, bell)
        self._limits = limits
        self._intake = intake
        self._octets_max: i64 = LEADER_PENDING_OCTETS // nodes

    def add(self, octets: i64) -> None:
        """So many were handed over."""
        self.octets += octets
        self._intake.add_pending(octets)
        gate = self.gate
        if gate.room:
            if self.octets + octets > self.bound():
                gate.set_room(False)
        elif self.octets > self._most() // 2 * 3:
            gate.overdrawn = True

    def done(self, octets: i64) -> None:
        """So many are applied, or were refused or dropped."""
        assert octets <= self.octets, "done twice"
        self.octets -= octets
        self._intake.pending_done(octets)
        self.look()

    def look(self) -> None:
        """Open the gate if that may be, or close it; also called when limits have changed."""
        gate = self.gate
        if gate.room:
            if self.octets > self._most():
                gate.set_room(False)
        elif self.octets <= self.bound() // 2:
            gate.overdrawn = False
            gate.set_room(True)

    def bound(self) -> i64:
        """Return how many octets may be under way: at most as many as others could still add.

        So queues that take nothing, however many there are, never use up what the node may have
        pending, and those that do take something go on.
        """
        return min(self._most(), max(self._intake.pending_left(), 0))

    def _most(self) -> i64:
        limits = self._limits
        return min(limits.scaled(limits.queue_octets), self._octets_max)
