"""An AMQP client for chaos: one channel, bounded waits, and refusals as exceptions."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import Any, Final

from e2e.chaos.cluster import AMQP_PORT, ChaosNode
from e2e.harness.raw_client import RawClient
from e2e.harness.worker import Worker
from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.common import FieldTable
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

CHANNEL: Final = 1
ANSWER_SECONDS: Final = 12.0  # the catalog gives up after 10
ERROR_TEXT_MAX: Final = 200


class RefusedError(Exception):
    """The node closed the channel or the connection.

    Attributes:
        code: the reply code.
        channel_only: the connection, and with it this client, can go on with `reopen`.
    """

    def __init__(self, code: int, text: str, channel_only: bool) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.channel_only = channel_only


# What ends a connection that nemeses play with.
BROKEN: Final = (OSError, EOFError, RefusedError)


def describe(error: BaseException) -> str:
    """Return a short text that is the same for errors of the same kind."""
    return re.sub(r"[0-9]+", "N", f"{type(error).__name__} {error}")[:ERROR_TEXT_MAX]


def _check_closed(value: Any) -> None:
    if isinstance(value, commands.Connection.Close | commands.Channel.Close):
        alone = isinstance(value, commands.Channel.Close)
        raise RefusedError(value.reply_code or 0, value.reply_text, channel_only=alone)


class ChaosWorker(Worker):
    """A client that lives on when its connections break.

    Attributes:
        errors: how often they broke in which way.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.errors: Counter[str] = Counter()


class ChaosClient(RawClient):
    """A connection with one open channel to a node, through the node's own loopback.

    Attributes:
        node: name of the process that serves it, which is that of a node with one process.

    Raises:
        OSError, EOFError: the node does not run, or does not answer.
    """

    def __init__(self, node: ChaosNode) -> None:
        with node.namespace.entered():
            super().__init__(AMQP_PORT)
        self.node = node.name
        self.socket.settimeout(ANSWER_SECONDS)
        try:
            self.log_in().open_channel(CHANNEL)
            self.node = node.process_of(self.socket.getsockname()[1])
        except BaseException:
            self.close()
            raise

    def expect(self, kind: type[Any]) -> Any:
        """Return the next value that is no heartbeat.

        Raises:
            RefusedError: the node closed the connection or the channel instead.
            EOFError: it was another one.
        """
        while True:
            _, value = self.receive()
            if isinstance(value, kind):
                return value
            _check_closed(value)
            if not isinstance(value, Heartbeat):
                raise EOFError(f"{type(value).__name__} instead of {kind.__name__}")

    def __enter__(self) -> ChaosClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next(self, seconds: float) -> Any:
        """Return the next method, header or body, None when nothing came in time.

        Raises:
            RefusedError: the node closed the channel or the connection.
        """
        got = self.receive_within(seconds)
        value = got[1] if got is not None else None
        _check_closed(value)
        return value

    def call(self, command: Any, kind: type[Any]) -> Any:
        """Send a method and wait for an answer of a `kind`; other traffic is passed over.

        Raises:
            TimeoutError: none came.
        """
        self.send(command, CHANNEL)
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            value = self.next(max(0.0, deadline - time.monotonic()))
            if isinstance(value, kind):
                return value
            if value is None:
                raise TimeoutError(f"{self.node} did not answer {type(command).__name__}")

    def reopen(self) -> None:
        """Open the channel again after a RefusedError that concerned it alone."""
        self.send(commands.Channel.CloseOk(), CHANNEL)
        self.open_channel(CHANNEL)

    def publish(
        self,
        queue: str,
        body: bytes,
        exchange: str = "",
        *,
        mandatory: bool = False,
        delay_ms: int = 0,
    ) -> None:
        """Send one persistent message, that is to wait in its queue for so long."""
        headers: FieldTable | None = {"x-delay": delay_ms} if delay_ms else None
        properties = commands.Basic.Properties(delivery_mode=2, headers=headers)
        method = commands.Basic.Publish(0, exchange, queue, mandatory)
        parts = (method, ContentHeader(0, len(body), properties), ContentBody(body))
        self.socket.sendall(b"".join(frame.marshal(each, CHANNEL) for each in parts))

    def body(self) -> bytes:
        """Return the body of a delivery whose method was just received.

        Raises:
            TimeoutError: the rest of it did not come.
        """
        parts: list[bytes] = []
        missing = -1
        while missing != 0:
            value = self.next(ANSWER_SECONDS)
            if value is None:
                raise TimeoutError(f"{self.node} left a delivery unfinished")
            if isinstance(value, ContentHeader):
                missing = value.body_size
            elif isinstance(value, ContentBody):
                parts.append(value.value or b"")
                missing -= len(parts[-1])
        return b"".join(parts)
