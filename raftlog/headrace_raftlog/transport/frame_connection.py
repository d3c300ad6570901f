"""The connection by which a node sends its frames to a peer."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast

from headrace_raftlog.model.limits import FRAME_WRITE_BYTES, STREAM_UNHEARD_MS
from headrace_raftlog.transport.framing import frame_head
from headrace_raftlog.transport.pb.transport_pb2 import Frame, StreamPlace
from headrace_raftlog.transport.security import Security


class FrameConnection(asyncio.Protocol):
    """Writes frames, one after the other.

    Args:
        on_lost: called once when the connection is over, whoever ended it.
    """

    def __init__(self, on_lost: Callable[[], object]) -> None:
        self._on_lost = on_lost
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have the kernel give up who acknowledges nothing."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class
        self._transport.set_write_buffer_limits(FRAME_WRITE_BYTES)
        kernel = self._transport.get_extra_info("socket")
        kernel.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STREAM_UNHEARD_MS)

    def pause_writing(self) -> None:
        """Have the next frame gather."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Have it leave."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever writes."""
        del exc
        self._on_lost()

    @property
    def certificate(self) -> bytes:
        """The certificate (DER) of the other end, empty where nothing is encrypted."""
        tls: Any = self._transport.get_extra_info("ssl_object")
        return b"" if tls is None else tls.getpeercert(True)

    def show(self, ticket: bytes) -> None:
        """Send the ticket, which is before all frames."""
        self._transport.write(ticket)

    async def write(self, frame: Frame) -> None:
        """Send a frame, and wait until there is room for another."""
        body = frame.SerializeToString()
        self._transport.writelines((frame_head(body), body))
        await self._writable.wait()

    def abort(self) -> None:
        """End the connection; what has not left is dropped."""
        self._transport.abort()


async def open_frames(
    address: str, place: StreamPlace, security: Security, peer: int, on_lost: Callable[[], object]
) -> FrameConnection:
    """Connect to a peer that has given a ticket.

    Args:
        address: host:port at which the peer was called.
        place: what it answered.
        security: what it is judged by.
        peer: its node id.
        on_lost: see `FrameConnection`.

    Raises:
        OSError: it cannot be reached, or its certificate is not the cluster's.
        StreamRefusedError: its certificate is refused.
    """
    context, name = security.outgoing(peer)
    host = address.rpartition(":")[0].strip("[]")
    try:
        connection = await _connect(host, place.port, context, name, on_lost)
    except OSError as error:
        raise OSError(f"cannot connect to {host}:{place.port} for frames: {error}") from error
    try:
        security.check_called(peer, connection.certificate)
    except BaseException:
        connection.abort()
        raise
    connection.show(place.ticket)
    return connection


async def _connect(
    host: str, port: int, context: ssl.SSLContext | None, name: str, on_lost: Callable[[], object]
) -> FrameConnection:
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: FrameConnection(on_lost),
        host,
        port,
        ssl=context,
        server_hostname=name if context is not None else None,
    )
    return connection
