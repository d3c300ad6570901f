"""Connections by which peers send their frames, over TCP or any other transport."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, Protocol, cast

from headrace_raftlog.accepting import accept
from headrace_raftlog.ending import end_tasks, task_error
from headrace_raftlog.model.limits import (
    FRAME_ACK_BYTES,
    FRAME_BYTES_MAX,
    HANDSHAKE_S_MAX,
    STREAM_ACCEPT_S,
    STREAM_CALLERS_MAX,
    STREAM_TICKET_BYTES,
)
from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.framing import ACCEPTED_FRAGMENTS, ACKNOWLEDGED, FrameReader
from headrace_raftlog.transport.identity import StreamRefusedError, WithdrawnTicketError
from headrace_raftlog.transport.large_frame import Bodies
from headrace_raftlog.transport.peer_session import IncomingStream
from headrace_raftlog.transport.refusals import Refusals
from headrace_raftlog.transport.security import Security, shown_certificate

LOG: Final = logging.getLogger("headrace.cluster")

ACCEPT_AGAIN_S: Final = 0.1  # seconds after a connection could not be accepted: no more descriptors
ACCEPTED: Final = bytes((ACCEPTED_FRAGMENTS,))  # the answer to a ticket
ACKNOWLEDGEMENT: Final = bytes((ACKNOWLEDGED,))
UNUSABLE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # this machine has no such address
BACKLOG: Final = 128  # connections that the kernel keeps until they are accepted
CERTIFICATE_INFO: Final = "certificate"  # where a transport without a handshake of its own has it
WILDCARDS: Final = ("", "0.0.0.0", "::")  # noqa: S104  (compared with, not bound to)


class StreamGate(Protocol):
    """Owner of the tickets, and receiver of frames."""

    def enter(self, ticket: bytes, shown: bytes) -> IncomingStream | None:
        """Return the stream that a ticket is for, None where there is none.

        Args:
            ticket: what was shown.
            shown: certificate (PEM) of the caller, empty where nothing is encrypted.

        Raises StreamRefusedError: it is somebody else's ticket, which goes on counting;
        WithdrawnTicketError: it has counted once.
        """

    def part(self, head: bytes, size: int) -> tuple[int, int]:
        """See `TransportEvents`."""

    def receive(self, stream: IncomingStream, body: bytes | Bodies) -> None:
        """Take a frame.

        Raises FrameError: no correct peer sends it.
        """

    def failed(self, error: BaseException) -> None:
        """Note a bug: peers are served no longer."""


class FrameListener:
    """Listens for peers; who shows no ticket in time is sent away.

    Connections that came otherwise are counted here with the others (`expect`), and end with them.
    """

    def __init__(self, gate: StreamGate, security: Security) -> None:
        self.port = 0  # it listens there, once started; 0 where it never is
        # who has shown no ticket yet, the oldest first
        self.callers: dict[IncomingFrames, None] = {}
        self.open: set[IncomingFrames] = set()  # whose frames are taken
        self._gate = gate  # judges tickets, and takes frames
        self._security = security  # what is asked of who connects
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._told = Refusals()

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Args:
            host: name or address; of a wildcard, everywhere.
            port: 0: any that is free.

        Raises OSError: the address cannot be listened on.
        """
        try:
            self._listen(await _places(host), port)
        except OSError as error:
            self._close_sockets()
            raise OSError(f"cannot listen on {host}:{port} for frames: {error}") from error
        for listening in self._sockets:
            self._spawn(self._accept(listening))

    async def stop(self) -> None:
        """Close everything."""
        for each in [*self.callers, *self.open]:
            each.abort()
        await end_tasks(self._tasks)
        self._close_sockets()

    def _listen(self, places: list[tuple[int, str]], port: int) -> None:
        """Listen on all addresses of a host that can be used, on the same port."""
        problem = OSError("it has no address")
        for family, address in places:
            try:
                self._sockets.append(_listening(family, address, port or self.port))
            except OSError as error:
                if error.errno not in UNUSABLE and not (self._sockets and not port):
                    raise
                problem = error
            else:
                self.port = self._sockets[0].getsockname()[1]
        if not self._sockets:
            raise problem

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets.clear()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if (error := task_error(task)) is not None:
            self._gate.failed(error)

    def report(self, text: str) -> None:
        """Log a refusal, once per reason: a stranger may try for ever."""
        if self._told.is_new(text):
            LOG.warning("%s", text, extra={"unproven": ""})

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, address = await accept(listening)
            except OSError as error:
                self.report(f"cannot accept the connection of a peer: {error}")
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            caller = self.expect(str(address[0]))
            caller.admission = self._spawn(self._admit(caller, connection))
            caller.admission.add_done_callback(partial(self._admitted, caller, connection))
            await asyncio.sleep(STREAM_ACCEPT_S)

    def expect(self, address: str) -> IncomingFrames:
        """Return a connection from an address, which has a time to show its ticket."""
        if len(self.callers) >= STREAM_CALLERS_MAX:
            oldest = next(iter(self.callers))  # a peer's ticket comes at once
            del self.callers[oldest]
            oldest.abort()
        caller = IncomingFrames(self, self._gate, address)
        self.callers[caller] = None
        return caller

    def _admitted(
        self, caller: IncomingFrames, connection: socket.socket, admission: asyncio.Task[None]
    ) -> None:
        """Close what never began, be it that the task did not."""
        del admission
        if caller.transport is None:
            self.callers.pop(caller, None)
            connection.close()

    async def _admit(self, caller: IncomingFrames, connection: socket.socket) -> None:
        """Accept a connection, with the certificates that are trusted at that time."""
        try:
            context = self._security.incoming()
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: caller,
                connection,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_S_MAX if context else None,
            )
        except (OSError, ValueError) as error:  # of TLS among them
            self.report(f"refused the frames of {caller.address}: {str(error)!r}")


