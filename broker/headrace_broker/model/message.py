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

from mypy_extensions import i64, mypyc_attr

COUNTS_BYTES: Final = 8  # of one position in `DeliveryRun.counts`


@mypyc_attr(acyclic=True)
@final
class Publish:
    """One message as a publisher sent it."""

    def __init__(
        self,
        channel: i64,
        route: bytes,
        mandatory: bool,
        immediate: bool,
        properties: bytes,
        body: bytes,
    ) -> None:
        self.channel = channel  # AMQP channel number, 1 to 65535
        self.route = route  # exchange and routing key, two short strings back to back
        self.mandatory = mandatory  # return it when no queue takes it
        self.immediate = immediate  # the `immediate` bit
        self.properties = properties  # property flags and list of the content header
        self.body = body  # the payload, 0 to message_bytes_max bytes


@final
class Publisher:
    """Publisher that numbers its messages, so that a queue recognises repetitions."""

    def __init__(self, name: bytes, epoch: i64) -> None:
        self.name = name  # its id, 1 to PUBLISHER_BYTES_MAX bytes
        self.epoch = epoch  # of its numbers, 0 to 2**62 - 1: those of a lower one count as had


@mypyc_attr(acyclic=True)
@final
class DeliveryRun:
    """Consecutive deliveries to one consumer whose messages stand in one batch."""

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
        self.consumer = consumer  # number of the consumer within its session, 0 for basic.get
        self.first = first  # delivery number of the first message; the rest follow without a gap
        self.blob = blob  # bytes that hold the batch
        self.base = base  # where in `blob` the batch begins
        self.positions = positions  # which messages of the batch, in delivery order
        self.redelivered = redelivered  # one byte per position, 1 if it was delivered before
        # u32 failed deliveries and u32 acquisitions before this one per position, b"" when all of
        # them are 0
        self.counts = counts

    def counts_of(self, start: i64, stop: i64) -> bytes:
        """Return `counts` of the positions from index `start` to `stop`."""
        if not self.counts:
            return b""
        return self.counts[COUNTS_BYTES * start : COUNTS_BYTES * stop]
