"""A message that came to a consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
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


class Settlement:
    """Awaited, it returns once the queue has applied it; awaiting is optional.

    It raises what came instead, StaleDeliveryError above all.
    """

    __slots__ = ("_done", "_error", "_waiters")

    def __init__(self) -> None:
        self._done = False
        self._error: HeadraceError | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def is_done(self) -> bool:
        """True if the outcome is known."""
        return self._done

    def __await__(self) -> Generator[Any, None, None]:
        if not self._done:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            raise self._error

    def settle(self, error: HeadraceError | None = None) -> None:
        """Set the outcome."""
        if self._done:
            return
        self._done = True
        self._error = error
        if self._waiters is not None:
            waiters, self._waiters = self._waiters, None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)


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
