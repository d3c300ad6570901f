"""The connection by which a node sends its frames to a peer."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, cast

from headrace_raftlog.model.limits import FRAME_WRITE_BYTES, HANDSHAKE_S_MAX, STREAM_UNHEARD_MS
from headrace_raftlog.transport.framing import frame_head
from headrace_raftlog.transport.pb.transport_pb2 import Frame, StreamPlace
from headrace_raftlog.transport.security import Security


class FrameConnection(asyncio.Protocol):
    """Writes frames, one after the other.

    Args:
        on_lost: called once when the connection is over after it was accepted, whoever ended it.

    Attributes:
        accepted: done once the peer takes frames, or with why it does not.
    """

    def __init__(self, on_lost: Callable[[], object]) -> None:
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_lost = on_lost
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have the kernel give up a peer to whom nothing gets through."""
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

    def data_received(self, data: bytes) -> None:
        """Note that the peer takes frames: it says nothing else."""
        del data
        if not self.accepted.done():
            self.accepted.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever writes, or waits to."""
        if self.accepted.done():
            self._on_lost()
        else:
            cause = f" ({exc})" if exc is not None else ""
            text = f"it was closed there; the log of that node says why{cause}"
            self.accepted.set_exception(OSError(text))
            self.accepted.exception()  # it may be that nobody waits any more

    @property
    def tls(self) -> ssl.SSLObject | None:
        """What the handshake was about, None where nothing is encrypted."""
        found: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return found

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
        self.accepted.cancel()
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
        OSError: it cannot be reached or takes no frames, or its certificate is not the cluster's.
        StreamRefusedError: its certificate is another node's, or refused.
    """
    host = address.rpartition(":")[0].strip("[]")
    try:
        places = await asyncio.get_running_loop().getaddrinfo(
            host, place.port, type=socket.SOCK_STREAM
        )
        connection = await _connect(places, security, peer, on_lost)
        await _enter(connection, place.ticket)
    except (OSError, ValueError, OverflowError) as error:
        text = str(error) or "it does not answer"
        raise OSError(f"cannot send frames to {host}:{place.port}: {text}") from error
    return connection


async def _enter(connection: FrameConnection, ticket: bytes) -> None:
    """Show a ticket, and wait until the peer takes frames; otherwise end the connection."""
    try:
        connection.show(ticket)
        async with asyncio.timeout(HANDSHAKE_S_MAX):
            await connection.accepted
    except BaseException:
        connection.abort()
        raise


async def _connect(
    places: Sequence[Any], security: Security, peer: int, on_lost: Callable[[], object]
) -> FrameConnection:
    """Connect to the first address that answers; each has its share of the time.

    Raises:
        OSError: none does.
        StreamRefusedError: it is not the peer's.
    """
    problem: OSError = OSError("it has no address")
    for *_, place in places:
        try:
            async with asyncio.timeout(HANDSHAKE_S_MAX / len(places)):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: FrameConnection(on_lost), place[0], place[1], ssl=security.outgoing()
                )
        except OSError as error:
            problem = error
            continue
        try:
            security.check_called(peer, connection.tls)
        except BaseException:
            connection.abort()
            raise
        return connection
    raise problem
