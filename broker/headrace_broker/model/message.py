"""Messages as they travel between gateway and queue: bytes that are sliced and never re-encoded.

A *batch* is the unit that crosses every boundary, from socket chunk to command, log entry and
delivery:

    u32 count | count x u32 end | messages

`end` is the position after message k, counted from the first message; integers are big-endian. A
message is

    u8 n | n bytes exchange | u8 n | n bytes routing key | u32 n | n bytes properties | body

where exchange and routing key stand as in `basic.publish` and `basic.deliver`, and properties is
the content header's property flags and list, all byte for byte as the publisher sent them.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

COUNTS_OCTETS: Final = 8  # of one position in `DeliveryRun.counts`


@final
class Publish:
    """One message as a publisher sent it.

    Attributes:
        channel: AMQP channel number, 1 to 65535.
        route: exchange and routing key, two short strings (length octet + bytes) back to back.
        mandatory: return it when no queue takes it.
        immediate: the `immediate` bit.
        properties: property flags and list of the content header.
        body: the payload, 0 to message_bytes_max octets.
    """

    def __init__(
        self,
        channel: i64,
        route: bytes,
        mandatory: bool,
        immediate: bool,
        properties: bytes,
        body: bytes,
    ) -> None:
        self.channel = channel
        self.route = route
        self.mandatory = mandatory
        self.immediate = immediate
        self.properties = properties
        self.body = body


@final
class Publisher:
    """Publisher that numbers its messages, so that a queue recognises repetitions.

    Attributes:
        name: its id, 1 to PUBLISHER_OCTETS_MAX octets.
        epoch: of its numbers, 0 to 2**62 - 1: those of a lower one count as had.
    """

    def __init__(self, name: bytes, epoch: i64) -> None:
        self.name = name
        self.epoch = epoch


@final
class DeliveryRun:
    """Consecutive deliveries to one consumer whose messages stand in one batch.

    Attributes:
        consumer: number of the consumer within its session, 0 for basic.get.
        first: delivery number of the first message; the rest follow without a gap.
        blob: bytes that hold the batch.
        base: where in `blob` the batch begins.
        positions: which messages of the batch, in delivery order.
        redelivered: one octet per position, 1 when the message was delivered before.
        counts: u32 failed deliveries and u32 acquisitions before this one per position, b"" when
            all of them are 0.
    """

    def __init__(
        self,
        consumer: i64,
        first: i64,
        blob: bytes,
        base: i64,
        positions: list[int],
        redelivered: bytes,
        counts: bytes = b"",
    ) -> None:
        self.consumer = consumer
        self.first = first
        self.blob = blob
        self.base = base
        self.positions = positions
        self.redelivered = redelivered
        self.counts = counts

    def counts_of(self, start: i64, stop: i64) -> bytes:
        """Return `counts` of the positions from index `start` to `stop`."""
        if not self.counts:
            return b""
        return self.counts[COUNTS_OCTETS * start : COUNTS_OCTETS * stop]
