"""Intake of a node: publishes accepted in one turn of its loop, and publishes under way.

The node's bound (`node_buffer_bytes`) is in parts: PENDING_PART for what was handed to queues and
is not applied, and those of `flow.share` for what is not handed over yet. What is under way drains
by itself, so no part ever waits for one that waits for it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.gate import Gate, GateScheduler
from headrace_broker.flow.share import Reader, Share, Shares
from headrace_broker.flow.turn_budget import TurnBudget
from headrace_broker.model.flow import LIMIT_INTAKE

PENDING_PART: Final = 4  # a quarter of the node's bound is for what is pending at queues
KEPT_PART: Final = 4  # a quarter of that is for queues that have next to nothing pending


@final
class IntakeFigures:
    """Content of a node's publish buffers, and the number of waiting publishers."""

    def __init__(self) -> None:
        self.held = 0  # bytes of whole publishes that are held
        self.partial = 0  # bytes of publishes that have not arrived as a whole
        self.pending = 0  # bytes handed to queues and not applied
        self.bound = 0  # of the three together
        self.intake_messages = 0  # publishes that may be passed on in a turn of the loop now
        self.intake_bytes = 0  # the same in bytes
        self.waiting = 0  # channels that wait for the node's intake
        self.unread = 0  # connections whose sockets are not read for what is held
        self.large = 0  # connections in the middle of a large publish that goes on
        self.large_waiting = 0  # those that must wait until such a one is done


@final
class Intake:
    """A node's intake."""

    def __init__(self, limits: FlowLimits, bell: GateScheduler | None = None) -> None:
        self.gate = Gate(LIMIT_INTAKE, 0, bell)  # closed when the turn is spent or is too full
        self.shares = Shares(limits, self.gate, bell)  # what is held, by connection
        self.pending: i64 = 0  # bytes handed to queues and not applied, or dropped
        self.budget = TurnBudget(limits)  # of the turns to come
        self.messages_left: i64 = self.budget.messages()  # that may pass in this turn
        self.bytes_left: i64 = self.budget.byte_count()  # the same in bytes
        self.turns: i64 = 0  # how many were begun; one lasts until its budget is half spent
        self.passed: i64 = 0  # publishes that were passed on in those
        self.received: i64 = 0  # publishes that were ever passed on
        self.unroutable: i64 = 0  # those of them that no queue was bound for, returned or dropped
        self.returned: i64 = 0  # those that went back to their publishers
        self._messages: i64 = self.messages_left  # of this turn, when it began
        self._byte_count: i64 = self.bytes_left
        self._charged: i64 = 0  # of the turn's messages, those that are other work
        self._limits = limits
        self._bell = bell
        self.full = False  # too much is pending, and nobody passes until it is half of that
        self._turn_asked = False

    def open(self, reader: Reader) -> Share:
        """Give a connection its share."""
        return self.shares.open(reader)

    def has_room(self, byte_count: i64) -> bool:
        """Return whether the node may hold so many bytes more."""
        return self.shares.has_room(byte_count)

    def can_take(self, byte_count: i64) -> bool:
        """Return whether so much may be handed to queues whatever this turn's budget is."""
        return self.pending + byte_count <= self._pending_max()

    def take(self, messages: i64, byte_count: i64) -> None:
        """Publishes are passed on; spends the turn's budget."""
        self.received += messages
        self._spend(messages, byte_count)

    def charge(self, messages: i64) -> None:
        """Work of the gateway that is as long as so many publishes spends the turn's budget."""
        self._charged += messages
        self._spend(messages, 0)

    def _spend(self, messages: i64, byte_count: i64) -> None:
        self.messages_left -= messages
        self.bytes_left -= byte_count
        if self._turn_asked:
            if self.gate.room:
                self._look()
            return
        if self.messages_left < self._messages // 2 or self.bytes_left < self._byte_count // 2:
            self._ask_turn()
            self._look()

    def begin_turn(self) -> None:
        """A turn of the loop begins: there is a new budget."""
        budget = self.budget
        self._turn_asked = False
        self.turns += 1
        self.passed += self._messages - self.messages_left - self._charged
        self._charged = 0
        self._messages = budget.messages()
        self._byte_count = budget.byte_count()
        self.messages_left = self._messages
        self.bytes_left = self._byte_count
        self._look()

    def add_pending(self, byte_count: i64) -> None:
        """Bytes were handed to a queue."""
        self.pending += byte_count
        if not self.full and self.pending > self._pending_max():
            self.full = True
            self._look()

    def pending_done(self, byte_count: i64) -> None:
        """Bytes were applied by their queue, or dropped."""
        self.pending -= byte_count
        self._look_at_pending()

    def pending_left(self) -> i64:
        """Return how many more bytes may be pending, less the reserve for queues in need.

        A queue notes only after a batch that it was one too many. What is kept is for those
        batches, and for queues that have nothing under way.
        """
        most = self._pending_max()
        return most - most // KEPT_PART - self.pending

    def poll(self) -> None:
        """Compare with limits that have changed."""
        self._look_at_pending()
        self.shares.poll()

    def figures(self) -> IntakeFigures:
        """Return how things stand."""
        shares = self.shares
        limits = self._limits
        figures = IntakeFigures()
        figures.held = int(shares.held)
        figures.partial = int(shares.partial)
        figures.pending = int(self.pending)
        figures.bound = int(limits.scaled(limits.node_buffer_bytes))
        figures.intake_messages = int(self.budget.messages())
        figures.intake_bytes = int(self.budget.byte_count())
        figures.waiting = int(self.gate.waiting_count)
        figures.unread = shares.unread_count
        figures.large = shares.inside_count
        figures.large_waiting = shares.entering_count
        return figures

    def _pending_max(self) -> i64:
        return self._limits.scaled(self._limits.node_buffer_bytes) // PENDING_PART

    def _look_at_pending(self) -> None:
        if self.full and self.pending <= self._pending_max() // 2:
            self.full = False
            self._look()
            if self._bell is not None:
                self._bell.ring(self.gate)  # also for those who wait at queues

    def _look(self) -> None:
        room = not self.full and self.messages_left > 0 and self.bytes_left > 0
        if room != self.gate.room:
            self.gate.set_room(room)

    def _ask_turn(self) -> None:
        self._turn_asked = True
        if self._bell is not None:
            self._bell.ring(self.gate)
