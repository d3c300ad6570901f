"""Consuming: a stream of deliveries that comes back when it is lost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import grpc

from headrace_client.delivery import Delivery, Outcome, Settlement, failed_settlement, goes_back
from headrace_client.error import (
    BrokerFaultError,
    ClosedError,
    HeadraceError,
    StaleDeliveryError,
    TooLateError,
    from_code,
)
from headrace_client.kept_stream import KeptStream
from headrace_client.limits import CALL_SECONDS, PREFETCH, PREFETCH_MAX, SETTLES_WAITING_MAX
from headrace_client.link import Link
from headrace_client.placement import Placement
from headrace_client.settle_batch import SettleBatch
from headrace_client.value import encode_table
from headrace_protos.broker.v1 import messaging_pb2
from headrace_protos.broker.v1.messaging_pb2 import (
    Cancel,
    ConsumeOpen,
    ConsumeRequest,
    ConsumeResponse,
    Credit,
)
from headrace_protos.broker.v1.messaging_pb2_grpc import MessagingStub


class ConsumerOptions(NamedTuple):
    """See `Client.consumer`."""

    vhost: str
    queue: str
    prefetch: int = PREFETCH
    prefetch_bytes: int = 0
    consumer_tag: str = ""
    exclusive: bool = False
    priority: int = 0
    no_ack: bool = False
    arguments: Mapping[str, Any] = {}
    name: str = ""
    until_empty: bool = False
    give_up_after_s: float | None = None
    at_leader: bool = True

    def led_queue(self) -> str:
        """Return the queue whose leader is wanted, "" for none."""
        return self.queue if self.at_leader else ""

    def opening(self) -> ConsumeRequest:
        """Return the first request of a stream."""
        return ConsumeRequest(
            open=ConsumeOpen(
                vhost=self.vhost,
                queue=self.queue,
                consumer_tag=self.consumer_tag,
                exclusive=self.exclusive,
                priority=self.priority,
                no_ack=self.no_ack,
                arguments=encode_table(self.arguments, "arguments"),
                name=self.name,
                credit=self.credit(self.prefetch, self.prefetch_bytes),
            )
        )

    def credit(self, messages: int, byte_count: int) -> Credit:
        """Return a request for more."""
        return Credit(messages=messages, octets=byte_count, drain=self.until_empty)


class Consumer:
    """Deliveries of a queue; made by `Client.consumer`, an asynchronous context manager.

        async with client.consumer("tasks") as consumer:
            async for delivery in consumer:
                ...
                delivery.accept()

    The broker sends `prefetch` deliveries ahead, and one more for each that is settled. When a
    stream is lost, those that were not settled go back to the queue and come again, here or
    elsewhere.
    """

    def __init__(self, link: Link, options: ConsumerOptions) -> None:
        if not 1 <= options.prefetch <= PREFETCH_MAX:
            raise ValueError(f"prefetch: must be 1 to {PREFETCH_MAX}, not {options.prefetch}")
        if options.prefetch_bytes < 0:
            raise ValueError(f"prefetch_bytes: must not be negative, as {options.prefetch_bytes}")
        if options.until_empty and options.prefetch_bytes:
            raise ValueError("prefetch_bytes: does not go with until_empty")
        self.node = ""  # that it consumes through, "" before it is connected
        self.consumer_tag = options.consumer_tag  # its name there
        self.stale_count = 0  # deliveries that were settled after their stream was lost
        self._link = link
        self._options = options
        self._opening = options.opening()
        # deliveries that were not taken, as many as there is credit for at most
        self._here: deque[messaging_pb2.Delivery] = deque()
        self._arrived = asyncio.Event()
        self._batch = SettleBatch()
        self._sizes: dict[int, int] = {}  # bytes of bodies that were taken and are not settled
        self._credit = [0, 0]  # to be given again: messages, bytes
        self._writable = asyncio.Event()
        self._settles = asyncio.Event()  # fewer settles wait
        self._stream_number = 0
        self._granted = 0  # deliveries that may still come
        self._drains = False  # the broker has not said yet that nothing is left
        self._empty = False  # the broker has said that nothing was left
        self._returned = False  # something went back since the last credit to drain
        self._connected = False
        self._ended = False  # nothing was left in the queue, and nothing went back
        self._failure: HeadraceError | None = None
        self.is_over = False  # it is being closed, or the queue was empty
        self.has_progress = False  # this stream has brought deliveries
        self._placement = Placement(link, options.vhost, options.led_queue())
        self._stream = KeptStream(link, self, "consumer", options.give_up_after_s)

    # Its life

    async def open(self) -> Consumer:
        """Connect, unless it is done already.

        Raises:
            HeadraceError: it cannot.
        """
        await self._stream.start()
        return self

    async def __aenter__(self) -> Consumer:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, timeout_s: float = CALL_SECONDS) -> None:
        """Send all settles to the queue; unsettled deliveries return to it."""
        self.is_over = True
        self._arrived.set()
        self._writable.set()
        await self._stream.wait(timeout_s)
        await self._stream.stop()
        self.failed(ClosedError("the consumer is closed"))

    # Deliveries

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Delivery:
        found = await self.next()
        if found is None:
            raise StopAsyncIteration
        return found

    async def next(self, timeout_s: float | None = None) -> Delivery | None:
        """Return the next delivery.

        None when the consumer is closed, or the queue is empty and it consumes until then.

        Args:
            timeout_s: seconds to wait for one, None for as long as it takes.

        Raises:
            TooLateError: none came in time.
            NotFoundError: the queue is gone.
            HeadraceError: the consumer failed.
        """
        if not self._stream.is_started:
            raise ClosedError("the consumer is not open: `async with` it, or await open()")
        if not self._here or self._batch.waiting_count >= SETTLES_WAITING_MAX:
            await self._wait(timeout_s)
        return self._take() if self._here else None

    def _take(self) -> Delivery:
        settler = None if self._options.no_ack else self
        delivery = Delivery(self._here.popleft(), settler, self._stream_number)
        size = len(delivery.body)
        if settler is None:
            self._give_back(size)
        else:
            self._sizes[delivery.delivery_id] = size
        return delivery

    async def next_many(self, most: int, timeout_s: float | None = None) -> list[Delivery]:
        """Return the next delivery and those that are here behind it, up to some; none at the end.

        Raises:
            HeadraceError: as `next`.
        """
        first = await self.next(timeout_s)
        found = [first] if first is not None else []
        while found and self._here and len(found) < most:
            found.append(self._take())
        return found

    async def _wait(self, timeout_s: float | None) -> None:
        """Wait for a delivery, or the end."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._settles_taken()
                while not self._here:
                    if self._ended or self.is_over:
                        return
                    if self._failure is not None:
                        raise self._failure
                    if self._empty and self._look_again():
                        return
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError as error:
            if isinstance(error, HeadraceError):
                raise
            raise TooLateError(f"no delivery within {timeout_s or 0:g} s") from None

    def _look_again(self) -> bool:
        """Return whether the queue is empty; drain once more where something went back to it."""
        if not self._returned:
            self._ended = True
        elif not self._batch.open_count:  # the queue has it
            self._empty = self._returned = False
            self._writable.set()
        return self._ended

    async def _settles_taken(self) -> None:
        """Wait while the broker does not accept settles: their number is bounded."""
        while self._batch.waiting_count >= SETTLES_WAITING_MAX and self._failure is None:
            self._settles.clear()
            await self._settles.wait()

    def settle(self, delivery: Delivery, outcome: Outcome) -> Settlement:
        """Take what became of a delivery; see `Delivery`."""
        size = self._sizes.pop(delivery.delivery_id, None) if self._is_current(delivery) else None
        if size is None or self._failure is not None:
            self.stale_count += 1
            return failed_settlement(self._failure or _stale(delivery))
        settlement = self._batch.add(delivery.delivery_id, outcome)
        self._returned = self._returned or goes_back(outcome)
        self._give_back(size)
        return settlement

    def _is_current(self, delivery: Delivery) -> bool:
        return delivery.stream == self._stream_number

    def _give_back(self, byte_count: int) -> None:
        self._credit[0] += 1
        self._credit[1] += byte_count if self._options.prefetch_bytes else 0
        self._writable.set()

    @property
    def is_connected(self) -> bool:
        """True while there is a stream."""
        return self._connected

    @property
    def unsettled_count(self) -> int:
        """Deliveries that came on this stream and are not settled."""
        return len(self._sizes) + (0 if self._options.no_ack else len(self._here))

    # The stream

    def call(self, channel: grpc.aio.Channel) -> Any:
        """See `StreamUser`."""
        stub: Any = MessagingStub(channel)
        return stub.Consume(metadata=self._link.metadata)

    async def place(self) -> str | None:
        """See `StreamUser`."""
        return await self._placement.endpoint()

    def opening(self) -> ConsumeRequest:
        """See `StreamUser`."""
        return self._opening

    def begin(self, answer: ConsumeResponse) -> None:
        """See `StreamUser`."""
        if answer.WhichOneof("kind") != "opened":
            raise BrokerFaultError("the broker has not begun the stream")
        self.node = answer.opened.node
        self.consumer_tag = answer.opened.consumer_tag
        self._stream_number += 1
        self._credit = [0, 0]
        self._granted = self._options.prefetch
        self._drains = self._options.until_empty
        self._empty = self._returned = False
        self._connected = True

    async def write(self, call: Any) -> None:
        """See `StreamUser`: the settles, and the credit for them."""
        cancelled = False
        while True:
            self._writable.clear()
            for settle in self._batch.take():
                await call.write(ConsumeRequest(settle=settle))
            self._settles.set()
            if self.is_over and not cancelled:
                cancelled = True
                await call.write(ConsumeRequest(cancel=Cancel()))
            if cancelled and not self._batch.open_count:
                await call.done_writing()
                return
            if self._credit[0] and not (cancelled or self._empty or self._drains):
                await call.write(ConsumeRequest(credit=self._take_credit()))
            if not self._writable.is_set():
                await self._writable.wait()

    def _take_credit(self) -> Credit:
        (messages, byte_count), self._credit = self._credit, [0, 0]
        self._granted += messages
        self._drains = self._options.until_empty
        return self._options.credit(messages, byte_count)

    def receive(self, answer: ConsumeResponse) -> None:
        """See `StreamUser`."""
        kind = answer.WhichOneof("kind")
        if kind == "deliveries":
            self._deliver(answer)
        elif kind == "settled":
            for each in answer.settled.ranges:
                self._batch.settled(each.first, each.last)
            self._writable.set()
            self._arrived.set()
        elif kind == "drained":
            self._drains = False
            self._empty = answer.drained.messages > 0  # nothing was left for these
            self._credit[0] += answer.drained.messages
            self._granted -= answer.drained.messages
            self._arrived.set()
            self._writable.set()
        elif kind == "cancelled" and answer.cancelled.code:
            cancelled = answer.cancelled
            text = cancelled.reason or "the queue has ended the consumer"
            raise self._stream.fatal(from_code(cancelled.code, text))

    def _deliver(self, answer: ConsumeResponse) -> None:
        together = answer.deliveries.deliveries
        self._granted -= len(together)
        if self._granted < 0:
            raise BrokerFaultError("the broker has sent more than there was credit for")
        self._here.extend(together)
        self.has_progress = True
        self._arrived.set()

    def lost(self, error: HeadraceError) -> None:
        """See `StreamUser`: its unsettled deliveries come again."""
        self.is_over = self.is_over or self._ended
        self._connected = False
        self._here.clear()
        self._sizes.clear()
        text = f"the stream was lost before the queue knew: {error.text}"
        self._batch.fail(StaleDeliveryError(text, error.code, error.reason))
        self._settles.set()

    def failed(self, error: HeadraceError) -> None:
        """Note the final failure of the stream. The first one counts."""
        if self._failure is None:
            self._failure = error
        self.lost(self._failure)
        self._arrived.set()


def _stale(delivery: Delivery) -> StaleDeliveryError:
    return StaleDeliveryError(
        f"the stream of delivery {delivery.delivery_id} is gone: it goes back to its queue"
    )
