"""A client without manners: sends whatever frames a test wants."""

from __future__ import annotations

import select
import socket
import time
from typing import Any

from pamqp import commands, frame, header

FRAME_OVERHEAD = 8


class RawClient:
    """One TCP connection to a node.

    Args:
        port: AMQP port on loopback.
        heartbeat: seconds to agree on, 0 for none.
    """

    def __init__(self, port: int, heartbeat: int = 0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._heartbeat = heartbeat
        self._buffer = b""

    def send(self, command: Any, channel: int = 0) -> None:
        """Send one method, header or body."""
        self.socket.sendall(frame.marshal(command, channel))

    def receive(self) -> tuple[int, Any]:
        """Return the next frame as (channel, value).

        Raises:
            EOFError: the node closed the connection.
        """
        while True:
            used, channel, value = frame.unmarshal(self._buffer) if self._whole() else (0, 0, None)
            if used:
                self._buffer = self._buffer[used:]
                return channel, value
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self._buffer += data

    def receive_within(self, seconds: float) -> tuple[int, Any] | None:
        """Return the next frame, None when none came in time (0: what is here already).

        Raises:
            EOFError: the node closed the connection.
        """
        deadline = time.monotonic() + seconds
        while not self._whole():
            readable, _, _ = select.select(
                [self.socket], [], [], max(0, deadline - time.monotonic())
            )
            if not readable:
                return None
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self._buffer += data
        return self.receive()

    def _whole(self) -> bool:
        if len(self._buffer) < FRAME_OVERHEAD:
            return False
        return len(self._buffer) >= int.from_bytes(self._buffer[3:7], "big") + FRAME_OVERHEAD

    def receive_for_ever(self) -> None:
        """Read and say nothing, until the node ends it.

        Raises:
            EOFError: the node closed the connection.
        """
        while True:
            self.receive()

    def expect(self, kind: type[Any]) -> Any:
        """Return the next value that is no heartbeat; it must be a `kind`."""
        while True:
            _, value = self.receive()
            if isinstance(value, kind):
                return value
            name = type(value).__name__
            assert name == "Heartbeat", f"{name} instead of {kind.__name__}: {value!r}"

    def log_in(self) -> RawClient:
        """Open the connection up to and with connection.open-ok."""
        self.socket.sendall(header.ProtocolHeader(0, 9, 1).marshal())
        self.expect(commands.Connection.Start)
        self.send(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"))
        tune = self.expect(commands.Connection.Tune)
        self.send(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, self._heartbeat))
        self.send(commands.Connection.Open("/"))
        self.expect(commands.Connection.OpenOk)
        return self

    def open_channel(self, channel: int = 1) -> RawClient:
        """Open a channel."""
        self.send(commands.Channel.Open(), channel)
        self.expect(commands.Channel.OpenOk)
        return self

    def close(self) -> None:
        """Drop the connection."""
        self.socket.close()
