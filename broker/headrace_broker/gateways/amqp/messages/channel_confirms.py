"""The confirms that answer a channel's publishes."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from headrace_broker.codecs.delivery_encoder import encode_ack, encode_nack
from headrace_broker.model.message import Publish
from headrace_broker.runtime.port import Ticket
from headrace_broker.runtime.traffic import ClientTraffic

_COMPACT_AFTER: Final = 1024  # answered tickets at the front of the list before it is cut


class Confirms:
    """The tickets of a channel in publish order, and which of them may be answered.

    Attributes:
        channel: its number.
        enabled: the channel is in confirm mode.
        queued: stands in the connection's list of those that `emit` at the end of the turn.
        traffic: of the channel; counts what is confirmed.
    """

    def __init__(self, channel: i64, traffic: ClientTraffic | None = None) -> None:
        self.channel = channel
        self.traffic = traffic if traffic is not None else ClientTraffic()
        self.enabled = False
        self.queued = False
        self._next: i64 = 1
        self._tickets: list[Ticket] = []
        self._head: i64 = 0
        self._done: list[Ticket] = []
        self._returned: list[Publish] = []
        self._answered: i64 = 0  # tickets in the list, from the head on
        self._withheld: dict[int, int] = {}  # tickets by queue group

    @property
    def outstanding_count(self) -> int:
        """Number of tickets that are not answered."""
        return len(self._tickets) - self._head - self._answered

    def withheld_by(self) -> int:
        """Return the group of the queue that has withheld confirms for longest, 0 for none."""
        return next(iter(self._withheld), 0)

    def issue(self, count: i64, queues: i64) -> Ticket:
        """Return the ticket of `count` publishes to `queues` queues; with none it is done."""
        ticket = Ticket(self._next, self._next + count - 1)
        ticket.pending = queues
        ticket.patient = True
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
                ticket.all_answered()
                if ticket.first > 0:
                    self._done.append(ticket)

    def refuse(self, tickets: list[Ticket]) -> None:
        """Take the answer of one queue for each of `tickets`: not all of it."""
        for ticket in tickets:
            ticket.takers -= 1
        self.settle(tickets)

    def withhold(self, group: int, tickets: list[Ticket]) -> None:
        """Take the answer of one queue for each of `tickets`: it withholds some of it."""
        self._withheld[group] = self._withheld.get(group, 0) + len(tickets)
        self.settle(tickets)

    def complete(self, group: int, tickets: list[Ticket], over: int) -> None:
        """A queue withholds less of `tickets`, and of `over` of them nothing any more."""
        left = self._withheld[group] - over
        if left > 0:
            self._withheld[group] = left
        else:
            del self._withheld[group]
        for ticket in tickets:
            if ticket.freed:
                self._done.append(ticket)

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
        self._answered = 0
        self._withheld = {}

    def emit(self, out: BytesWriter) -> None:
        """Answer what is done: the oldest in one stroke, what lies behind a gap singly."""
        self._emit_oldest(out)
        for ticket in self._done:
            if not ticket.answered and self._emit_singly(out, ticket):
                self._answered += 1
        self._done = []
        if self._answered > _COMPACT_AFTER and self._answered * 2 > len(self._tickets) - self._head:
            self._tickets = [each for each in self._tickets[self._head :] if not each.answered]
            self._head = 0
            self._answered = 0

    def _emit_oldest(self, out: BytesWriter) -> None:
        tickets = self._tickets
        size: i64 = len(tickets)
        head = self._head
        first: i64 = 0
        last: i64 = 0
        count: i64 = 0
        while head < size:
            ticket = tickets[head]
            if ticket.pending > 0:
                break
            whole = True
            if ticket.answered:
                self._answered -= 1
            elif ticket.refused is not None:
                self._emit_range(out, first, last)
                first = 0
                whole = self._emit_singly(out, ticket)
            else:
                whole = not ticket.held
                if whole and ticket.untold is None:
                    ticket.answered = True
                    first = ticket.first if first == 0 else first
                    last = ticket.last
                    count += last - ticket.first + 1
                else:
                    gone = self._answer_front(ticket)
                    if gone:
                        first = gone[0] if first == 0 else first
                        last = gone[len(gone) - 1] - 1
                        for row in range(0, len(gone), 2):
                            count += gone[row + 1] - gone[row]
            if not whole:
                break
            head += 1
        self._emit_range(out, first, last)
        self.traffic.confirm += count
        self._head = head
        if head == size:
            self._tickets = []
            self._head = 0
        elif head > _COMPACT_AFTER and head * 2 > size:
            del tickets[:head]
            self._head = 0

    def _answer_front(self, ticket: Ticket) -> list[int]:
        """Answer a ticket before which all is answered, up to what a queue withholds.

        Returns:
            Those that are answered by that, in rows.
        """
        untold = ticket.untold
        assert untold is not None, "it was withheld in part"
        end: i64 = min([numbers.first for numbers in ticket.holds or []], default=ticket.last + 1)
        gone = untold.remove(ticket.first, end)
        ticket.answered = not untold
        return gone

    def _emit_range(self, out: BytesWriter, first: i64, last: i64) -> None:
        """Confirm all up to `last`; everything before `first` (0: nothing) is answered."""
        if first > 0:
            encode_ack(out, self.channel, last, last > first)

    def _emit_singly(self, out: BytesWriter, ticket: Ticket) -> bool:
        """Answer one by one all of a ticket that no queue withholds and that is not answered.

        Returns:
            Whether that was all that was left.
        """
        untold = ticket.untold
        if untold is None:
            ticket.answered = True
            self._emit_row(out, ticket, ticket.first, ticket.last + 1)
            return True
        freed = ticket.freed
        ticket.freed = []
        for at in range(0, len(freed), 2):
            gone = untold.remove(freed[at], freed[at + 1])
            for row in range(0, len(gone), 2):
                self._emit_row(out, ticket, gone[row], gone[row + 1])
        ticket.answered = not untold
        return ticket.answered

    def _emit_row(self, out: BytesWriter, ticket: Ticket, first: i64, stop: i64) -> None:
        tag = first
        refused = ticket.refused
        while tag < stop:
            if refused is not None and tag in refused:
                encode_nack(out, self.channel, tag, False)
            else:
                encode_ack(out, self.channel, tag, False)
                self.traffic.confirm += 1
            tag += 1
