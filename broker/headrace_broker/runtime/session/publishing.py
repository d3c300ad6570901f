"""The publishing part of a session: gathers, sends in order, confirms, slows fast publishers."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.core.queue.command.command import NUMBER_MAX
from headrace_broker.model.limits import COPY_TURN_BYTES, PIPELINE_COMMANDS, SESSION_BYTES_MAX
from headrace_broker.model.message import Publish, Publisher
from headrace_broker.runtime.contract.lane_port import Copying, SessionOwner
from headrace_broker.runtime.contract.port import PendingConfirm
from headrace_broker.runtime.contract.trace_port import TRACING
from headrace_broker.runtime.session.deferred_confirms import DeferredConfirms, count_deferred
from headrace_broker.runtime.session.lane import PendingPublish, PublishLane
from headrace_broker.runtime.session.link import SessionLink


@final
class Publishing(Copying):
    """The publish lane of a session, its debts, and its soft limit.

    What is handed over is a loan of the session's account until it is applied, refused or given up.
    """

    def __init__(self, link: SessionLink, owner: SessionOwner) -> None:
        self.lane = PublishLane(link.session)  # what gathered and what is not answered
        self.holding = DeferredConfirms()  # what the queue has and defers the confirms of
        self._link = link
        self._limits = link.account.limits
        self._congested = False
        self._owner = owner
        self._unsent: deque[PendingPublish] = deque()  # behind one that is being copied
        self._copying = False

    def accept(self, publishes: list[Publish], pending_confirm: PendingConfirm | None) -> bool:
        """Gather publishes; return False while the queue is above its soft limit for them."""
        link = self._link
        if link.gone:
            if pending_confirm is not None:
                link.listener.on_confirmed(link.client, [pending_confirm])
            return True
        link.traffic.publish += len(publishes)
        lane = self.lane
        byte_count = lane.add(publishes, pending_confirm)
        if TRACING.tracer is not None:
            first: i64 = lane.next_number + len(lane.gathered) - len(publishes)
            TRACING.tracer.handed(link.session, first, publishes, link.queue)
        link.account.balance(link.queue.group).borrow(len(publishes), byte_count)
        link.pending.add(len(publishes), byte_count)
        if not self._congested:
            limits = self._limits
            if lane.hand_over_count > limits.scaled(
                limits.queue_commands
            ) or lane.byte_count > limits.scaled(SESSION_BYTES_MAX):
                self._congested = True
        return not self._congested

    def take_named(
        self,
        publishes: list[Publish],
        pending_confirm: PendingConfirm | None,
        publisher: Publisher,
        sequences: list[int],
    ) -> bool:
        """Gather publishes that their publisher has numbered; as `take`."""
        if not self._link.gone:
            self.lane.number(publisher, sequences)
        return self.accept(publishes, pending_confirm)

    def take_whole(self, publishes: list[Publish], pending_confirm: PendingConfirm) -> bool:
        """Send publishes in one command, behind what gathered; as `take`."""
        self.send_all()
        going = self.accept(publishes, pending_confirm)
        if not self._link.gone:
            self._send(self.lane.seal_whole())
        return going

    def send(self) -> None:
        """Send what gathered, as far as the pipeline has room."""
        lane = self.lane
        while lane.gathered and len(lane.pending) < PIPELINE_COMMANDS:
            self._send(lane.seal())

    def send_all(self) -> None:
        """Send all that gathered, which the account's limit bounds: the session ends."""
        while self.lane.gathered:
            self._send(self.lane.seal())

    def resend(self) -> None:
        """Send everything unanswered again."""
        self._unsent.clear()
        for command in list(self.lane.pending):
            self._send(command)

    @override
    def copy_some(self) -> bool:
        """Copy a piece of the command that is to be sent next, and send what can be sent."""
        left = False
        try:
            if self._unsent:
                large = self._unsent[0].large
                if large is not None and self._has_to_copy():
                    large.copy(COPY_TURN_BYTES)
            self._send_unsent()
            left = len(self._unsent) > 0
        finally:  # after a fault the next publish asks for turns again
            self._copying = left
        return left

    def _send(self, command: PendingPublish) -> None:
        """Send a command: at once, or in its turn where a large one has to be copied first."""
        if command.large is None and not self._unsent:
            self._link.send(command.data)
            return
        self._unsent.append(command)
        self._send_unsent()
        if self._unsent and not self._copying:
            self._copying = True
            self._owner.copy_in_turns(self)

    def _send_unsent(self) -> None:
        while self._unsent:
            large = self._unsent[0].large
            if large is not None and not large.assembled and self._has_to_copy():
                return
            command = self._unsent.popleft()  # first: a leader that refuses has all sent again
            if large is None:
                self._link.send(command.data)
            else:
                self._link.send_large(large)

    def _has_to_copy(self) -> bool:
        """Return whether the leader is on this node, and takes large commands in one object."""
        host = self._link.host()
        return host is not None and not host.is_far()

    def confirm(self, number: i64) -> None:
        """Confirm everything up to `number`: tell the channel, and resume it."""
        link = self._link
        lane = self.lane
        applied = lane.newly_applied(number)
        deferred = self.holding.take_heard()
        if deferred:
            applied -= count_deferred(deferred, number - applied + 1, number)
            lane.defer(deferred, self.holding)
        link.traffic.confirm += applied
        if TRACING.tracer is not None:
            TRACING.tracer.applied(link.session, number)
        messages, byte_count = lane.messages, lane.byte_count
        pending_confirms = lane.applied(number)
        self._repay(messages - lane.messages, byte_count - lane.byte_count)
        if pending_confirms and not link.closing:
            self._answer(pending_confirms)
        self.poll()

    def has_missed(self, first: i64) -> bool:
        """Return whether an answer beginning with message `first` leaves out one before it."""
        pending = self.lane.pending
        return len(pending) > 0 and pending[0].first < first

    def give_up(self) -> list[PendingConfirm]:
        """Forget everything, and return the pending confirms that wait."""
        lane = self.lane
        self._unsent.clear()
        self._repay(lane.messages, lane.byte_count)
        return lane.take_pending_confirms()

    def poll(self) -> None:
        """Resume a stopped channel if its pending commands allow it."""
        if not self._congested:
            return
        lane, limits = self.lane, self._limits
        if (
            lane.hand_over_count <= limits.scaled(limits.queue_commands) // 2
            and lane.byte_count <= limits.scaled(SESSION_BYTES_MAX) // 2
        ):
            self._congested = False
            if not self._link.closing:
                self._link.listener.on_writable(self._link.client)

    @property
    def drained(self) -> bool:
        """True if nothing waits to be sent or answered."""
        return not self.lane.pending and not self.lane.gathered

    def complete(self, rows: list[int]) -> None:
        """The queue has completed publishes that it deferred, given in rows."""
        changed: list[PendingConfirm] = []
        over: i64 = 0
        for at in range(0, len(rows), 2):
            over += self._complete(rows[at], rows[at + 1], changed)
        self._tell_completed(changed, over)

    def complete_others(self, last: i64, rows: list[int]) -> None:
        """The queue knows publishes up to `last` and defers those in `rows` of them."""
        changed: list[PendingConfirm] = []
        over: i64 = 0
        first: i64 = 1
        for at in range(0, len(rows), 2):
            over += self._complete(first, min(rows[at], last + 1), changed)
            first = rows[at + 1]
        over += self._complete(first, last + 1, changed)
        self._tell_completed(changed, over)

    def complete_all(self) -> None:
        """Complete all deferred confirms: the queue is gone."""
        self.complete_others(NUMBER_MAX, [])

    def ask(self) -> None:
        """Ask the leader, which may be another one, for the deferred confirms."""
        if not self.holding:
            return
        host = self._link.host()
        if host is None or not host.ask_deferred(self._link.session):
            self._link.lost = True

    def _complete(self, first: i64, stop: i64, changed: list[PendingConfirm]) -> i64:
        return self.holding.complete(first, stop, changed) if first < stop else 0

    def _tell_completed(self, changed: list[PendingConfirm], over: i64) -> None:
        link = self._link
        link.traffic.confirm += self.holding.take_completed()
        if changed and not link.closing:
            link.listener.on_completed(link.client, changed, over)

    def _answer(self, answered: list[PendingConfirm]) -> None:
        link = self._link
        pending_confirms = answered
        if self.holding:
            pending_confirms = []
            held = self.holding.split(answered, pending_confirms)
            if held:
                link.listener.on_deferred(link.client, held)
            if not pending_confirms:
                return
        refused = [
            pending_confirm
            for pending_confirm in pending_confirms
            if pending_confirm.refused is not None
        ]
        if not refused:
            link.listener.on_confirmed(link.client, pending_confirms)
            return
        confirmed = [
            pending_confirm
            for pending_confirm in pending_confirms
            if pending_confirm.refused is None
        ]
        if confirmed:
            link.listener.on_confirmed(link.client, confirmed)
        link.listener.on_rejected(link.client, refused)

    def _repay(self, messages: i64, byte_count: i64) -> None:
        if messages > 0:
            link = self._link
            link.account.balance(link.queue.group).repay(messages, byte_count)
            link.pending.done(byte_count)
