"""The publishing part of a session: gathers, sends in order, confirms, slows who is too fast."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.model.limits import PIPELINE_COMMANDS, SESSION_OCTETS_MAX
from headrace_broker.model.message import Publish
from headrace_broker.runtime.lane import PublishLane
from headrace_broker.runtime.port import Ticket
from headrace_broker.runtime.session_link import SessionLink


@final
class Publishing:
    """The publish lane of a session, its debts, and its soft limit.

    What is handed over is a loan of the session's account until it is applied, refused or given up.

    Attributes:
        lane: what gathered and what is not answered.
    """

    def __init__(self, link: SessionLink) -> None:
        self.lane = PublishLane(link.session)
        self._link = link
        self._limits = link.account.limits
        self._congested = False

    def take(self, publishes: list[Publish], ticket: Ticket | None) -> bool:
        """Gather publishes; return False while the queue is above its soft limit for them."""
        link = self._link
        if link.gone:
            if ticket is not None:
                link.listener.on_confirmed(link.client, [ticket])
            return True
        link.traffic.publish += len(publishes)
        lane = self.lane
        octets = lane.add(publishes, ticket)
        link.account.tab(link.queue.group).borrow(len(publishes), octets)
        link.pending.add(octets)
        if not self._congested:
            limits = self._limits
            if lane.hand_over_count > limits.scaled(limits.commands) or lane.octets > limits.scaled(
                SESSION_OCTETS_MAX
            ):
                self._congested = True
        return not self._congested

    def take_whole(self, publishes: list[Publish], ticket: Ticket) -> bool:
        """Send publishes in one command, behind what gathered; as `take`."""
        self.send_all()
        going = self.take(publishes, ticket)
        if not self._link.gone:
            self._link.send(self.lane.seal_whole().data)
        return going

    def send(self) -> None:
        """Send what gathered, as far as the pipeline has room."""
        lane = self.lane
        while lane.gathered and len(lane.pending) < PIPELINE_COMMANDS:
            self._link.send(lane.seal().data)

    def send_all(self) -> None:
        """Send all that gathered, which the account's limit bounds: the session ends."""
        while self.lane.gathered:
            self._link.send(self.lane.seal().data)

    def resend(self) -> None:
        """Send everything unanswered again."""
        for command in list(self.lane.pending):
            self._link.send(command.data)

    def confirm(self, number: i64) -> None:
        """Everything up to `number` is applied: tell the channel, and let it go on."""
        link = self._link
        lane = self.lane
        link.traffic.confirm += lane.newly_applied(number)
        messages, octets = lane.messages, lane.octets
        tickets = lane.applied(number)
        self._repay(messages - lane.messages, octets - lane.octets)
        if tickets and not link.closing:
            self._answer(tickets)
        self.look()

    def has_missed(self, first: i64) -> bool:
        """Return whether an answer beginning with message `first` leaves out one before it."""
        pending = self.lane.pending
        return len(pending) > 0 and pending[0].first < first

    def give_up(self) -> list[Ticket]:
        """Forget everything, and return the tickets that wait."""
        lane = self.lane
        self._repay(lane.messages, lane.octets)
        return lane.take_tickets()

    def look(self) -> None:
        """Let the channel go on if it was told to wait and what is pending allows it."""
        if not self._congested:
            return
        lane, limits = self.lane, self._limits
        if (
            lane.hand_over_count <= limits.scaled(limits.commands) // 2
            and lane.octets <= limits.scaled(SESSION_OCTETS_MAX) // 2
        ):
            self._congested = False
            if not self._link.closing:
                self._link.listener.on_writable(self._link.client)

    @property
    def drained(self) -> bool:
        """Whether nothing waits to be sent or answered."""
        return not self.lane.pending and not self.lane.gathered

    def _answer(self, tickets: list[Ticket]) -> None:
        link = self._link
        refused = [ticket for ticket in tickets if ticket.refused is not None]
        if not refused:
            link.listener.on_confirmed(link.client, tickets)
            return
        confirmed = [ticket for ticket in tickets if ticket.refused is None]
        if confirmed:
            link.listener.on_confirmed(link.client, confirmed)
        link.listener.on_rejected(link.client, refused)

    def _repay(self, messages: i64, octets: i64) -> None:
        if messages > 0:
            link = self._link
            link.account.tab(link.queue.group).repay(messages, octets)
            link.pending.done(octets)
