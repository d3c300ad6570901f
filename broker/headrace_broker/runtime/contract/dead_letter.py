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
    """One message on its way to a dead letter exchange."""

    def __init__(
        self,
        message_id: i64,
        reason: i64,
        route: bytes,
        properties: bytes,
        body: bytes,
        trusted: bool,
    ) -> None:
        self.message_id = message_id  # its id in the queue that it leaves
        self.reason = reason  # a REASON constant
        self.route = route  # exchange and routing key that it was published with
        self.properties = properties  # flags and list, as the queue had them
        self.body = body  # the payload
        self.trusted = trusted  # the x-death in `properties` was written by a broker
        self.cause: i64 = NO_CAUSE  # session that is charged for it, or NO_CAUSE or EXPIRY_CAUSE

    @property
    def byte_count(self) -> i64:
        """Bytes that it counts against a bound."""
        return len(self.route) + len(self.properties) + len(self.body)


def cut_dead_letter(entry: bytes, message: Acquired, reason: i64) -> DeadLetter:
    """Cut a message out of the log entry that holds it."""
    return DeadLetter(
        message.message_id,
        reason,
        message_route(entry, ENQUEUE_BATCH_OFFSET, message.position),
        message_properties(entry, ENQUEUE_BATCH_OFFSET, message.position),
        message_body(entry, ENQUEUE_BATCH_OFFSET, message.position),
        tells_deaths(read_i64_be(entry, ENQUEUE_SESSION_OFFSET)),
    )
