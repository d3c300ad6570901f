"""The confirms that answer a publisher's batches."""

from __future__ import annotations

from librt.strings import BytesWriter
from mypy_extensions import i64

from headrace_broker.model.message import Publish
from headrace_broker.runtime.contract.port import PendingConfirm
from headrace_broker.runtime.contract.traffic import ClientTraffic


class Confirms:
    """The tickets of a publisher, and which of them may be answered; protocols answer them.

    Attributes:
        enabled: the publisher wants confirms.
        queued: stands in the connection's list of those that `emit` at the end of the turn.
        traffic: of the publisher; counts what is confirmed.
    """

    def __init__(self, traffic: ClientTraffic | None = None) -> None:
        self.traffic = traffic if traffic is not None else ClientTraffic()
        self.enabled = False
        self.queued = False
        self._next: i64 = 1
        self._done: list[PendingConfirm] = []
        self._returned: list[Publish] = []
        self._withheld: dict[int, int] = {}  # tickets by queue group

    def withheld_by(self) -> int:
        """Return the group of the queue that has withheld confirms for longest, 0 for none."""
        return next(iter(self._withheld), 0)

    def issue(self, count: i64, queues: i64) -> PendingConfirm:
        """Return the ticket of `count` publishes to `queues` queues; with none it is done."""
        ticket = PendingConfirm(self._next, self._next + count - 1)
        ticket.pending = queues
        ticket.patient = True
        self._next += count
        if queues == 0:
            self._done.append(ticket)
        return ticket

    def issue_immediate(self, publish: Publish, queues: i64) -> PendingConfirm:
        """Return the ticket of a publish that comes back when no queue takes it, in any mode."""
        ticket = self.issue(1, queues) if self.enabled else PendingConfirm(0, 0)
        ticket.pending = queues
        ticket.immediate = publish
        ticket.takers = queues
        return ticket

    def settle(self, tickets: list[PendingConfirm]) -> None:
        """Take the answer of one queue for each of `tickets`."""
        for ticket in tickets:
            ticket.pending -= 1
            if ticket.pending == 0:
                if ticket.immediate is not None:
                    self._end_immediate(ticket, ticket.immediate)
                ticket.all_answered()
                if ticket.first > 0:
                    self._done.append(ticket)

    def refuse(self, tickets: list[PendingConfirm]) -> None:
        """Take the answer of one queue for each of `tickets`: not all of it."""
        for ticket in tickets:
            ticket.takers -= 1
        self.settle(tickets)

    def withhold(self, group: int, tickets: list[PendingConfirm]) -> None:
        """Take the answer of one queue for each of `tickets`: it withholds some of it."""
        self._withheld[group] = self._withheld.get(group, 0) + len(tickets)
        self.settle(tickets)

    def complete(self, group: int, tickets: list[PendingConfirm], over: int) -> None:
        """A queue withholds less of `tickets`, and of `over` of them nothing any more."""
        left = self._withheld[group] - over
        if left > 0:
            self._withheld[group] = left
        else:
            del self._withheld[group]
        for ticket in tickets:
            if ticket.freed:
                self._done.append(ticket)

    def _end_immediate(self, ticket: PendingConfirm, publish: Publish) -> None:
        """Confirm it, whatever refused it: one queue has it, or it is returned."""
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
        """Forget everything: the publisher ends."""
        self._returned = []
        self._done = []
        self._withheld = {}

    def emit(self, out: BytesWriter) -> None:
        """Answer finished publishes, appending the output to `out`."""
        raise AssertionError("abstract")

    def answer(self, out: BytesWriter, ticket: PendingConfirm) -> bool:
        """Answer all of a ticket that no queue withholds and that is not answered.

        Returns:
            Whether that was all that was left.
        """
        untold = ticket.untold
        if untold is None:
            ticket.answered = True
            self.answer_row(out, ticket, ticket.first, ticket.last + 1)
            return True
        freed = ticket.freed
        ticket.freed = []
        for at in range(0, len(freed), 2):
            gone = untold.remove(freed[at], freed[at + 1])
            for row in range(0, len(gone), 2):
                self.answer_row(out, ticket, gone[row], gone[row + 1])
        ticket.answered = not untold
        return ticket.answered

    def answer_row(self, out: BytesWriter, ticket: PendingConfirm, first: i64, stop: i64) -> None:
        """Answer the publishes `first` to `stop` - 1 of a ticket, some of which may be refused."""
        raise AssertionError("abstract")
