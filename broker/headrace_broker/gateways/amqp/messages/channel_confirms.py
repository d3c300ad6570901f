"""The confirms that answer a channel's publishes: basic.ack and basic.nack."""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.codecs.delivery_encoder import encode_ack, encode_nack
from headrace_broker.gateways.publishing.confirming import Confirms
from headrace_broker.runtime.contract.port import PendingConfirm
from headrace_broker.runtime.contract.traffic import ClientTraffic

_COMPACT_AFTER: Final = 1024  # answered tickets at the front of the list before it is cut


@final
class ChannelConfirms(Confirms):
    """The tickets of a channel in publish order.

    Attributes:
        channel: its number.
    """

    def __init__(self, channel: i64, traffic: ClientTraffic | None = None) -> None:
        super().__init__(traffic)
        self.channel = channel
        self._tickets: list[PendingConfirm] = []
        self._head: i64 = 0
        self._answered: i64 = 0  # tickets in the list, from the head on

    @property
    def outstanding_count(self) -> int:
        """Number of tickets that are not answered."""
        return len(self._tickets) - self._head - self._answered

    @override
    def issue(self, count: i64, queues: i64) -> PendingConfirm:
        ticket = super().issue(count, queues)
        self._tickets.append(ticket)
        return ticket

    @override
    def discard(self) -> None:
        super().discard()
        self._tickets = []
        self._head = 0
        self._answered = 0

    @override
    def emit(self, out: BytesWriter) -> None:
        """Answer what is done: the oldest in one acknowledgement, others behind a gap singly."""
        self._emit_oldest(out)
        for ticket in self._done:
            if not ticket.answered and self.answer(out, ticket):
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
                whole = self.answer(out, ticket)
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

    def _answer_front(self, ticket: PendingConfirm) -> list[int]:
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

    @override
    def answer_row(self, out: BytesWriter, ticket: PendingConfirm, first: i64, stop: i64) -> None:
        tag = first
        refused = ticket.refused
        while tag < stop:
            if refused is not None and tag in refused:
                encode_nack(out, self.channel, tag, False)
            else:
                encode_ack(out, self.channel, tag, False)
                self.traffic.confirm += 1
            tag += 1
