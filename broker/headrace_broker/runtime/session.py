"""The gateway's end of a session: one channel's conversation with one queue, wherever it is led."""

from __future__ import annotations

import asyncio
from typing import Final, final

from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.core.command import (
    NUMBER_MAX,
    encode_attach,
    encode_cancel,
    encode_close,
    encode_get,
    encode_purge,
)
from headrace_broker.core.effect import LANE_PUBLISH, STATUS_EXCLUSIVE_IN_USE
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import (
    PIPELINE_COMMANDS,
    SESSION_OCTETS_MAX,
)
from headrace_broker.model.message import DeliveryRun, Publish
from headrace_broker.model.reply_code import (
    ACCESS_REFUSED,
    AmqpError,
)
from headrace_broker.runtime.answer import Answer, no_queue, wait_answer
from headrace_broker.runtime.lane import ControlLane, PublishLane
from headrace_broker.runtime.lane_port import Reach, SessionEnd, SessionOwner
from headrace_broker.runtime.port import ACCEPT, RELEASE, QueueClient, QueueListener, Ticket
from headrace_broker.runtime.silence import Silence
from headrace_broker.runtime.subscription import Subscription
from headrace_broker.runtime.traffic import Traffic

CLOSE_NUMBER: Final = 0  # the close of a session is not numbered
RESTARTED_CONSUMER_FIRST: Final = 1 << 24  # numbers that no channel gives to its consumers


