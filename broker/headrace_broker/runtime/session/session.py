"""The gateway's end of a session: one channel's conversation with one queue, wherever it is led."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.core.queue.command.command import encode_get, encode_purge, encode_remove
from headrace_broker.core.queue.machine.versions import PREFETCH_VERSION
from headrace_broker.core.queue.messages.effect import LANE_PUBLISH
from headrace_broker.flow.account import Account
from headrace_broker.flow.pending import Pending
from headrace_broker.model.definition import Queue
from headrace_broker.model.message import DeliveryRun, Publish, Publisher
from headrace_broker.runtime.contract.answer import wait_answer, wait_over
from headrace_broker.runtime.contract.lane_port import SessionEnd, SessionOwner, SessionTransport
from headrace_broker.runtime.contract.port import (
    Attachment,
    PendingConfirm,
    QueueClient,
    QueueListener,
)
from headrace_broker.runtime.contract.trace_port import TRACING
from headrace_broker.runtime.contract.traffic import Traffic
from headrace_broker.runtime.session.consuming import Consuming
from headrace_broker.runtime.session.link import SessionLink
from headrace_broker.runtime.session.publishing import Publishing
from headrace_broker.runtime.session.quiescence import Quiescence
from headrace_broker.runtime.session.settling import Control
from headrace_broker.runtime.session.waiting import Waiting

CLOSE_NUMBER: Final = 0  # the close of a session is not numbered


@final
class QueueSession(QueueClient):
    """Sends publishes and control commands in order, again after leader changes; hands out runs."""

    def __init__(
        self,
        session: int,
        queue: Queue,
        listener: QueueListener,
        reach: SessionTransport,
        owner: SessionOwner,
        traffic: Traffic,
        account: Account,
        pending: Pending,
    ) -> None:
        self.session = session  # its id, unique for ever
        self.queue = queue
        self.gate = pending.gate
        self.end = _End(self)
        # where its queue is led, and what has become of it
        self.link = SessionLink(session, queue, self, listener, reach, traffic, account, pending)
        self.publishing = Publishing(self.link, owner)  # its publishes
        self.control = Control(self.link, owner)  # its settles and requests
        self.consuming = Consuming(self.link, self.control)  # its consumers
        self.answered = False  # by its queue, since whoever looks at this has reset it
        self._owner = owner
        self._waiting = Waiting(self.publishing.lane, self.control.lane)
        self._got: dict[int, tuple[DeliveryRun, int]] = {}
        self._silence = Quiescence()
        self._gap_seen: tuple[int, int] = (0, 0)
        self.relocate(owner.locate(queue))

    @property
    def target(self) -> int:
        """Node id of the leader that is being talked to, 0 while unknown."""
        return self.link.target

    @property
    def waits(self) -> bool:
        """True while something of an open session is not answered."""
        if self.link.closing or self.link.gone:
            return False
        return not self.publishing.drained or len(self.control.lane.pending) > 0

    # From the channel

    @override
    def publish(self, publishes: list[Publish], pending_confirm: PendingConfirm | None) -> bool:
        return self.publishing.accept(publishes, pending_confirm)

    @override
    def publish_named(
        self,
        publishes: list[Publish],
        pending_confirm: PendingConfirm | None,
        publisher: Publisher,
        sequences: list[int],
    ) -> bool:
        return self.publishing.take_named(publishes, pending_confirm, publisher, sequences)

    @override
    def publish_whole(self, publishes: list[Publish], pending_confirm: PendingConfirm) -> bool:
        return self.publishing.take_whole(publishes, pending_confirm)

    @override
    def settle_whole(self, settles: list[tuple[int, int, int, int]]) -> None:
        self.control.settles_sent()
        for consumer, operation, first, last in settles:
            self.consuming.settle(consumer, operation, first, last)
        self.control.settles_sent()

    @override
    async def applied(self) -> None:
        if self.link.gone or self.link.closing:
            return
        self.control.settles_sent()
        await wait_over(self.queue, self._waiting.begin())

    @override
    def flush(self) -> None:
        self.publishing.send()
        self.control.send()

    @override
    def settle(self, consumer: int, operation: int, first: int, last: int) -> None:
        self.consuming.settle(consumer, operation, first, last)

    @override
    async def attach(self, consumer: int, attachment: Attachment) -> None:
        await self.consuming.attach(consumer, attachment)

    @override
    def set_prefetch(self, prefetches: list[tuple[int, int]]) -> bool:
        if self._owner.machine_version(self.queue) < PREFETCH_VERSION:
            return False
        self.consuming.set_prefetch(prefetches)
        return True

    @override
    async def cancel(self, consumer: int) -> None:
        await self.consuming.cancel(consumer)

    @override
    async def get(self, message_id: int = 0) -> tuple[DeliveryRun, int] | None:
        self.consuming.expect_get()
        number = self.control.settles_sent()
        got = self.control.request(encode_get(self.session, number, message_id))
        try:
            await wait_answer(self.queue, got)
        except BaseException:
            self.control.withdraw(number)
            raise
        return self._got.pop(number, None)

    @override
    async def purge(self) -> int:
        number = self.control.settles_sent()
        purged = self.control.request(encode_purge(self.session, number))
        _, count = await wait_answer(self.queue, purged)
        self.link.traffic.purged(self.queue, count)
        return count

    @override
    async def remove(self, message_ids: list[int]) -> int:
        number = self.control.settles_sent()
        removed = self.control.request(encode_remove(self.session, number, message_ids))
        _, count = await wait_answer(self.queue, removed)
        return count

    @override
    def consumed(self, consumer: int, byte_count: int) -> None:
        self.consuming.consumed(consumer, byte_count)

    @override
    def close(self) -> None:
        link = self.link
        if link.closing:
            return
        link.closing = True
        self._waiting.end()
        if link.gone:
            self._over()
            return
        self.publishing.send_all()
        self.control.settles_sent()
        self._close_when_drained()

    @override
    def abandon(self) -> list[PendingConfirm]:
        self.publishing.complete_all()  # what is deferred is committed
        pending_confirms = self.publishing.give_up()
        self.close()
        return pending_confirms

    def unreachable(self, text: str) -> None:
        """Fail waiters after a long time without a leader, and tell the publishers."""
        link = self.link
        if link.gone or link.closing:
            return
        self.control.fail(text)
        if not self.publishing.drained:
            link.listener.on_unreachable(self, text)

    # From the queue, through `end`

    def on_enqueued(self, first: i64, last: i64) -> None:
        """Confirm publishes and send what gathered meanwhile.

        An answer behind one that was lost confirms nothing, for what was lost may have been a
        refusal: the next tick sends again what is not answered.
        """
        self.answered = True
        if self.publishing.has_missed(first):
            self.publishing.holding.take_heard()
            self.link.lost = True
            return
        self.publishing.confirm(last)
        self._waiting.poll()
        self.publishing.send()
        if self.link.closing:
            self._close_when_drained()

    def on_controlled(self, number: i64, status: i64, count: i64) -> None:
        """Answer a control command and send the settles that gathered meanwhile."""
        self.answered = True
        if number == CLOSE_NUMBER:
            self.link.gone = True
            self._over()
            return
        self.control.answer(number, status, count)
        self._waiting.poll()
        if self.link.closing:
            self._close_when_drained()

    def _over(self) -> None:
        if TRACING.tracer is not None:
            TRACING.tracer.closed(self.session)
        self._owner.session_closed(self.session)
        if self.end.retire():
            self.link.retire()

    def on_got(self, number: i64, run: DeliveryRun | None, ready_left: i64) -> None:
        """Answer a get."""
        link = self.link
        if run is not None and not link.closing and self.control.lane.awaits(number):
            link.traffic.delivered(run.redelivered)
            if TRACING.tracer is not None:
                TRACING.tracer.delivered(self.session, run, self.queue)
            self._got[int(number)] = (run, int(ready_left))
        self.on_controlled(number, 0, 0)

    def on_gap(self, lane: i64, expected: i64) -> None:
        """Send a lane again from `expected`; commands behind the same hole say so only once."""
        seen = (int(lane), int(expected))
        if self._gap_seen == seen:
            return
        self._gap_seen = seen
        if lane == LANE_PUBLISH:
            self.publishing.resend()  # also what lies before: its answer may be a refusal
            self.publishing.send()
        else:
            self.control.resend()

    def on_refused(self, leader: int, busy: bool) -> None:
        """Follow a hint to the leader; a busy or unknown one is asked again by `tick`.

        A leader that names itself has lost something on the way here.
        """
        if busy:
            self._silence.refused()
            return
        if leader == 0:
            self.link.target = 0
        elif leader != self.link.target:
            self.relocate(leader)
        else:
            self.link.doubted = True

    def on_deleted(self) -> None:
        """The queue is gone: publishes count as handled, waiting requests fail, consumers end."""
        link = self.link
        link.gone = True
        pending_confirms = self.publishing.give_up()
        self.publishing.complete_all()
        self.control.give_up()
        if link.closing:
            self._over()
            return
        if pending_confirms:
            link.listener.on_confirmed(self, pending_confirms)
        self.consuming.cancel_all("queue deleted")
        self.publishing.poll()
        self._waiting.end()

    # From the node

    def relocate(self, target: int) -> None:
        """Talk to the leader on node `target` from now on: resume feeds, resend the unanswered."""
        link = self.link
        link.target = target
        self._gap_seen = (0, 0)
        if not target or link.gone:
            return
        link.lost = False
        self.consuming.resync_all()
        self.control.resend()
        self.publishing.resend()
        self.publishing.ask()

    def tick(self) -> None:
        """Search for an unknown leader; resend commands that stay unanswered for long."""
        link = self.link
        if link.gone:
            return
        if not link.target or link.lost:
            self._relocate_anew()
        elif link.doubted:
            self.consuming.resync_all()
            self.publishing.ask()
        control = self.control
        lanes = self.publishing.lane, control.lane
        if self._silence.is_over(*lanes, control.close_sent, link.target):
            self._relocate_anew()

    # Inner

    def _relocate_anew(self) -> None:
        located = self._owner.locate(self.queue)
        self.relocate(located if located else self.link.target)

    def _close_when_drained(self) -> None:
        if not self.publishing.drained or self.control.lane.pending:
            return
        if self.link.reached:
            self.control.close()
        else:  # there is nothing for a queue to forget
            self.link.gone = True
            self._over()


@final
class _End(SessionEnd):
    """The end that the queue's side sees; calls after the session's end are ignored."""

    def __init__(self, session: QueueSession) -> None:
        self._session: QueueSession | None = session

    def retire(self) -> bool:
        """Drop the session, which is over; False if that was done before.

        It is freed at once then, and not by the garbage collector, and so is its channel.
        """
        known = self._session is not None
        self._session = None
        return known

    @override
    def rejected(self, first: i64, last: i64, fenced: bool) -> None:
        session = self._session
        if session is not None:
            session.publishing.lane.refuse(first, last, fenced)

    @override
    def deferred(self, rows: list[int]) -> None:
        session = self._session
        if session is not None:
            session.publishing.holding.receive(rows)

    @override
    def completed(self, rows: list[int]) -> None:
        session = self._session
        if session is not None:
            session.publishing.complete(rows)

    @override
    def still_deferred(self, last: i64, rows: list[int]) -> None:
        session = self._session
        if session is not None:
            session.publishing.complete_others(last, rows)

    @override
    def enqueued(self, first: i64, last: i64) -> None:
        session = self._session
        if session is not None:
            session.on_enqueued(first, last)

    @override
    def controlled(self, number: i64, status: i64, count: i64) -> None:
        session = self._session
        if session is not None:
            session.on_controlled(number, status, count)

    @override
    def run(self, run: DeliveryRun) -> None:
        session = self._session
        if session is not None:
            session.consuming.deliver(run)

    @override
    def got(self, number: i64, run: DeliveryRun | None, ready_left: i64) -> None:
        session = self._session
        if session is not None:
            session.on_got(number, run, ready_left)

    @override
    def gap(self, lane: i64, expected: i64) -> None:
        session = self._session
        if session is not None:
            session.on_gap(lane, expected)

    @override
    def refused(self, leader: int, busy: bool, unknown: bool) -> None:
        session = self._session
        if session is not None:
            session.on_refused(leader, busy)

    @override
    def detached(self, consumer: i64) -> None:
        session = self._session
        if session is not None:
            session.consuming.restart(consumer)

    @override
    def timed_out(self, consumer: i64) -> None:
        session = self._session
        if session is not None:
            session.consuming.time_out(consumer)
