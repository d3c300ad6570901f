"""A well-behaved client: it publishes at a low rate, with confirms, and consumes its messages."""

from __future__ import annotations

import struct
import threading
import time
from typing import Any, Final, NamedTuple

from pamqp import commands

from neighbours.wire import Wire, method, publish

QUEUE: Final = "healthy"
RATE: Final = 50  # messages a second
STAMP: Final = struct.Struct(">d")
BASIC_ACK: Final = b"\x00\x3c\x00\x50"
BASIC_DELIVER: Final = b"\x00\x3c\x00\x3c"
FRAME_BODY: Final = 3


class Latencies(NamedTuple):
    """Seconds from publish to confirm and to delivery, each with the time of its publish."""

    confirms: list[tuple[float, float]]
    deliveries: list[tuple[float, float]]

    def between(self, begin: float, end: float) -> Latencies:
        """Return those of messages that were published then."""
        return Latencies(
            [each for each in self.confirms if begin <= each[0] < end],
            [each for each in self.deliveries if begin <= each[0] < end],
        )


class Healthy:
    """The measured client: a connection that publishes and one that consumes.

    Messages leave on schedule, whether or not those before them were confirmed.
    """

    def __init__(self, port: int) -> None:
        self.found = Latencies([], [])
        self._stopped = threading.Event()
        self._sent: list[float] = []
        self._publisher = Wire(port)
        self._consumer = Wire(port)
        self._publisher.ask(1, commands.Channel.Open())
        arguments: Any = {"x-queue-type": "quorum"}
        self._publisher.ask(1, commands.Queue.Declare(0, QUEUE, durable=True, arguments=arguments))
        self._publisher.ask(1, commands.Confirm.Select())
        self._consumer.ask(1, commands.Channel.Open())
        self._consumer.ask(1, commands.Basic.Qos(0, 100))
        self._consumer.ask(1, commands.Basic.Consume(0, QUEUE))
        self._threads = [
            threading.Thread(target=run, daemon=True)
            for run in (self._publish, self._confirm, self._consume)
        ]

    def start(self) -> None:
        """Begin to publish."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop publishing, wait some seconds for pending messages and close."""
        self._stopped.set()
        self._threads[0].join()
        end = time.monotonic() + 30
        while len(self.found.confirms) < len(self._sent) and time.monotonic() < end:
            time.sleep(0.05)
        late = time.monotonic()
        for sent in self._sent[len(self.found.confirms) :]:
            self.found.confirms.append((sent, late - sent))  # at least so long
        self._publisher.close()
        self._consumer.close()

    def _publish(self) -> None:
        due = time.monotonic()
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            now = time.monotonic()
            self._sent.append(now)
            self._publisher.send(publish(1, "", QUEUE, STAMP.pack(now) + bytes(100)))
            due += 1 / RATE

    def _confirm(self) -> None:
        confirmed = 0
        try:
            while True:
                _, payload = self._publisher.byte_counts()
                if payload[:4] == BASIC_ACK:
                    tag = int.from_bytes(payload[4:12])
                    last = tag if payload[12] & 1 else confirmed + 1
                    now = time.monotonic()
                    for sent in self._sent[confirmed:last]:
                        self.found.confirms.append((sent, now - sent))
                    confirmed = last
        except (OSError, ValueError):
            return  # the socket was closed

    def _consume(self) -> None:
        tag = 0
        try:
            while True:
                kind, payload = self._consumer.byte_counts()
                if kind == FRAME_BODY:
                    (sent,) = STAMP.unpack(payload[:8])
                    self.found.deliveries.append((sent, time.monotonic() - sent))
                    self._consumer.send(method(commands.Basic.Ack(tag), 1))
                elif payload[:4] == BASIC_DELIVER:
                    size = payload[4]
                    tag = int.from_bytes(payload[5 + size : 13 + size])
        except (OSError, ValueError):
            return  # the socket was closed