@final
class QueueSession(QueueClient):
    """Sends publishes and control commands in order, again after a leader change; hands out runs.

    Attributes:
        session: its id, unique for ever.
        target: node id of the leader that is being talked to, 0 while unknown.
    """

    def __init__(
        self,
        session: int,
        queue: Queue,
        listener: QueueListener,
        reach: Reach,
        owner: SessionOwner,
        traffic: Traffic,
    ) -> None:
        self.session = session
        self.queue = queue
        self.target = 0
        self.end = _End(self)
        self._listener = listener
        self._reach = reach
        self._owner = owner
        self._traffic = traffic
        self._publishes = PublishLane(session)
        self._controls = ControlLane(session)
        self._subscriptions: dict[int, Subscription] = {}
        self._by_number: dict[int, Subscription] = {}
        self._next_restarted = RESTARTED_CONSUMER_FIRST
        self._got: dict[int, tuple[DeliveryRun, int]] = {}
        self._congested = False
        self._closing = False
        self._close_sent = False
        self._gone = False
        self._lost = False  # a command or a resync did not leave
        self._doubted = False  # deliveries may be missing
        self._silence = Silence()
        self._gap_seen: tuple[int, int] = (0, 0)
        self.relocate(owner.locate(queue))

    # From the channel

    @override
    def publish(self, publishes: list[Publish], ticket: Ticket | None) -> bool:
        if self._gone:
            if ticket is not None:
                self._listener.on_confirmed(self, [ticket])
            return True
        self._traffic.publish += len(publishes)
        lane = self._publishes
        lane.add(publishes, ticket)
        if lane.gathered_octets + lane.pending_octets > SESSION_OCTETS_MAX:
            self._congested = True
        return not self._congested

    @override
    def flush(self) -> None:
        self._send_publishes()
        self._send_settles()

    @override
    def settle(self, consumer: int, operation: int, first: int, last: int) -> None:
        subscription = self._subscriptions.get(consumer)
        if subscription is None or self._gone:
            return
        span = subscription.to_queue(first, last)
        if span is not None:
            self._controls.settle(subscription.number, operation, span[0], span[1])
            if operation == ACCEPT:
                self._traffic.ack += span[1] - span[0] + 1
        subscription.unsettled -= last - first + 1
        self._forget_if_over(subscription)

    @override
    async def attach(self, consumer: int, tag: str, prefetch: int, exclusive: bool) -> None:
        subscription = Subscription(consumer, tag, prefetch, exclusive)
        self._subscriptions[consumer] = subscription
        self._by_number[consumer] = subscription
        try:
            status, _ = await wait_answer(self.queue, self._attach(subscription))
        except BaseException:
            self._forget(subscription)
            raise
        if status == STATUS_EXCLUSIVE_IN_USE:
            self._forget(subscription)
            where = f"queue '{self.queue.name}' in vhost '{self.queue.vhost}'"
            raise AmqpError(ACCESS_REFUSED, f"{where} in exclusive use")
        self.note_attached(subscription)

    @override
    async def cancel(self, consumer: int) -> None:
        subscription = self._subscriptions.get(consumer)
        if subscription is None or subscription.cancelled:
            return
        subscription.cancelled = True
        number = self._settles_sent()
        cancelled = self._request(encode_cancel(self.session, number, subscription.number))
        try:
            await wait_answer(self.queue, cancelled)
        except AmqpError:
            if self._gone:
                return
            raise
        # What the queue gave it and did not arrive here goes back; what arrives now is ignored.
        self._by_number.pop(subscription.number, None)
        self._controls.settle(subscription.number, RELEASE, subscription.expected, NUMBER_MAX)
        self._send_settles()
        self._forget_if_over(subscription)

    @override
    async def get(self) -> tuple[DeliveryRun, int] | None:
        if 0 not in self._subscriptions:
            self._subscriptions[0] = Subscription(0, "", 1, False)
        number = self._settles_sent()
        await wait_answer(self.queue, self._request(encode_get(self.session, number)))
        return self._got.pop(number, None)

    @override
    async def purge(self) -> int:
        number = self._settles_sent()
        _, count = await wait_answer(self.queue, self._request(encode_purge(self.session, number)))
        return count

    @override
    def consumed(self, consumer: int, octets: int) -> None:
        subscription = self._subscriptions.get(consumer)
        if subscription is None or consumer == 0:
            return
        granted = subscription.consumed(octets)
        if granted > 0 and self.target:
            host = self._reach.host(self.target, self.queue.group)
            if host is None or not host.window(self.session, subscription.number, granted):
                self._doubted = True

    @override
    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if self._gone:
            self._owner.session_closed(self.session)
            return
        while self._publishes.gathered:  # bounded by SESSION_OCTETS_MAX: need not wait for room
            self._send(self._publishes.seal().data)
        self._settles_sent()
        self._close_when_drained()

    # From the queue, through `end`

    def on_enqueued(self, number: i64) -> None:
        """Confirm publishes and send what gathered meanwhile."""
        self._confirm(number)
        self._send_publishes()
        if self._closing:
            self._close_when_drained()

    def _confirm(self, number: i64) -> None:
        lane = self._publishes
        self._traffic.confirm += lane.newly_applied(number)
        tickets = lane.applied(number)
        if tickets and not self._closing:
            self._listener.on_confirmed(self, tickets)
        if (
            self._congested
            and lane.gathered_octets + lane.pending_octets <= SESSION_OCTETS_MAX // 2
        ):
            self._congested = False
            if not self._closing:
                self._listener.on_writable(self)

    def on_controlled(self, number: i64, status: i64, count: i64) -> None:
        """Answer a control command and send the settles that gathered meanwhile."""
        if number == CLOSE_NUMBER:
            self._gone = True
            self._owner.session_closed(self.session)
            return
        future = self._controls.answered(number)
        if future is not None and not future.done():
            future.set_result((int(status), int(count)))
        self._send_settles()
        if self._closing:
            self._close_when_drained()

    def on_run(self, run: DeliveryRun) -> None:
        """Hand new deliveries to the channel; ask again when some are missing."""
        subscription = self._by_number.get(run.consumer)
        if subscription is None or self._closing:
            return
        if subscription.misses(run):
            if subscription.asked != subscription.expected:  # not once for each run behind it
                subscription.asked = subscription.expected
                self._doubted = True
                self._resync(subscription)
            return
        fresh = subscription.accept(run)
        if fresh is not None:
            self._traffic.delivered(fresh.redelivered)
            self._listener.on_delivery(self, fresh)

    def on_got(self, number: i64, run: DeliveryRun | None, ready_left: i64) -> None:
        """Answer a get."""
        if run is not None and not self._closing and self._controls.awaits(number):
            self._traffic.delivered(run.redelivered)
            self._got[int(number)] = (run, int(ready_left))
        self.on_controlled(number, 0, 0)

    def on_gap(self, lane: i64, expected: i64) -> None:
        """Send a lane again from `expected`; commands behind the same hole say so only once."""
        seen = (int(lane), int(expected))
        if self._gap_seen == seen:
            return
        self._gap_seen = seen
        if lane == LANE_PUBLISH:
            self._confirm(expected - 1)
            self._resend_publishes()
            self._send_publishes()
            if self._closing:
                self._close_when_drained()
        else:
            self._resend_controls()

    def on_refused(self, leader: int, busy: bool) -> None:
        """Follow a hint to the leader; a busy or unknown one is asked again by `tick`.

        A leader that names itself has lost something on the way here.
        """
        if busy:
            return
        if leader == 0:
            self.target = 0
        elif leader != self.target:
            self.relocate(leader)
        else:
            self._doubted = True

    def on_detached(self, consumer: i64) -> None:
        """Attach a consumer anew that the queue has given up."""
        subscription = self._by_number.pop(consumer, None)
        if subscription is None or subscription.cancelled or self._closing:
            return
        number = self._settles_sent()
        self._request(encode_cancel(self.session, number, subscription.number))
        subscription.restart(self._next_restarted)
        self._next_restarted += 1
        self._by_number[subscription.number] = subscription
        self._attach(subscription).add_done_callback(_Reattached(self, subscription))

    def on_deleted(self) -> None:
        """The queue is gone: publishes count as handled, waiting requests fail, consumers end."""
        self._gone = True
        tickets = self._publishes.take_tickets()
        for future in self._controls.take_futures():
            if not future.done():
                future.set_exception(no_queue(self.queue))
        if self._closing:
            self._owner.session_closed(self.session)
            return
        if tickets:
            self._listener.on_confirmed(self, tickets)
        self._cancel_all("queue deleted")
        if self._congested:
            self._congested = False
            self._listener.on_writable(self)

    # From the node

    def relocate(self, target: int) -> None:
        """Talk to the leader on node `target` from now on: resume feeds, resend the unanswered."""
        self.target = target
        self._gap_seen = (0, 0)
        if not target or self._gone:
            return
        self._lost = False
        self._resync_all()
        self._resend_controls()
        self._resend_publishes()

    def tick(self) -> None:
        """Look for the leader when it is unknown; send again what stays unanswered for long."""
        if self._gone:
            return
        if not self.target or self._lost:
            self._relocate_anew()
        elif self._doubted:
            self._resync_all()
        if self._silence.is_over(self._publishes, self._controls, self._close_sent):
            self._relocate_anew()

    # Inner

    def _relocate_anew(self) -> None:
        located = self._owner.locate(self.queue)
        self.relocate(located if located else self.target)

    def _send_publishes(self) -> None:
        lane = self._publishes
        while lane.gathered and len(lane.pending) < PIPELINE_COMMANDS:
            self._send(lane.seal().data)

    def _send_settles(self) -> None:
        lane = self._controls
        while lane.gathered and len(lane.pending) < PIPELINE_COMMANDS:
            self._send(lane.seal_settles().data)

    def _send(self, data: bytes) -> None:
        if self.target:
            host = self._reach.host(self.target, self.queue.group)
            if host is not None:
                host.command(self.session, data)

    def _resend_publishes(self) -> None:
        for command in list(self._publishes.pending):
            self._send(command.data)

    def _resend_controls(self) -> None:
        for command in list(self._controls.pending):
            self._send(command.data)
        if self._close_sent:
            self._send(encode_close(self.session))

    def _resync_all(self) -> None:
        self._doubted = False
        for subscription in list(self._by_number.values()):  # a host here may answer at once
            subscription.asked = 0
            if not subscription.cancelled:
                subscription.moved = not subscription.attached
                self._resync(subscription)

    def _resync(self, subscription: Subscription) -> None:
        host = self._reach.host(self.target, self.queue.group) if self.target else None
        if host is None or not host.resync(
            self.session,
            subscription.number,
            subscription.expected,
            subscription.fresh_window(),
            subscription.attached,
        ):
            self._lost = True

    def _settles_sent(self) -> int:
        """Send all gathered settles and return the number of the next control command."""
        while self._controls.gathered:
            self._send(self._controls.seal_settles().data)
        return self._controls.next_number

    def _attach(self, subscription: Subscription) -> Answer:
        self._resync(subscription)
        number = self._settles_sent()
        return self._request(
            encode_attach(
                self.session,
                number,
                subscription.number,
                subscription.prefetch,
                subscription.exclusive,
                subscription.tag.encode(),
            )
        )

    def _request(self, data: bytes) -> Answer:
        future: Answer = asyncio.get_running_loop().create_future()
        if self._gone:
            future.set_exception(no_queue(self.queue))
            return future
        self._send(self._controls.add(data, future).data)
        return future

    def _close_when_drained(self) -> None:
        waits = self._publishes.pending or self._publishes.gathered or self._controls.pending
        if not self._close_sent and not waits:
            self._close_sent = True
            self._send(encode_close(self.session))

    def _forget(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription.consumer, None)
        self._by_number.pop(subscription.number, None)

    def _forget_if_over(self, subscription: Subscription) -> None:
        """Forget a cancelled consumer whose last delivery is settled."""
        over = subscription.cancelled and subscription.number not in self._by_number
        if over and subscription.unsettled <= 0:
            self._subscriptions.pop(subscription.consumer, None)

    def _cancel_all(self, reason: str) -> None:
        for consumer, subscription in list(self._subscriptions.items()):
            if consumer and not subscription.cancelled:
                subscription.cancelled = True
                self._listener.on_cancelled(self, consumer, reason)

    def note_attached(self, subscription: Subscription) -> None:
        """Take note that the queue has answered an attach."""
        subscription.attached = True
        if subscription.moved and not subscription.cancelled:
            self._resync(subscription)  # it may have been given up again since then

    def end_subscription(self, subscription: Subscription, reason: str) -> None:
        """End one consumer from the queue's side and tell the channel."""
        self._forget(subscription)
        if not subscription.cancelled and not self._closing:
            subscription.cancelled = True
            self._listener.on_cancelled(self, subscription.consumer, reason)


