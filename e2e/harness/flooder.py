"""Clients that send as fast as their sockets take it and read nothing."""

from __future__ import annotations

import selectors
from collections.abc import Sequence
from typing import Final

from e2e.harness.raw_client import RawClient
from pamqp import commands, frame, header

QUIET_SECONDS: Final = 2.0  # no socket took anything for so long: they are not read any more
SEND_BYTES: Final = 1 << 16


def publish_bytes(queue: str, body: bytes, channel: int = 1, frame_bytes: int = 131064) -> bytes:
    """Return the frames of a publish through the default exchange."""
    parts = [body[at : at + frame_bytes] for at in range(0, len(body), frame_bytes)]
    head = header.ContentHeader(0, len(body), commands.Basic.Properties(delivery_mode=2))
    data = frame.marshal(commands.Basic.Publish(0, "", queue), channel)
    data += frame.marshal(head, channel)
    for part in parts:
        data += b"\x03" + channel.to_bytes(2) + len(part).to_bytes(4) + part + b"\xce"
    return data


class Flooder:
    """One client and its messages.

    Args:
        client: logged in, its channels open.
        data: to send; shared by flooders, never copied.
    """

    def __init__(self, client: RawClient, data: bytes) -> None:
        self.client = client
        self.sent = 0
        self._data = memoryview(data)
        self._end = len(data)
        self._last = b""
        client.socket.setblocking(False)

    @property
    def left(self) -> int:
        """Bytes that it has not sent."""
        return self._end - self.sent + len(self._last)

    def send_some(self) -> None:
        """Send what the socket takes.

        Raises:
            OSError: the node ended the connection.
        """
        if self.sent < self._end:
            self.sent += self.client.socket.send(
                self._data[self.sent : min(self._end, self.sent + SEND_BYTES)]
            )
        elif self._last:
            self._last = self._last[self.client.socket.send(self._last) :]

    def stop_after(self, unit: int) -> int:
        """Send nothing more but the rest of the publish that is under way, and connection.close.

        Args:
            unit: bytes of a publish; all are of one size.

        Returns:
            How many publishes that makes.
        """
        count = -(-self.sent // unit)
        self._end = count * unit
        self.then_close()
        return count

    def then_close(self) -> None:
        """Send connection.close at the end of it all."""
        self._last = frame.marshal(commands.Connection.Close(200, "done", 0, 0), 0)

    def await_close_ok(self, seconds: float) -> None:
        """Read everything up to connection.close-ok.

        Raises:
            AssertionError: the node closed the connection by itself.
            EOFError: likewise, without a word.
        """
        self.client.socket.settimeout(seconds)
        while True:
            _, value = self.client.receive()
            assert not isinstance(value, commands.Connection.Close), value
            if isinstance(value, commands.Connection.CloseOk):
                self.client.close()
                return


def pump(flooders: Sequence[Flooder], quiet_seconds: float = QUIET_SECONDS) -> None:
    """Send for all until nothing is left, or no socket has taken anything for a while."""
    with selectors.DefaultSelector() as selector:
        for flooder in flooders:
            if flooder.left:
                selector.register(flooder.client.socket, selectors.EVENT_WRITE, flooder)
        while selector.get_map():
            ready = selector.select(quiet_seconds)
            if not ready:
                return
            for key, _ in ready:
                key.data.send_some()
                if not key.data.left:
                    selector.unregister(key.fileobj)
