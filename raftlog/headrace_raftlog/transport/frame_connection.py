"""The connection by which a node sends its frames to a peer, over TCP or any other transport.

Large frames are cut into fragments here (`put_fragments`); `framing` reads them.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import ssl
import termios
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from headrace_protos.raftlog.v1.transport_pb2 import Frame, StreamPlace
from headrace_raftlog.model.limits import (
    FRAME_TURN_BYTES_MAX,
    FRAME_WRITE_BYTES,
    HANDSHAKE_S_MAX,
    STREAM_UNHEARD_MS,
)
from headrace_raftlog.model.pieces import Bytes
from headrace_raftlog.transport.framing import (
    ACCEPTED_FRAGMENTS,
    LENGTH_BYTES,
    fragment_head,
    frame_head,
    whole_head,
)
from headrace_raftlog.transport.security import Security
from headrace_raftlog.transport.send_window import SendWindow

_INT_BYTES: Final = 4  # of what the kernel answers


class FrameConnection(asyncio.Protocol):
    """Writes frames: quick ones at once, and between them the fragments of one large frame."""

    def __init__(self, on_lost: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        # done once the peer takes frames, or with why it does not
        self.accepted: asyncio.Future[None] = self._loop.create_future()
        # whether the peer does; otherwise large frames are written whole, and nothing says what has
        # arrived
        self.takes_fragments = False
        self._is_paused = False  # whether the kernel and the buffer before it are full
        self._is_over = False
        # called when either `is_writable` or `has_room` may have become True
        self.on_room: Callable[[], object] = lambda: None
        # called once when the connection is over after it was accepted, whoever ended it
        self._on_lost = on_lost
        self._writable = asyncio.Event()
        self._writable.set()
        self.window = SendWindow()  # bytes under way, and how many may be
        self.window.is_bounded = False
        self._large: deque[memoryview] = deque()  # what is left of the large frame
        self._large_bytes = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make the kernel give up a peer to whom nothing gets through."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class
        self._transport.set_write_buffer_limits(FRAME_WRITE_BYTES)
        kernel = self._transport.get_extra_info("socket")
        if kernel is not None:
            kernel.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STREAM_UNHEARD_MS)

    def pause_writing(self) -> None:
        """Gather from the next frame on."""
        self._is_paused = True
        self._writable.clear()

    def resume_writing(self) -> None:
        """Send what was gathered."""
        self._is_paused = False
        self._writable.set()
        self.on_room()

    def data_received(self, data: bytes) -> None:
        """Note that the peer takes frames, and how much of them has arrived."""
        count = len(data)
        if not self.accepted.done():
            self.takes_fragments = self.window.is_bounded = data[0] == ACCEPTED_FRAGMENTS
            self.accepted.set_result(None)
            count -= 1
        if not self.takes_fragments or not count:
            return
        had_room = self.has_room
        if not self.window.acknowledged(count, self._loop.time(), self._is_queued()):
            self._transport.abort()  # no correct peer acknowledges what was not sent
        elif not had_room:
            self.on_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell writers, and those that wait to write."""
        self._is_over = True
        if self.accepted.done():
            self._on_lost()
        else:
            cause = f" ({exc})" if exc is not None else ""
            text = f"it was closed there; the log of that node says why{cause}"
            self.accepted.set_exception(OSError(text))
            self.accepted.exception()  # it may be that nobody waits any more

    @property
    def is_writable(self) -> bool:
        """True while frames may be sent: the buffer is not full, and nothing has closed the stream.

        A stream is closed some turns of the loop before its writers are told, and then refuses
        writes.
        """
        return not (self._is_paused or self._is_over or self._transport.is_closing())

    @property
    def tls(self) -> ssl.SSLObject | None:
        """TLS object of the connection, None where nothing is encrypted."""
        found: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return found

    def show(self, ticket: bytes) -> None:
        """Send the ticket, which is before all frames."""
        self._transport.write(ticket)

    @property
    def has_room(self) -> bool:
        """True while the link accepts more than urgent items."""
        return self.window.is_open

    @property
    def piece_bytes(self) -> int:
        """Bytes of a fragment, or of a frame of the quick lane, that this link takes at once."""
        return self.window.piece_bytes

    @property
    def has_large(self) -> bool:
        """True while a large frame is under way."""
        return self._large_bytes > 0

    def put(self, frame: Frame) -> None:
        """Send a frame; it passes a large one that is under way."""
        body = frame.SerializeToString()
        self.window.sent(LENGTH_BYTES + len(body), self._loop.time())
        self._transport.writelines((frame_head(body), body))

    def begin_large(self, pieces: Sequence[Bytes]) -> None:
        """Begin with a large frame, given in pieces; the one before has left."""
        assert not self.has_large, "one large frame at a time"
        size = sum(map(len, pieces))
        if self.takes_fragments:
            self._large.extend(memoryview(piece) for piece in pieces if piece)
            self._large_bytes = size
        else:
            self.window.sent(LENGTH_BYTES + size, self._loop.time())
            self._transport.writelines((whole_head(size), *pieces))

    def put_fragments(self) -> None:
        """Send fragments of the large frame, as many as one turn of the loop takes."""
        out: list[bytes | memoryview] = []
        left = FRAME_TURN_BYTES_MAX
        while left > 0 and self.has_large and self.has_room:
            size = min(self.piece_bytes, self._large_bytes, left)
            self._large_bytes -= size
            out.append(fragment_head(size, self.has_large))
            self._take_large(out, size)
            self.window.sent(LENGTH_BYTES + size, self._loop.time())
            left -= size
        self._transport.writelines(out)

    def _take_large(self, out: list[bytes | memoryview], size: int) -> None:
        """Move the next bytes of the large frame to `out`, uncopied."""
        while size > 0:
            piece = self._large.popleft()
            if len(piece) > size:
                self._large.appendleft(piece[size:])
                piece = piece[:size]
            out.append(piece)
            size -= len(piece)

    async def write(self, frame: Frame) -> None:
        """Send a frame, and wait until there is room for another."""
        self.put(frame)
        await self._writable.wait()

    def _is_queued(self) -> bool:
        """Return whether anything sent has, or may have, not reached the peer's kernel yet."""
        if self._transport.get_write_buffer_size():
            return True
        kernel = self._transport.get_extra_info("socket")
        if kernel is None:
            return True  # nothing tells what gRPC, or a proxy of a mesh, still holds
        queued = fcntl.ioctl(kernel.fileno(), termios.TIOCOUTQ, bytes(_INT_BYTES))
        return any(queued)

    def abort(self) -> None:
        """End the connection and drop unsent data."""
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

    Raises OSError: it cannot be reached or takes no frames, or its certificate is not the
    cluster's; StreamRefusedError: its certificate is another node's, or refused.
    """
    host = address.rpartition(":")[0].strip("[]")
    try:
        places = await asyncio.get_running_loop().getaddrinfo(
            host, place.port, type=socket.SOCK_STREAM
        )
        connection = await _connect(places, security, peer, on_lost)
        await enter(connection, place.ticket)
    except (OSError, ValueError, OverflowError) as error:
        text = str(error) or "it does not answer"
        raise OSError(f"cannot send frames to {host}:{place.port}: {text}") from error
    return connection


async def enter(connection: FrameConnection, ticket: bytes) -> None:
    """Show a ticket, and wait until the peer takes frames; otherwise end the connection.

    Raises OSError: it does not take them.
    """
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

    Raises OSError: none does; StreamRefusedError: it is not the peer's.
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
