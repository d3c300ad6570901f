"""Publishes under way to each queue that this node's sessions publish to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.gate import GateScheduler
from headrace_broker.flow.intake import Intake
from headrace_broker.flow.pending import Pending


@final
class QueueGates:
    """One `Pending` per queue with sessions on this node."""

    def __init__(
        self, limits: FlowLimits, intake: Intake, bell: GateScheduler | None = None
    ) -> None:
        self.by_group: dict[int, Pending] = {}  # those in use
        self.nodes = 1  # how many nodes may publish to a queue
        self._limits = limits
        self._intake = intake
        self._bell = bell
        self._bounded: dict[int, Pending] = {}  # whose leaders say how much they let in

    def enter(self, group: int) -> Pending:
        """Return a queue's, for one session more."""
        pending = self.by_group.get(group)
        if pending is None:
            pending = Pending(group, self._limits, self._intake, self.nodes, self._bell)
            self.by_group[group] = pending
        pending.users += 1
        return pending

    def leave(self, group: int) -> None:
        """A session has ended, and so has all that it had under way."""
        pending = self.by_group[group]
        pending.users -= 1
        if pending.users == 0:
            del self.by_group[group]
            self._bounded.pop(group, None)

    def receive(self, group: int, outflow: int, now_us: int) -> None:
        """A queue's leader lets in so many messages a second from here, 0 for any number."""
        pending = self.by_group.get(group)
        if pending is not None:
            pending.receive(outflow, now_us)
            self._bounded[group] = pending

    def claims(self, groups: Iterable[int]) -> list[int]:
        """Return a group, the weight of those who wait for it, ..., where that is more than 1."""
        rows: list[int] = []
        for group in groups:
            pending = self._bounded.get(group)
            if pending is not None and pending.claim > 1:
                rows += (group, int(pending.claim))
        return rows

    def go_on(self, now_us: int) -> None:
        """Grant what the time has brought, where leaders bound that; called ten times a second."""
        for group, pending in list(self._bounded.items()):
            if not pending.go_on(now_us):
                del self._bounded[group]

    def poll(self) -> None:
        """Make every queue compare with limits that have changed."""
        for pending in list(self.by_group.values()):
            pending.poll()
