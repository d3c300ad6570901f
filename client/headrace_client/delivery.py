"""A message that came to a consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from typing import Any, Final, Protocol

from headrace_client.error import HeadraceError
from headrace_client.message import NO_PROPERTIES, Properties
from headrace_protos.broker.v1 import messaging_pb2

ACCEPT: Final = (messaging_pb2.ACCEPT, False, False)
RELEASE: Final = (messaging_pb2.RELEASE, False, False)
REJECT: Final = (messaging_pb2.REJECT, False, False)

Outcome = tuple[messaging_pb2.Outcome.ValueType, bool, bool]


def goes_back(outcome: Outcome) -> bool:
    """Return whether a delivery with that outcome is in its queue again."""
    kind, _, undeliverable = outcome
    return kind == messaging_pb2.RELEASE or (kind == messaging_pb2.MODIFY and not undeliverable)


class OpenSettles:
    """Outcomes of the deliveries of a stream that the queue has not answered."""

    def __init__(self) -> None:
        self.ids: set[int] = set()  # of deliveries
        self.error: HeadraceError | None = None  # no answer will come for these
        self._waiters: dict[int, list[asyncio.Future[None]]] = {}  # by delivery id

    def waiter(self, delivery_id: int) -> asyncio.Future[None]:
        """Return what is done when the outcome of a delivery is known."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(delivery_id, []).append(waiter)
        return waiter

    def settled(self, first: int, last: int) -> None:
        """The queue knows of the outcomes of some deliveries."""
        numbers: Iterable[int] = range(first, last + 1)
        if last - first >= len(self.ids):  # more than can be meant
            numbers = [number for number in self.ids if first <= number <= last]
        self.ids.difference_update(numbers)
        if self._waiters:
            self._wake([number for number in numbers if number in self._waiters])

    def fail(self, error: HeadraceError) -> None:
        """Fail all of them: no answer will come."""
        self.error = error
        self._wake(list(self._waiters))

    def _wake(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            for waiter in self._waiters.pop(number):
                if not waiter.done():
                    waiter.set_result(None)


class Settlement:
    """Awaited, it returns once the queue has applied it; awaiting is optional.

    It raises what came instead, StaleDeliveryError above all. Nothing refers to it but who holds
    it: most are dropped at once.
    """

    __slots__ = ("_delivery_id", "_open")

    def __init__(self, settles: OpenSettles, delivery_id: int) -> None:
        self._open = settles  # of its stream
        self._delivery_id = delivery_id

    @property
    def is_done(self) -> bool:
        """True if the outcome is known."""
        return self._open.error is not None or self._delivery_id not in self._open.ids

    def __await__(self) -> Generator[Any, None, None]:
        if not self.is_done:
            yield from self._open.waiter(self._delivery_id)
        if self._delivery_id in self._open.ids and self._open.error is not None:
            raise self._open.error


def failed_settlement(error: HeadraceError) -> Settlement:
    """Return the settlement of a delivery that cannot be settled."""
    settles = OpenSettles()
    settles.ids.add(0)
    settles.fail(error)
    return Settlement(settles, 0)


class Settler(Protocol):
    """The consumer that settles a delivery."""

    def settle(self, delivery: Delivery, outcome: Outcome) -> Settlement:
        """Take an outcome."""


class Delivery:
    """A message and where it came from."""

    __slots__ = (
        "_message",
        "_properties",
        "_settler",
        "body",
        "delivery_id",
        "is_settled",
        "stream",
    )

    def __init__(
        self, message: messaging_pb2.Delivery, settler: Settler | None = None, stream: int = 0
    ) -> None:
        self.body = message.body  # any bytes
        # 1, 2, 3, ... on its stream; 0 of one that was taken by `get`
        self.delivery_id = message.delivery_id
        self.stream = stream  # number of the consumer's stream on which it came, from 1
        self.is_settled = settler is None
        self._message = message
        self._properties: Properties | None = None
        self._settler = settler

    @property
    def exchange(self) -> str:
        """The exchange that it was published to; "" is the default exchange."""
        return self._message.exchange

    @property
    def routing_key(self) -> str:
        """The routing key that it was published with."""
        return self._message.routing_key

    @property
    def redelivered(self) -> bool:
        """True if it was delivered before."""
        return self._message.redelivered

    @property
    def delivery_count(self) -> int:
        """Deliveries before that failed."""
        return self._message.delivery_count

    @property
    def acquired_count(self) -> int:
        """Deliveries before, failed or not."""
        return self._message.acquired_count

    @property
    def properties(self) -> Properties:
        """Its properties."""
        if self._properties is None:
            if self._message.HasField("properties"):
                self._properties = Properties.from_pb(self._message.properties)
            else:
                self._properties = NO_PROPERTIES
        return self._properties

    def accept(self) -> Settlement:
        """It is done: it leaves the queue."""
        return self._settle(ACCEPT)

    def release(self) -> Settlement:
        """It goes back to its place, and does not count as failed."""
        return self._settle(RELEASE)

    def reject(self) -> Settlement:
        """It will never do: it is dead-lettered, or dropped."""
        return self._settle(REJECT)

    def modify(self, *, failed: bool = True, undeliverable: bool = False) -> Settlement:
        """It goes back to its place.

        Args:
            failed: that counts against the queue's delivery limit.
            undeliverable: it does not go back but as `reject` says.
        """
        return self._settle((messaging_pb2.MODIFY, failed, undeliverable))

    def _settle(self, outcome: Outcome) -> Settlement:
        if self._settler is None:
            raise ValueError("this message was settled before it came")
        if self.is_settled:
            raise ValueError(f"delivery {self.delivery_id} is settled already")
        self.is_settled = True
        return self._settler.settle(self, outcome)

    def __repr__(self) -> str:
        where = f"{self.exchange or '(default)'!s}/{self.routing_key}"
        return f"<Delivery {self.delivery_id} of {len(self.body)} bytes, {where}>"
