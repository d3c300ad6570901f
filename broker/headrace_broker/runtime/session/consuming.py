"""The consuming part of a session: its consumers, their deliveries and their settles."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.command.command import (
    NUMBER_MAX,
    encode_attach,
    encode_cancel,
    encode_set_prefetch,
)
from headrace_broker.core.queue.messages.effect import STATUS_EXCLUSIVE_IN_USE
from headrace_broker.model.message import DeliveryRun
from headrace_broker.model.reply_code import ACCESS_REFUSED, AmqpError
from headrace_broker.runtime.contract.answer import Answer, wait_answer
from headrace_broker.runtime.contract.port import ACCEPT, GET_CONSUMER, RELEASE, Attachment
from headrace_broker.runtime.contract.trace_port import TRACING
from headrace_broker.runtime.session.link import SessionLink
from headrace_broker.runtime.session.settling import Control
from headrace_broker.runtime.session.subscription import Subscription

RESTARTED_CONSUMER_FIRST: Final = 1 << 24  # numbers that no channel gives to its consumers


@final
class Consuming:
    """The consumers of a session."""

    def __init__(self, link: SessionLink, control: Control) -> None:
        # by the channel's number, GET_CONSUMER for what `get` took
        self.subscriptions: dict[int, Subscription] = {}
        self._link = link
        self._control = control
        self._by_number: dict[int, Subscription] = {}
        self._next_restarted = RESTARTED_CONSUMER_FIRST
        self._untold: dict[int, Subscription] = {}  # whose prefetch the queue does not know yet
        self._telling = False  # a SET_PREFETCH is not answered

    # From the channel

    def settle(self, consumer: int, operation: int, first: int, last: int) -> None:
        """Settle deliveries in the channel's numbers."""
        subscription = self.subscriptions.get(consumer)
        if subscription is None or self._link.gone:
            return
        span = subscription.to_queue(first, last)
        if span is not None:
            room = subscription.room(first, last)
            self._control.settle(subscription.number, operation, span[0], span[1], room)
            if TRACING.tracer is not None:
                session = self._link.session
                number = self._control.lane.next_number
                TRACING.tracer.settled(session, consumer, operation, first, last, number)
            if operation == ACCEPT:
                self._link.traffic.ack += span[1] - span[0] + 1
        subscription.unsettled -= last - first + 1
        self._forget_if_over(subscription)

    async def attach(self, consumer: int, attachment: Attachment) -> None:
        """Start a consumer; see `QueueClient.attach`."""
        subscription = Subscription(consumer, attachment)
        self.subscriptions[consumer] = subscription
        self._by_number[consumer] = subscription
        queue = self._link.queue
        number = self._control.settles_sent()
        try:
            status, _ = await wait_answer(queue, self._attach(subscription))
        except BaseException:
            self._control.withdraw(number)
            self._forget(subscription)
            raise
        if status == STATUS_EXCLUSIVE_IN_USE:
            self._forget(subscription)
            where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
            raise AmqpError(ACCESS_REFUSED, f"{where} in exclusive use")
        self.note_attached(subscription)

    def set_prefetch(self, prefetches: list[tuple[int, int]]) -> None:
        """Change the prefetch of consumers; see `QueueClient.set_prefetch`."""
        for consumer, prefetch in prefetches:
            subscription = self.subscriptions.get(consumer)
            if subscription is None or subscription.cancelled:
                continue
            if subscription.attachment.prefetch != prefetch:
                subscription.attachment.prefetch = prefetch
                self._untold[consumer] = subscription
        self.tell_prefetches()

    def tell_prefetches(self) -> None:
        """Send all changes in one command; changes that come before its answer gather."""
        if self._telling or self._link.gone:
            return
        untold, self._untold = self._untold, {}
        items = [
            (int(each.number), int(each.attachment.prefetch))
            for each in untold.values()
            if not each.cancelled
        ]
        if items:
            self._telling = True
            number = self._control.settles_sent()
            data = encode_set_prefetch(self._link.session, number, items)
            self._control.request(data, waited=False).add_done_callback(_PrefetchesTold(self))

    def prefetches_told(self) -> None:
        """Continue with later changes: the queue has answered."""
        self._telling = False
        self.tell_prefetches()

    async def cancel(self, consumer: int) -> None:
        """End a consumer; see `QueueClient.cancel`."""
        subscription = self.subscriptions.get(consumer)
        if subscription is None or subscription.cancelled:
            return
        subscription.cancelled = True
        control = self._control
        number = control.settles_sent()
        data = encode_cancel(self._link.session, number, subscription.number)
        try:
            await wait_answer(self._link.queue, control.request(data))
        except AmqpError:
            if self._link.gone:
                return
            raise
        # What the queue gave it and did not arrive here goes back; what arrives now is ignored.
        self._by_number.pop(subscription.number, None)
        control.settle(subscription.number, RELEASE, subscription.expected, NUMBER_MAX, 0)
        control.send()
        self._forget_if_over(subscription)

    def expect_get(self) -> None:
        """Prepare to settle the message of a get."""
        if GET_CONSUMER not in self.subscriptions:
            self.subscriptions[GET_CONSUMER] = Subscription(GET_CONSUMER, Attachment("", 1))

    def consumed(self, consumer: int, byte_count: int) -> None:
        """Open a consumer's window as its deliveries leave for the socket."""
        link = self._link
        subscription = self.subscriptions.get(consumer)
        if subscription is None or consumer == GET_CONSUMER:
            return
        granted = subscription.consumed(byte_count)
        if granted > 0 and link.target:
            host = link.host()
            if host is None or not host.window(link.session, subscription.number, granted):
                link.doubted = True

    # From the queue

    def deliver(self, run: DeliveryRun) -> None:
        """Hand new deliveries to the channel; ask again when some are missing."""
        link = self._link
        subscription = self._by_number.get(run.consumer)
        if subscription is None or link.closing:
            return
        if subscription.misses(run):
            if subscription.asked != subscription.expected:  # not once for each run behind it
                subscription.asked = subscription.expected
                link.doubted = True
                self._resync(subscription)
            return
        fresh = subscription.accept(run)
        if fresh is not None:
            link.traffic.delivered(fresh.redelivered)
            if TRACING.tracer is not None:
                TRACING.tracer.delivered(link.session, fresh, link.queue)
            link.listener.on_delivery(link.client, fresh)

    def restart(self, consumer: i64) -> None:
        """Attach a consumer anew that the queue has given up."""
        subscription = self._by_number.pop(consumer, None)
        if subscription is None or subscription.cancelled or self._link.closing:
            return
        number = self._control.settles_sent()
        self._control.order(encode_cancel(self._link.session, number, subscription.number))
        subscription.restart(self._next_restarted)
        self._next_restarted += 1
        self._by_number[subscription.number] = subscription
        self._attach(subscription, waited=False).add_done_callback(_Reattached(self, subscription))

    def time_out(self, number: i64) -> None:
        """End a consumer that the queue has ended, for it held a delivery too long.

        What `get` took has gone back just so, but the next `get` takes as before.
        """
        link = self._link
        for consumer, subscription in list(self.subscriptions.items()):
            if subscription.number == number:
                if consumer != GET_CONSUMER:
                    self._forget(subscription)
                    subscription.cancelled = True
                if not link.closing:
                    link.listener.on_timed_out(link.client, consumer)

    def resync_all(self) -> None:
        """Resume all feeds where they are, from a leader that may be another one."""
        self._link.doubted = False
        for subscription in list(self._by_number.values()):  # a host here may answer at once
            subscription.asked = 0
            if not subscription.cancelled:
                subscription.moved = not subscription.attached
                self._resync(subscription)

    def cancel_all(self, reason: str) -> None:
        """End all consumers from the queue's side."""
        link = self._link
        for consumer, subscription in list(self.subscriptions.items()):
            if consumer and not subscription.cancelled:
                subscription.cancelled = True
                link.listener.on_cancelled(link.client, consumer, reason)

    def note_attached(self, subscription: Subscription) -> None:
        """Take note that the queue has answered an attach."""
        subscription.attached = True
        if subscription.moved and not subscription.cancelled:
            self._resync(subscription)  # it may have been given up again since then

    def end_subscription(self, subscription: Subscription, reason: str) -> None:
        """End one consumer from the queue's side and tell the channel."""
        self._forget(subscription)
        link = self._link
        if not subscription.cancelled and not link.closing:
            subscription.cancelled = True
            link.listener.on_cancelled(link.client, subscription.consumer, reason)

    # Inner

    def _resync(self, subscription: Subscription) -> None:
        link = self._link
        host = link.host()
        if host is None or not host.resync(
            link.session,
            subscription.number,
            subscription.expected,
            subscription.fresh_window(),
            subscription.attached,
            subscription.attachment.filter_table,
        ):
            link.lost = True

    def _attach(self, subscription: Subscription, waited: bool = True) -> Answer:
        self._resync(subscription)
        attachment = subscription.attachment
        number = self._control.settles_sent()
        return self._control.request(
            encode_attach(
                self._link.session,
                number,
                subscription.number,
                attachment.prefetch,
                attachment.exclusive,
                attachment.tag.encode(),
                filtered=attachment.filter_table != b"",
                priority=attachment.priority,
                prefetch_bytes=attachment.prefetch_bytes,
                timeout_ms=attachment.timeout_ms,
            ),
            waited,
        )

    def _forget(self, subscription: Subscription) -> None:
        self.subscriptions.pop(subscription.consumer, None)
        self._by_number.pop(subscription.number, None)

    def _forget_if_over(self, subscription: Subscription) -> None:
        """Forget a cancelled consumer whose last delivery is settled."""
        over = subscription.cancelled and subscription.number not in self._by_number
        if over and subscription.unsettled <= 0:
            self.subscriptions.pop(subscription.consumer, None)


@final
class _Reattached:
    """Receiver of the answer to an attach without a waiter."""

    def __init__(self, consuming: Consuming, subscription: Subscription) -> None:
        self._consuming = consuming
        self._subscription = subscription

    def __call__(self, future: Answer) -> None:
        if future.cancelled() or future.exception() is not None:
            return  # the queue is gone, and the channel was told of it
        if future.result()[0] == STATUS_EXCLUSIVE_IN_USE:
            self._consuming.end_subscription(self._subscription, "queue in exclusive use")
        else:
            self._consuming.note_attached(self._subscription)


@final
class _PrefetchesTold:
    """Receiver of the answer to a SET_PREFETCH, which has no waiter."""

    def __init__(self, consuming: Consuming) -> None:
        self._consuming = consuming

    def __call__(self, future: Answer) -> None:
        if future.cancelled() or future.exception() is not None:
            return  # the queue is gone, and the channel was told of it
        self._consuming.prefetches_told()
