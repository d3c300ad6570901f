"""Dead letters: messages that a queue has let go, with what their new address depends on."""

from __future__ import annotations

from typing import final

from librt.strings import read_i64_be
from mypy_extensions import i64

from headrace_broker.codecs.batch import message_body, message_properties, message_route
from headrace_broker.core.queue.command import ENQUEUE_BATCH_OFFSET, ENQUEUE_SESSION_OFFSET
from headrace_broker.core.queue.effect import Acquired
from headrace_broker.flow.charges import NO_CAUSE
from headrace_broker.model.limits import LETTERS_CUT_OCTETS
from headrace_broker.model.session import tells_deaths
from headrace_broker.runtime.queue_log import QueueLog


@final
class Letter:
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
        """What it takes of a bound on octets."""
        return len(self.route) + len(self.properties) + len(self.body)


def in_lots(messages: list[Acquired]) -> list[list[Acquired]]:
    """Divide messages into lots of which the bodies may be copied together."""
    lots: list[list[Acquired]] = []
    octets: i64 = 0
    for message in messages:
        if not lots or octets >= LETTERS_CUT_OCTETS:
            lots.append([])
            octets = 0
        lots[-1].append(message)
        octets += message.octets
    return lots


def cut_letters(log: QueueLog, messages: list[Acquired], reason: i64) -> list[Letter]:
    """Cut messages out of the log entries that hold them; each entry is read once in a row.

    Raises:
        KeyError: an entry was forgotten.
        CorruptLogError: what is stored of it is damaged; the node is being stopped.
        OSError: its file cannot be read; the node is being stopped.
    """
    letters: list[Letter] = []
    entry_index: i64 = -1
    blob = b""
    trusted = False
    for message in messages:
        if message.entry_index != entry_index:
            entry_index = message.entry_index
            blob = log.entry_data(entry_index)
            trusted = tells_deaths(read_i64_be(blob, ENQUEUE_SESSION_OFFSET))
        letters.append(
            Letter(
                message.message_id,
                reason,
                message_route(blob, ENQUEUE_BATCH_OFFSET, message.position),
                message_properties(blob, ENQUEUE_BATCH_OFFSET, message.position),
                message_body(blob, ENQUEUE_BATCH_OFFSET, message.position),
                trusted,
            )
        )
    return letters