@final
class _Reattached:
    """Looks at the answer to an attach that nobody waits for."""

    def __init__(self, session: QueueSession, subscription: Subscription) -> None:
        self._session = session
        self._subscription = subscription

    def __call__(self, future: Answer) -> None:
        if future.cancelled() or future.exception() is not None:
            return  # the queue is gone, and on_deleted has told the channel
        if future.result()[0] == STATUS_EXCLUSIVE_IN_USE:
            self._session.end_subscription(self._subscription, "queue in exclusive use")
        else:
            self._session.note_attached(self._subscription)


@final
class _End(SessionEnd):
    """The face that the queue's side sees."""

    def __init__(self, session: QueueSession) -> None:
        self._session = session

    @override
    def enqueued(self, number: i64) -> None:
        self._session.on_enqueued(number)

    @override
    def controlled(self, number: i64, status: i64, count: i64) -> None:
        self._session.on_controlled(number, status, count)

    @override
    def run(self, run: DeliveryRun) -> None:
        self._session.on_run(run)

    @override
    def got(self, number: i64, run: DeliveryRun | None, ready_left: i64) -> None:
        self._session.on_got(number, run, ready_left)

    @override
    def gap(self, lane: i64, expected: i64) -> None:
        self._session.on_gap(lane, expected)

    @override
    def refused(self, leader: int, busy: bool, unknown: bool) -> None:
        self._session.on_refused(leader, busy)

    @override
    def detached(self, consumer: i64) -> None:
        self._session.on_detached(consumer)
