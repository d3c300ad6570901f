"""A pika publisher that counts on nothing but its confirms."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import pika
from e2e.harness.worker import Worker
from pika.adapters.select_connection import SelectConnection

WINDOW: Final = 500  # unconfirmed publishes allowed


class Publisher(Worker):
    """Publishes messages 1, 2, 3 ... to one queue and notes which were confirmed.

    A connection that breaks leaves its unconfirmed messages unknown: they are never published
    again, and numbering goes on, so that whatever arrives twice is the broker's doing.

    Args:
        ports: AMQP ports to try in turn.
        queue: where to publish, through the default exchange.
        count: how many messages to get confirmed before stopping.
        size: bytes of a body; the number stands in front.
        window: unconfirmed publishes allowed.
        name: what its connection calls itself, "" for nothing.
    """

    def __init__(
        self,
        ports: list[int],
        queue: str,
        count: int,
        size: int,
        window: int = WINDOW,
        name: str = "",
    ) -> None:
        super().__init__("publisher")
        self.confirmed: set[int] = set()
        self.rejected: set[int] = set()
        self.unknown: set[int] = set()
        self.reconnects = 0
        self._ports = ports
        self._queue = queue
        self._count = count
        self._size = size
        self._window = window
        self._properties = {"connection_name": name} if name else None
        self._next = 1
        self._outstanding: OrderedDict[int, int] = OrderedDict()
        self._tag = 0
        self._channel: Any = None

    def wait_confirmed(self, count: int, seconds: float) -> bool:
        """Wait until `count` messages are confirmed."""
        with self.progress:
            return self.progress.wait_for(
                lambda: len(self.confirmed) >= count or self.failure is not None, seconds
            ) and (self.failure is None)

    def work(self) -> None:
        """Publish until enough is confirmed, over as many connections as it takes."""
        attempt = 0
        while not self._done():
            self._one_connection(self._ports[attempt % len(self._ports)])
            attempt += 1
            if not self._done():
                self._halt.wait(0.2)
                self.reconnects += 1

    def _done(self) -> bool:
        return len(self.confirmed) >= self._count or self._halt.is_set()

    def _one_connection(self, port: int) -> None:
        parameters = pika.ConnectionParameters(
            "127.0.0.1",
            port,
            heartbeat=10,
            socket_timeout=5,
            blocked_connection_timeout=60,
            client_properties=self._properties,
        )
        connection = SelectConnection(
            parameters,
            on_open_callback=self._opened,
            on_open_error_callback=lambda c, _: c.ioloop.stop(),
            on_close_callback=lambda c, _: c.ioloop.stop(),
        )
        connection.ioloop.start()
        connection.ioloop.close()
        self.unknown.update(self._outstanding.values())
        self._outstanding.clear()
        self._channel = None

    def _opened(self, connection: SelectConnection) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        self._channel = channel
        self._tag = 0
        channel.add_on_close_callback(_leave_loop)
        channel.confirm_delivery(self._answered, callback=lambda _: self._fill())

    def _fill(self) -> None:
        channel = self._channel
        properties = pika.BasicProperties(delivery_mode=2)
        while len(self._outstanding) < self._window and not self._done():
            body = str(self._next).encode().ljust(self._size, b".")
            channel.basic_publish("", self._queue, body, properties)
            self._tag += 1
            self._outstanding[self._tag] = self._next
            self._next += 1
        if self._done() and channel.connection.is_open:
            channel.connection.close()

    def _answered(self, frame: Any) -> None:
        method = frame.method
        into = self.confirmed if isinstance(method, pika.spec.Basic.Ack) else self.rejected
        with self.progress:
            if method.multiple:
                while self._outstanding and next(iter(self._outstanding)) <= method.delivery_tag:
                    into.add(self._outstanding.popitem(last=False)[1])
            else:
                into.add(self._outstanding.pop(method.delivery_tag))
            self.progress.notify_all()
        if self._channel is not None and self._channel.is_open:
            self._fill()


def _leave_loop(channel: Any, _reason: Exception) -> None:
    """End a connection whose channel is gone; one that closes itself ends once its socket is."""
    if not channel.connection.is_closing:
        channel.connection.ioloop.stop()
