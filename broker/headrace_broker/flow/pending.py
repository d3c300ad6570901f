"""Unapplied publishes of this node's publishers at one queue."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.gate import Gate, GateScheduler
from headrace_broker.flow.intake import Intake
from headrace_broker.model.flow import LIMIT_OUTFLOW, LIMIT_QUEUE
from headrace_broker.model.limits import LEADER_PENDING_BYTES, OUTFLOW_BURST_US, OUTFLOW_LEASE_US

SECOND_US: Final = 1_000_000


@final
class Pending:
    """Bytes under way to one queue, and the gate that stops its publishers.

    A queue's leader refuses what is far more than it can work off, and refused commands come again
    after a while. So that it never comes to that, each node takes its part of what a leader takes.

    While the queue is deep, its leader says how many messages a second this node may let in.
    That counts until it says something else, or nothing for a while.

    Args:
        group: the queue's.
        nodes: how many may publish to the queue, 1 or more.
        bell: rung for the gate.
    """

    def __init__(
        self, group: int, limits: FlowLimits, intake: Intake, nodes: int, bell: GateScheduler | None
    ) -> None:
        self.byte_count: i64 = 0  # under way
        self.users = 0  # sessions that may add to it
        self.outflow: i64 = 0  # messages a second that the leader lets in from here, 0 for any
        self.claim: i64 = 1  # weight of publishers here that want more than that, 1 or more
        # closed where another batch like the last would be too much, open again from half; and
        # while as many messages have come as the queue's leader lets in
        self.gate = Gate(LIMIT_QUEUE, group, bell)
        self._full = False
        self._left: i64 = 0  # of what the leader lets in, in millionths of a message
        self._counted_us: i64 = 0  # until when that is reckoned
        self._heard_us: i64 = 0
        self._limits = limits
        self._intake = intake
        self._bytes_max: i64 = LEADER_PENDING_BYTES // nodes

    def add(self, messages: i64, byte_count: i64) -> None:
        """So many were handed over."""
        self.byte_count += byte_count
        self._intake.add_pending(byte_count)
        self._left -= messages * SECOND_US
        if not self._full:
            self._full = self.byte_count + byte_count > self.bound()
        elif self.byte_count > self._most() // 2 * 3:
            self.gate.overdrawn = True
        self._judge()

    def done(self, byte_count: i64) -> None:
        """So many are applied, or were refused or dropped."""
        assert byte_count <= self.byte_count, "done twice"
        self.byte_count -= byte_count
        self._intake.pending_done(byte_count)
        self.poll()

    def poll(self) -> None:
        """Open the gate if that may be, or close it; also called when limits have changed."""
        if not self._full:
            self._full = self.byte_count > self._most()
        elif self.byte_count <= self.bound() // 2:
            self._full = False
            self.gate.overdrawn = False
        self._judge()

    def receive(self, outflow: i64, now_us: i64) -> None:
        """The queue's leader lets in so many messages a second from here, 0 for any number."""
        if self.outflow == 0:
            self._left = 0
            self._counted_us = now_us
            self.claim = 1
        self.outflow = outflow
        self._heard_us = now_us
        self.go_on(now_us)

    def go_on(self, now_us: i64) -> bool:
        """Grant what the time has brought; return whether the leader's word still counts."""
        if now_us - self._heard_us > OUTFLOW_LEASE_US:
            self.outflow = 0
        rate = self.outflow
        if rate > 0:
            # Who has just been let pass stands here again soon, so it falls by and by; but soon, or
            # one who is left alone would wait for those who have gone.
            self.claim = max(self.gate.waiting_weight(), self.claim * 3 // 4, 1)
            brought = rate * min(now_us - self._counted_us, OUTFLOW_BURST_US)
            self._left = min(self._left + brought, rate * OUTFLOW_BURST_US)
            self._counted_us = now_us
        self._judge()
        return rate > 0

    def _judge(self) -> None:
        gate = self.gate
        spent = self.outflow > 0 and self._left <= 0
        room = not self._full and not spent
        if not room:
            gate.limit = LIMIT_QUEUE if self._full else LIMIT_OUTFLOW
        if room != gate.room:
            gate.set_room(room)

    def bound(self) -> i64:
        """Return how many bytes may be under way: at most as many as others could still add.

        So queues that take nothing, however many there are, never use up what the node may have
        pending, and those that do take something go on.
        """
        return min(self._most(), max(self._intake.pending_left(), 0))

    def _most(self) -> i64:
        limits = self._limits
        return min(limits.scaled(limits.queue_pending_bytes), self._bytes_max)
