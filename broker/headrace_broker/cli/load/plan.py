"""Plan of `headrace perf`."""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from headrace_broker.cli.load.histogram import Histogram
from headrace_broker.cli.session.client_tls import ClientTls

STAMP: Final = struct.Struct(">Q")  # at the start of each body: when it was sent, in nanoseconds
BODY_BYTES_MIN: Final = STAMP.size


class Plan(msgspec.Struct, frozen=True):
    """A load.

    Attributes:
        address: HOST:PORT of a listener for the protocol.
        login: user and password.
        tls: how the nodes are known, None in the clear.
        vhost: where.
        queues: names; publishers and consumers are dealt out to them in turn.
        publishers: how many, each with a connection of its own.
        consumers: likewise.
        body_bytes: of each message, BODY_BYTES_MIN and more.
        window: messages that a publisher has sent and not seen confirmed; 0 without confirms.
        rate: messages a second of each publisher, 0 for as many as go.
        prefetch: messages that a consumer has not settled; 0 for no acknowledgements.
        persistent: whether messages say that they are to be kept on disk.
    """

    address: str
    login: tuple[str, str]
    vhost: str
    queues: tuple[str, ...]
    publishers: int
    consumers: int
    body_bytes: int
    window: int
    rate: int
    prefetch: int
    persistent: bool
    tls: ClientTls | None = None


class Tally:
    """Counts since the last query, and in total.

    Attributes:
        sent: messages sent.
        confirmed: messages confirmed.
        received: messages received.
        received_ns: when the last one came, of a clock that never goes back.
        latency: from sending to receiving, of what was received since the last look.
        total_latency: of all.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.confirmed = 0
        self.received = 0
        self.received_ns = 0
        self.latency = Histogram()
        self.total_latency = Histogram()

    def receive(self, body: bytes, now_ns: int) -> None:
        """Count a message; the age of one that has no stamp is not known."""
        self.received += 1
        self.received_ns = now_ns
        if len(body) >= STAMP.size:
            self.latency.add((now_ns - STAMP.unpack_from(body)[0]) // 1000)

    def take_latency(self) -> Histogram:
        """Return the latencies since the last call."""
        taken, self.latency = self.latency, Histogram()
        self.total_latency.merge(taken)
        return taken
