"""Publishers and consumers for those who block."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

from headrace_client import confirm as confirms
from headrace_client import consumer as consumers
from headrace_client import delivery as deliveries
from headrace_client import publisher as publishers
from headrace_client.error import HeadraceError
from headrace_client.limits import DELIVERIES_AT_ONCE
from headrace_client.loop_thread import LoopThread
from headrace_client.message import Properties
from headrace_client.waiting import Blocking, waiting, waiting_for, waiting_for_all


class Confirm(Blocking[confirms.Confirm]):
    """Publisher confirm of a message."""

    @property
    def sequence(self) -> int:
        """Number of the message."""
        return self._inner.sequence

    @property
    def resent(self) -> bool:
        """It was sent again after its stream was lost."""
        return self._inner.resent

    @property
    def is_done(self) -> bool:
        """True if the outcome of the message is known."""
        return self._inner.is_done

    @property
    def error(self) -> HeadraceError | None:
        """Error of a message that is not safe; None as long as that is not known."""
        return self._inner.error

    def wait(self) -> None:
        """Return once the message is safe.

        Raises:
            PublishRefusedError: it is not.
            HeadraceError: that is not known, for the publisher failed.
        """

        async def wait() -> None:
            await self._inner

        self._thread.run(wait())


class Publisher(Blocking[publishers.Publisher]):
    """See `headrace_client.publisher.Publisher`; a context manager that closes it."""

    publish = waiting_for(Confirm, publishers.Publisher.publish)
    publish_all = waiting_for_all(Confirm, publishers.Publisher.publish_all)
    flush = waiting(publishers.Publisher.flush)
    close = waiting(publishers.Publisher.close)

    def open(self) -> Publisher:
        """Connect, unless it is done already."""
        self._thread.run(self._inner.open())
        return self

    def __enter__(self) -> Publisher:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.run(self._inner.__aexit__(kind, error, trace))

    def publish_many(
        self,
        bodies: Iterable[bytes],
        routing_key: str | None = None,
        *,
        exchange: str | None = None,
        properties: Properties | None = None,
        sequence: int | None = None,
    ) -> list[Confirm]:
        """Send messages, each once the broker has room for it; faster than one by one.

        Args:
            bodies: one for each message.
            routing_key: as in `publish`.
            exchange: likewise.
            properties: of all messages.
            sequence: of the first; the others follow.
        """

        async def publish() -> list[confirms.Confirm]:
            return [
                await self._inner.publish(
                    body,
                    routing_key,
                    exchange=exchange,
                    properties=properties,
                    sequence=sequence + at if sequence is not None else None,
                )
                for at, body in enumerate(bodies)
            ]

        return [Confirm(self._thread, each) for each in self._thread.run(publish())]

    @property
    def node(self) -> str:
        """Node that it publishes through."""
        return self._inner.node

    @property
    def stopped_by(self) -> publishers.Stop | None:
        """Reason that holds the publisher back."""
        return self._inner.stopped_by

    @property
    def unconfirmed_count(self) -> int:
        """Messages that are not answered."""
        return self._inner.unconfirmed_count

    @property
    def resent_count(self) -> int:
        """Messages that were sent again after a stream was lost."""
        return self._inner.resent_count


class Settlement:
    """Settlement of a delivery; it need not be waited for."""

    def __init__(self, thread: LoopThread, outcome: Callable[[], deliveries.Settlement]) -> None:
        self._thread = thread
        self._outcome = outcome
        self._inner: deliveries.Settlement | None = None

    def begin(self) -> None:
        """Start the consumer; in the loop's thread."""
        self._inner = self._outcome()

    def wait(self) -> None:
        """Return once the queue knows.

        Raises:
            StaleDeliveryError: it will not, for the stream is gone.
        """

        async def wait() -> None:
            assert self._inner is not None, "the loop has taken it before it comes here"
            await self._inner

        self._thread.run(wait())


class Delivery:
    """A message that came to a consumer; see `headrace_client.delivery.Delivery`."""

    def __init__(self, thread: LoopThread, inner: deliveries.Delivery) -> None:
        self._thread = thread
        self._inner = inner
        self._settled = inner.is_settled
        self.body = inner.body
        self.exchange = inner.exchange
        self.routing_key = inner.routing_key
        self.redelivered = inner.redelivered
        self.delivery_count = inner.delivery_count
        self.acquired_count = inner.acquired_count
        self.delivery_id = inner.delivery_id

    @property
    def properties(self) -> Properties:
        """Its properties."""
        return self._inner.properties

    def accept(self) -> Settlement:
        """It is done: it leaves the queue."""
        return self._settle(self._inner.accept)

    def release(self) -> Settlement:
        """It goes back to its place, and does not count as failed."""
        return self._settle(self._inner.release)

    def reject(self) -> Settlement:
        """It will never do: it is dead-lettered, or dropped."""
        return self._settle(self._inner.reject)

    def modify(self, *, failed: bool = True, undeliverable: bool = False) -> Settlement:
        """It goes back to its place; see the asyncio client."""
        modify = self._inner.modify
        return self._settle(functools.partial(modify, failed=failed, undeliverable=undeliverable))

    def _settle(self, outcome: Callable[[], deliveries.Settlement]) -> Settlement:
        if self._settled:
            raise ValueError(f"delivery {self.delivery_id} is settled already")
        self._settled = True
        found = Settlement(self._thread, outcome)
        self._thread.soon(found.begin)
        return found


class Consumer(Blocking[consumers.Consumer]):
    """See `headrace_client.consumer.Consumer`: an iterator, and context manager that closes it.

    One thread takes deliveries; they may be settled in others.
    """

    def __init__(self, thread: LoopThread, inner: consumers.Consumer) -> None:
        super().__init__(thread, inner)
        self._here: deque[deliveries.Delivery] = deque()

    close = waiting(consumers.Consumer.close)

    def open(self) -> Consumer:
        """Connect, unless it is done already."""
        self._thread.run(self._inner.open())
        return self

    def __enter__(self) -> Consumer:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Delivery]:
        return self

    def __next__(self) -> Delivery:
        found = self.next()
        if found is None:
            raise StopIteration
        return found

    def next(self, timeout_s: float | None = None) -> Delivery | None:
        """Return the next delivery; None at the end.

        Raises:
            TooLateError: none came in time.
        """
        if not self._here:
            self._here.extend(
                self._thread.run(self._inner.next_many(DELIVERIES_AT_ONCE, timeout_s))
            )
        return Delivery(self._thread, self._here.popleft()) if self._here else None

    @property
    def node(self) -> str:
        """Node that it consumes through."""
        return self._inner.node

    @property
    def stale_count(self) -> int:
        """Deliveries that were settled after their stream was lost."""
        return self._inner.stale_count
