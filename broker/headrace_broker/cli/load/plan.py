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
    """A load."""

    address: str  # HOST:PORT of a listener for the protocol
    login: tuple[str, str]  # user and password
    vhost: str  # where
    queues: tuple[str, ...]  # names; publishers and consumers are dealt out to them in turn
    publishers: int  # how many, each with a connection of its own
    consumers: int  # likewise
    body_bytes: int  # of each message, BODY_BYTES_MIN and more
    window: int  # messages that a publisher has sent and not seen confirmed; 0 without confirms
    rate: int  # messages a second of each publisher, 0 for as many as go
    prefetch: int  # messages that a consumer has not settled; 0 for no acknowledgements
    persistent: bool  # whether messages say that they are to be kept on disk
    tls: ClientTls | None = None  # how the nodes are known, None in the clear


class Tally:
    """Counts since the last query, and in total."""

    def __init__(self) -> None:
        self.sent = 0  # messages sent
        self.confirmed = 0  # messages confirmed
        self.received = 0  # messages received
        self.received_ns = 0  # when the last one came, of a clock that never goes back
        self.latency = Histogram()  # of what was received since the last look
        self.total_latency = Histogram()  # of all

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
