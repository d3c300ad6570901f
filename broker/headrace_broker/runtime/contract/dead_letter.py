"""Dead letters: messages that left a queue, with the values that decide their target."""

from __future__ import annotations

from typing import final

from librt.strings import read_i64_be
from mypy_extensions import i64

from headrace_broker.codecs.batch import message_body, message_properties, message_route
from headrace_broker.core.queue.command.command import ENQUEUE_BATCH_OFFSET, ENQUEUE_SESSION_OFFSET
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.flow.charges import NO_CAUSE
from headrace_broker.model.session import tells_deaths


@final
class DeadLetter:
    """One message on its way to a dead letter exchange.

    Attributes:
        message_id: its id in the queue that it leaves.
        reason: a REASON constant.
        route: exchange and routing key with which it was published, as in `Publish.route`.
        properties: flags and list, as the queue had them.
        body: the payload.
        trusted: the x-death in `properties` was written by a broker.
        cause: session that is charged for it, or NO_CAUSE or EXPIRY_CAUSE.
    """

    def __init__(
        self,
        message_id: i64,
        reason: i64,
        route: bytes,
        properties: bytes,
        body: bytes,
        trusted: bool,
    ) -> None:
        self.message_id = message_id
        self.reason = reason
        self.route = route
        self.properties = properties
        self.body = body
        self.trusted = trusted
        self.cause: i64 = NO_CAUSE

    @property
    def octets(self) -> i64:
        """Bytes that it counts against a bound."""
        return len(self.route) + len(self.properties) + len(self.body)


def cut_letter(entry: bytes, message: Acquired, reason: i64) -> DeadLetter:
    """Cut a message out of the log entry that holds it."""
    return DeadLetter(
        message.message_id,
        reason,
        message_route(entry, ENQUEUE_BATCH_OFFSET, message.position),
        message_properties(entry, ENQUEUE_BATCH_OFFSET, message.position),
        message_body(entry, ENQUEUE_BATCH_OFFSET, message.position),
        tells_deaths(read_i64_be(entry, ENQUEUE_SESSION_OFFSET)),
    )
