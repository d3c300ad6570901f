"""The confirms that answer a channel's publishes."""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from headrace_broker.codecs.delivery_encoder import encode_ack, encode_nack
from headrace_broker.model.message import Publish
from headrace_broker.runtime.port import Ticket

_COMPACT_AFTER: Final = 1024  # answered tickets at the front of the list before it is cut


@final
class Confirms:
    """The tickets of a channel in publish order, and which of them may be answered.

    Attributes:
        channel: its number.
        enabled: the channel is in confirm mode.
        queued: stands in the connection's list of those that `emit` at the end of the turn.
    """

    def __init__(self, channel: i64) -> None:
        self.channel = channel
        self.enabled = False
        self.queued = False
        self._next: i64 = 1
        self._tickets: list[Ticket] = []
        self._head: i64 = 0
        self._done: list[Ticket] = []
        self._returned: list[Publish] = []

    @property
    def outstanding_count(self) -> int:
        """Number of tickets that are not answered, or stand behind one that is not."""
        return len(self._tickets) - self._head

    def issue(self, count: i64, queues: i64) -> Ticket:
        """Return the ticket of `count` publishes to `queues` queues; with none it is done."""
        ticket = Ticket(self._next, self._next + count - 1)
        ticket.pending = queues
        self._next += count
        self._tickets.append(ticket)
        if queues == 0:
            self._done.append(ticket)
        return ticket

    def issue_immediate(self, publish: Publish, queues: i64) -> Ticket:
        """Return the ticket of a publish that comes back when no queue takes it, in any mode."""
        ticket = self.issue(1, queues) if self.enabled else Ticket(0, 0)
        ticket.pending = queues
        ticket.immediate = publish
        ticket.takers = queues
        return ticket

    def settle(self, tickets: list[Ticket]) -> None:
        """Take the answer of one queue for each of `tickets`."""
        for ticket in tickets:
            ticket.pending -= 1
            if ticket.pending == 0:
                if ticket.immediate is not None:
                    self._end_immediate(ticket, ticket.immediate)
                if ticket.first > 0:
                    self._done.append(ticket)

    def refuse(self, tickets: list[Ticket]) -> None:
        """Take the answer of one queue for each of `tickets`: not all of it."""
        for ticket in tickets:
            ticket.takers -= 1
        self.settle(tickets)

    def _end_immediate(self, ticket: Ticket, publish: Publish) -> None:
        """Confirm it whoever refused it: one queue has it, or it comes back."""
        ticket.refused = None
        if ticket.takers == 0:
            self._returned.append(publish)

    def take_returned(self) -> list[Publish]:
        """Return the immediate publishes that no queue took: they go back before their confirm."""
        returned = self._returned
        if returned:
            self._returned = []
        return returned

    def discard(self) -> None:
        """Forget everything: the channel closes."""
        self._returned = []
        self._done = []
        self._tickets = []
        self._head = 0

    def emit(self, out: BytesWriter) -> None:
        """Answer what is done: the oldest in one stroke, what lies behind a gap singly."""
        self._emit_oldest(out)
        for ticket in self._done:
            if not ticket.answered:
                self._emit_single(out, ticket)
        self._done = []

    def _emit_oldest(self, out: BytesWriter) -> None:
        tickets = self._tickets
        size: i64 = len(tickets)
        head = self._head
        first: i64 = 0
        last: i64 = 0
        while head < size:
            ticket = tickets[head]
            if ticket.pending > 0:
                break
            head += 1
            if ticket.answered:
                continue
            if ticket.refused is not None:
                self._emit_range(out, first, last)
                first = 0
                self._emit_single(out, ticket)
                continue
            ticket.answered = True
            if first == 0:
                first = ticket.first
            last = ticket.last
        self._emit_range(out, first, last)
        self._head = head
        if head == size:
            self._tickets = []
            self._head = 0
        elif head > _COMPACT_AFTER and head * 2 > size:
            del tickets[:head]
            self._head = 0

    def _emit_range(self, out: BytesWriter, first: i64, last: i64) -> None:
        """Confirm all up to `last`; everything before `first` (0: nothing) is answered."""
        if first > 0:
            encode_ack(out, self.channel, last, last > first)

    def _emit_single(self, out: BytesWriter, ticket: Ticket) -> None:
        ticket.answered = True
        tag = ticket.first
        last = ticket.last
        refused = ticket.refused
        while tag <= last:
            if refused is not None and tag in refused:
                encode_nack(out, self.channel, tag, False)
            else:
                encode_ack(out, self.channel, tag, False)
            tag += 1