class IncomingFrames(asyncio.Protocol):
    """One connection: a ticket, and then frames."""

    def __init__(self, listener: FrameListener, gate: StreamGate, address: str) -> None:
        self.address = address  # whence it comes
        # does what comes before its bytes, a handshake of TLS for one; None where nothing does
        self.admission: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None  # None until that is done
        self._listener = listener
        self._gate = gate
        self._reader = FrameReader(STREAM_TICKET_BYTES, FRAME_BYTES_MAX, gate.part)
        self._stream: IncomingStream | None = None
        self._unacknowledged = -STREAM_TICKET_BYTES  # bytes since the last one sent back
        self._patience: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the ticket."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class
        self._patience = asyncio.get_running_loop().call_later(HANDSHAKE_S_MAX, self.abort)

    def data_received(self, data: bytes) -> None:
        """Receive complete frames; bytes of an incomplete one are a sign of life as well."""
        self._reader.feed(data)
        self._unacknowledged += len(data)
        if self._stream is None and not self._enter():
            return
        stream = self._stream
        assert stream is not None
        if self._unacknowledged >= FRAME_ACK_BYTES:
            self._acknowledge()
        whole = False
        try:
            while stream.open and (body := self._reader.frame()) is not None:
                self._gate.receive(stream, body)
                whole = True
        except FrameError as error:
            LOG.error("node %d sent a malformed frame: %s", stream.remote.node, error)
            self.abort()
        if not whole:
            stream.session.heard(stream)

    def _acknowledge(self) -> None:
        """Say how much has arrived."""
        count, self._unacknowledged = divmod(self._unacknowledged, FRAME_ACK_BYTES)
        assert self.transport is not None, "bytes come after the connection"
        self.transport.write(ACKNOWLEDGEMENT * count)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that nothing more comes."""
        del exc
        self._patience.cancel()
        self._listener.callers.pop(self, None)
        self._listener.open.discard(self)
        if self._stream is not None:
            self._stream.session.ended(self._stream)

    def abort(self) -> None:
        """End the connection, or do not begin with it."""
        if self.transport is not None:
            self.transport.abort()
        elif self.admission is not None:
            self.admission.cancel()

    def _enter(self) -> bool:
        ticket = self._reader.ticket()
        if ticket is None:
            return False
        self._patience.cancel()
        self._listener.callers.pop(self, None)
        assert self.transport is not None, "bytes come after the connection"
        problem = "no ticket that counts"
        stream: IncomingStream | None = None
        try:
            told = self.transport.get_extra_info
            shown = told(CERTIFICATE_INFO) or shown_certificate(told("ssl_object"))
            stream = self._gate.enter(ticket, shown)
        except WithdrawnTicketError as withdrawn:
            LOG.info("%s", withdrawn)
            self.abort()
            return False
        except StreamRefusedError as refusal:
            problem = str(refusal)
        if stream is None or not stream.open:
            self._listener.report(f"refused the frames of {self.address}: {problem}")
            self.abort()
            return False
        self._stream = stream
        self._listener.open.add(self)
        stream.on_closed = self.abort
        self.transport.write(ACCEPTED)
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
