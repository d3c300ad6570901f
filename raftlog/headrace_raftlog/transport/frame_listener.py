"""Connections by which peers send their frames."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Coroutine
from typing import Any, Final, Protocol, cast

from headrace_raftlog.model.limits import (
    FRAME_BYTES_MAX,
    HANDSHAKE_S_MAX,
    STREAM_CALLERS_MAX,
    STREAM_TICKET_BYTES,
)
from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.framing import FrameReader
from headrace_raftlog.transport.peer_session import IncomingStream
from headrace_raftlog.transport.security import Security

LOG: Final = logging.getLogger(__name__)

ACCEPT_AGAIN_S: Final = 0.1  # seconds after a connection could not be accepted: no more descriptors
BACKLOG: Final = 128  # connections that the kernel keeps until they are accepted
WILDCARDS: Final = ("", "0.0.0.0", "::")  # noqa: S104  (compared with, not bound to)


class StreamGate(Protocol):
    """Who knows the tickets, and takes what arrives."""

    def enter(self, ticket: bytes) -> IncomingStream | None:
        """Return the stream that a ticket is for, None where there is none."""

    def take(self, stream: IncomingStream, body: bytes) -> None:
        """Take a frame.

        Raises:
            FrameError: no correct peer sends it.
        """


class FrameListener:
    """Listens for peers; who shows no ticket in time is sent away.

    Args:
        gate: judges tickets, and takes frames.
        security: what is asked of who connects.

    Attributes:
        port: it listens there, once started.
    """

    def __init__(self, gate: StreamGate, security: Security) -> None:
        self.port = 0
        self.callers: set[IncomingFrames] = set()
        self.open: set[IncomingFrames] = set()
        self._gate = gate
        self._security = security
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Args:
            host: name or address; of a wildcard, everywhere.
            port: 0: any that is free.

        Raises:
            OSError: the address cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        try:
            for family, address in await _places(host):
                self._sockets.append(_listening(family, address, self.port or port))
                self.port = self._sockets[0].getsockname()[1]
        except OSError as error:
            self._close_sockets()
            raise OSError(f"cannot listen on {host}:{port} for frames: {error}") from error
        for listening in self._sockets:
            self._spawn(loop, self._accept(listening))

    async def stop(self) -> None:
        """Close everything."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._close_sockets()
        for each in [*self.callers, *self.open]:
            each.abort()

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets.clear()

    def _spawn(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
        task = loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:
                LOG.warning("cannot accept a stream: %s", error)
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            if len(self._tasks) + len(self.callers) > STREAM_CALLERS_MAX:
                connection.close()
                continue
            self._spawn(loop, self._admit(connection, str(address[0])))

    async def _admit(self, connection: socket.socket, caller: str) -> None:
        """Begin with a connection; each is judged by what is believed when it comes."""
        loop = asyncio.get_running_loop()
        context = self._security.incoming()
        try:
            await loop.connect_accepted_socket(
                lambda: IncomingFrames(self, self._gate, caller),
                connection,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_S_MAX if context else None,
            )
        except OSError as error:  # of TLS among them
            connection.close()
            LOG.info("refused the frames of %s: %s", caller, error)


class IncomingFrames(asyncio.Protocol):
    """One connection: a ticket, and then frames."""

    def __init__(self, listener: FrameListener, gate: StreamGate, caller: str) -> None:
        self._listener = listener
        self._gate = gate
        self._caller = caller
        self._reader = FrameReader(STREAM_TICKET_BYTES, FRAME_BYTES_MAX)
        self._stream: IncomingStream | None = None
        self._transport: asyncio.Transport
        self._patience: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the ticket."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class
        self._listener.callers.add(self)
        self._patience = asyncio.get_running_loop().call_later(HANDSHAKE_S_MAX, self.abort)

    def data_received(self, data: bytes) -> None:
        """Take what is complete."""
        self._reader.feed(data)
        if self._stream is None and not self._enter():
            return
        stream = self._stream
        assert stream is not None
        try:
            while stream.open and (body := self._reader.frame()) is not None:
                self._gate.take(stream, body)
        except FrameError as error:
            LOG.error("node %d sent a malformed frame: %s", stream.remote.node, error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that nothing more comes."""
        del exc
        self._patience.cancel()
        self._listener.callers.discard(self)
        self._listener.open.discard(self)
        if self._stream is not None:
            self._stream.session.ended(self._stream)

    def abort(self) -> None:
        """End the connection."""
        self._transport.abort()

    def _enter(self) -> bool:
        ticket = self._reader.ticket()
        if ticket is None:
            return False
        self._patience.cancel()
        self._listener.callers.discard(self)
        stream = self._gate.enter(ticket)
        if stream is None or not stream.open:
            LOG.info("refused the frames of %s: its ticket counts no more", self._caller)
            self.abort()
            return False
        self._stream = stream
        self._listener.open.add(self)
        stream.on_closed = self.abort
        return True


async def _places(host: str) -> list[tuple[int, str]]:
    """Return the families and addresses of a host."""
    if host in WILDCARDS:
        return [(socket.AF_INET6, "::")] if socket.has_dualstack_ipv6() else [(socket.AF_INET, "")]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((family, str(place[0])) for family, _, _, _, place in found))


def _listening(family: int, address: str, port: int) -> socket.socket:
    both = family == socket.AF_INET6 and address == "::"
    listening = socket.create_server(
        (address, port), family=family, backlog=BACKLOG, dualstack_ipv6=both
    )
    listening.setblocking(False)
    return listening
