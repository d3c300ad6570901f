"""A client connection over a plain socket: no library between the bench and the bytes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

from pamqp import base, body, commands, frame, header

HEADER: Final = b"AMQP\x00\x00\x09\x01"
FRAME_MAX: Final = 131072
HEAD: Final = struct.Struct(">BHI")
FRAME_END: Final = b"\xce"


def method(command: base.Frame, channel: int) -> bytes:
    """Return a method's frame."""
    data: bytes = frame.marshal(command, channel)
    return data


def publish(
    channel: int,
    exchange: str,
    routing_key: str,
    payload: bytes,
    mandatory: bool = False,
    headers: Any = None,
) -> bytes:
    """Return the frames of one message."""
    command = commands.Basic.Publish(0, exchange, routing_key, mandatory)
    properties = commands.Basic.Properties(headers=headers)
    parts = [method(command, channel)]
    parts.append(frame.marshal(header.ContentHeader(0, len(payload), properties), channel))
    room = FRAME_MAX - 8
    parts += [
        frame.marshal(body.ContentBody(payload[start : start + room]), channel)
        for start in range(0, len(payload), room)
    ]
    return b"".join(parts)


def heartbeat() -> bytes:
    """Return a heartbeat frame."""
    return HEAD.pack(8, 0, 0) + FRAME_END


def empty_body(channel: int) -> bytes:
    """Return a body frame without bytes."""
    return HEAD.pack(3, channel, 0) + FRAME_END


class Wire:
    """An open connection.

    Raises:
        OSError: it was refused or lost.
    """

    def __init__(self, port: int, password: str = "guest", seconds: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self.socket.makefile("rb", FRAME_MAX)
        self.socket.sendall(HEADER)
        self.read()
        start_ok = commands.Connection.StartOk({}, "PLAIN", f"\0guest\0{password}", "en_US")
        self.socket.sendall(method(start_ok, 0))
        self.read()
        tune_ok = commands.Connection.TuneOk(2047, FRAME_MAX, 0)
        self.socket.sendall(method(tune_ok, 0) + method(commands.Connection.Open("/"), 0))
        self.read()

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def ask(self, channel: int, command: base.Frame) -> Any:
        """Send a method and return the next one that comes."""
        self.send(method(command, channel))
        return self.read()

    def byte_counts(self) -> tuple[int, bytes]:
        """Return type and payload of the next frame."""
        head = self._reader.read(7)
        if len(head) < 7:
            raise ConnectionResetError("the broker has closed the connection")
        kind, _, size = HEAD.unpack(head)
        return kind, self._reader.read(size + 1)[:-1]

    def read(self) -> Any:
        """Return the next method."""
        while True:
            head = self._reader.read(7)
            if len(head) < 7:
                raise ConnectionResetError("the broker has closed the connection")
            _, _, size = HEAD.unpack(head)
            _, _, value = frame.unmarshal(head + self._reader.read(size + 1))
            if isinstance(value, base.Frame):
                return value

    def drain(self) -> Iterator[int]:
        """Read and drop what comes, and say how many bytes."""
        while True:
            count = len(self.socket.recv(1 << 20))
            if count == 0:
                return
            yield count

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
