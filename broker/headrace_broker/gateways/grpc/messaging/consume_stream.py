"""A consume stream without its call: credit and settles in, deliveries out.

A queue serves a consumer up to a number of unsettled deliveries; a client gives credit, which
settling does not renew. As long as a client gives as much as it settles, both are the same: the
consumer was attached for its first credit. Otherwise the stream attaches its consumer anew:
with more, when the client has credit left and the queue thinks that it has not; and when the queue
gives more than there is credit for, that goes back, and the consumer ends until there is credit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from headrace_broker.codecs.batch import body_bytes, message_body_bytes
from headrace_broker.flow.account import Account
from headrace_broker.gateways.grpc.messaging.credit import StreamCredit
from headrace_broker.gateways.grpc.messaging.delivery_ids import DeliveryIds
from headrace_broker.gateways.grpc.server.errors import too_large
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import MESSAGE_BYTES_WHOLE
from headrace_broker.model.message import DeliveryRun
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.contract.port import (
    ACCEPT,
    GET_CONSUMER,
    RELEASE,
    Attachment,
    QueueClient,
    QueueListener,
)
from headrace_broker.runtime.contract.traffic import ClientTraffic


class Ready:
    """Deliveries that may be sent."""

    def __init__(self, run: DeliveryRun, start: int, stop: int, first_id: int) -> None:
        self.run = run  # where they stand
        self.start = start  # index of the first in the run
        self.stop = stop  # index behind the last
        self.first_id = first_id  # what the client knows the first by


class ConsumeStream(QueueListener):
    """One consumer of one queue."""

    def __init__(
        self,
        broker: Broker,  # the node
        queue: Queue,  # what is consumed
        account: Account,  # owes for what is caused by settling
        no_ack: bool,
        make: Callable[[int], Attachment],
        wake: Callable[[], None],
    ) -> None:
        self.credit = StreamCredit()  # what the client may get
        # what the client knows deliveries by, and which of them are not settled
        self.ids = DeliveryIds()
        self.ended = ""  # why the consumer ended unasked, "" while it has not
        self.left = 0  # messages that waited when one was fetched last
        self.timed_out = False  # it ended since it held a delivery for too long
        self.traffic = ClientTraffic()  # what has passed it
        self._client = broker.open_queue(queue, self, account)
        self._no_ack = no_ack  # deliveries are settled as they are taken to be sent
        # returns how the queue serves the consumer, for a number of unsettled deliveries
        self._make = make
        self._wake = wake  # called when there is something to send or to do
        self._runs: deque[DeliveryRun] = deque()
        self._start = 0  # index of what comes next in the first of them
        self._number = 0  # of the consumer that is attached, 0 for none
        self._next_number = 1
        self.prefetch = 0  # what it was attached for
        self._closed = False
        self._is_surplus = False  # the queue gave more than there is credit for

    # The consumer

    @property
    def is_attached(self) -> bool:
        """True if the queue serves it."""
        return self._number != 0

    @property
    def should_attach(self) -> bool:
        """True if there is credit and the queue serves nothing, or too little."""
        if self.ended or not self.credit.is_left:
            return False
        if not self.is_attached:
            return True
        return self.ids.held_by(self._number) >= self.prefetch and not self._runs

    @property
    def should_detach(self) -> bool:
        """True if the queue gives more than there is credit for."""
        return self._is_surplus and self.is_attached and not self.credit.is_left

    async def attach(self) -> None:
        """Request deliveries from the queue, as many as there is credit for.

        Raises:
            AmqpError: ACCESS_REFUSED, NOT_FOUND: see `QueueClient.attach`.
        """
        await self.detach()
        number = self._next_number
        self._next_number += 1
        attachment = self._make(self.credit.messages)
        self._number, self.prefetch = number, int(attachment.prefetch)
        self._is_surplus = False
        await self._client.attach(number, attachment)

    async def detach(self) -> None:
        """End the consumer; unsent deliveries return, sent ones may be settled."""
        number, self._number = self._number, 0
        if number:
            await self._client.cancel(number)  # before that, what goes back would come again
            self.give_back()

    def give_back(self) -> None:
        """Return unsent deliveries to the queue."""
        while self._runs:
            run = self._runs.popleft()
            first = int(run.first) + self._start
            last = int(run.first) + len(run.positions) - 1
            self._start = 0
            self._client.settle(int(run.consumer), RELEASE, first, last)
        self._client.flush()

    async def fetch(self, count: int) -> bool:
        """Take messages that wait, while there is no consumer; False when there are fewer.

        Raises:
            AmqpError: the queue is gone, or does not answer.
        """
        found = await asyncio.gather(*[self._client.get() for _ in range(count)])
        for each in found:
            if each is not None:
                self._runs.append(each[0])
                self.left = each[1]
        return None not in found

    # Deliveries

    def take(self, count_max: int, bytes_max: int) -> list[Ready]:
        """Take deliveries for which there is credit, and spend it.

        Args:
            count_max: at most so many.
            bytes_max: of their bodies; one message may exceed it.

        Raises:
            CallError: RESOURCE_EXHAUSTED, what is next is too large; all that is here went back.
        """
        taken: list[Ready] = []
        while self._runs and count_max > 0 and bytes_max > 0 and self.credit.is_left:
            run, start = self._runs[0], self._start
            at = start
            while (
                at < len(run.positions) and count_max > 0 and bytes_max > 0 and self.credit.is_left
            ):
                byte_count = int(message_body_bytes(run.blob, run.base, run.positions[at]))
                if byte_count > MESSAGE_BYTES_WHOLE:
                    if not taken and at == start:
                        self._refuse(byte_count)
                    bytes_max = 0
                    break
                self.credit.spend(byte_count)
                bytes_max -= byte_count
                count_max -= 1
                at += 1
            if at == start:
                break
            number, first = int(run.consumer), int(run.first) + start
            first_id = self.ids.issue(number, first, at - start, not self._no_ack)
            taken.append(Ready(run, start, at, first_id))
            self.traffic.delivered(run.redelivered[start:at], self._no_ack)
            if self._no_ack:
                self._client.settle(number, ACCEPT, first, first + at - start - 1)
            if at == len(run.positions):
                self._runs.popleft()
                self._start = 0
            else:
                self._start = at
        if taken and self._no_ack:
            self._client.flush()
        if self._runs and not self.credit.is_left:
            self._is_surplus = True
        return taken

    def _refuse(self, byte_count: int) -> None:
        """Give a message back that cannot be sent, and all behind it; always raises."""
        self.give_back()
        raise too_large(f"the next message has a body of {byte_count} bytes")

    def sent(self, taken: list[Ready]) -> None:
        """Note that the taken deliveries have been written."""
        for ready in taken:
            run = ready.run
            if run.consumer != GET_CONSUMER:
                positions = run.positions[ready.start : ready.stop]
                byte_count = int(body_bytes(run.blob, run.base, positions))
                self._client.consumed(int(run.consumer), byte_count)

    # Settling

    def settle(self, first: int, last: int, operation: int) -> bool:
        """Settle deliveries; False, and nothing is done, when one of them is not unsettled."""
        rows = self.ids.settle(first, last)
        if rows is None:
            return False
        for number, low, high in rows:
            if operation == ACCEPT:
                self.traffic.ack += high - low + 1
            self._client.settle(number, operation, low, high)
        return True

    def flush(self) -> None:
        """Send the gathered settles."""
        self._client.flush()

    async def applied(self) -> None:
        """Wait until the queue has applied the settles.

        Raises:
            AmqpError: INTERNAL_ERROR, it does not answer.
        """
        await self._client.applied()

    def close(self) -> None:
        """The stream is over: everything unsettled goes back."""
        if not self._closed:
            self._closed = True
            self._runs.clear()
            self._client.flush()
            self._client.close()

    # From the queue

    def on_delivery(self, client: QueueClient, run: DeliveryRun) -> None:
        """See `QueueListener`."""
        if self._closed:
            return
        if int(run.consumer) != self._number:
            last = int(run.first) + len(run.positions) - 1
            client.settle(int(run.consumer), RELEASE, int(run.first), last)
        else:
            self._runs.append(run)
        self._wake()

    def on_cancelled(self, client: QueueClient, consumer: int, reason: str) -> None:
        """See `QueueListener`."""
        self._end(consumer, reason or "the queue has ended the consumer")

    def on_timed_out(self, client: QueueClient, consumer: int) -> None:
        """See `QueueListener`."""
        self.timed_out = True
        self._end(self._number or consumer, "a delivery was not settled in time")

    def _end(self, consumer: int, reason: str) -> None:
        if consumer == self._number or self.timed_out:
            self._number = 0
            self._runs.clear()
            self._start = 0
            self.ids.void()
            self.ended = reason
            self._wake()
