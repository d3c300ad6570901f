"""History of a run's clients: the checker's only input."""

from __future__ import annotations

import enum
from pathlib import Path

import msgspec


class Outcome(enum.StrEnum):
    """Outcome of a message as its publisher knows it."""

    CONFIRMED = "confirmed"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


class Publish(msgspec.Struct):
    """One attempt to publish; a message is never published again under the same id.

    Attributes:
        id: unique; see `message_body`.
        channel: number of the publisher's channel, over all its connections.
        number: place in the order of publishing on that channel to that queue.
    """

    id: str
    queue: str
    publisher: str
    channel: int
    number: int
    outcome: Outcome = Outcome.UNKNOWN


class Delivery(msgspec.Struct, frozen=True):
    """One delivery to a consumer. Deliveries to one consumer are listed as they arrived."""

    id: str
    queue: str
    consumer: str
    redelivered: bool


class Operation(msgspec.Struct, frozen=True):
    """A write or read of whether a thing of the catalog exists.

    Attributes:
        name: the thing: a queue, an exchange, a binding.
        node: which node was asked.
        write: True for declare, bind, delete, unbind; False for a look.
        value: exists, as written or read.
        invoked: seconds, before the request was sent.
        completed: seconds, after the answer came; None when it is not known whether the write was
            made or will be. Such a read says nothing and is not recorded.
        routing: the thing is a binding: reads are publishes that the node routes.
    """

    name: str
    node: str
    write: bool
    value: bool
    invoked: float
    completed: float | None
    routing: bool = False


class History(msgspec.Struct):
    """Everything of one run. Lists are appended to by many threads, whole items at a time."""

    publishes: list[Publish] = []
    deliveries: list[Delivery] = []
    operations: list[Operation] = []
    dead_letters: dict[str, str] = {}  # queue -> where its dead letters go
    delayed: dict[str, int] = {}  # queue -> messages that wait for a later time, at the end

    def save(self, path: Path) -> None:
        """Write it as JSON, for `python -m e2e.chaos.checker`."""
        path.write_bytes(msgspec.json.encode(self))

    @classmethod
    def load(cls, path: Path) -> History:
        """Read what `save` wrote."""
        return msgspec.json.decode(path.read_bytes(), type=cls)


def message_body(message: str, byte_count: int) -> bytes:
    """Return a body that says which message it is and how long it has to be."""
    return f"{message}/{byte_count}/".encode().ljust(byte_count, b".")


def message_id(body: bytes) -> str:
    """Return the id in a body; a damaged body gives an unpublished id."""
    parts = body.split(b"/", 2)
    if len(parts) == 3 and parts[1].isdigit():
        message = parts[0].decode("ascii", "replace")
        if message_body(message, int(parts[1])) == body:
            return message
    return f"damaged body of {len(body)} bytes: {body[:80]!r}"
