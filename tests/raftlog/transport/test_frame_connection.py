from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from headrace_protos.raftlog.v1.transport_pb2 import Frame
from headrace_raftlog.model.limits import (
    FRAME_ACK_BYTES,
    FRAME_PIECE_BYTES_MIN,
    FRAME_TURN_BYTES_MAX,
    SEND_WINDOW_BYTES_MIN,
)
from headrace_raftlog.transport.frame_connection import FrameConnection
from headrace_raftlog.transport.framing import (
    ACCEPTED_FRAGMENTS,
    ACCEPTED_WHOLE,
    ACKNOWLEDGED,
    FrameReader,
)

LOOPS = pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
PIECES = [b"head", bytes(range(256)) * 4096, b"", b"between", b"y" * 2_000_001]


class Wire:
    """A transport of asyncio that keeps written bytes.

    Attributes:
        writes: bytes of each call, in order.
    """

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self._socket = socket.socket()

    def set_write_buffer_limits(self, high: int) -> None:
        """Take any."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> socket.socket:
        assert name == "socket"
        return self._socket

    def writelines(self, pieces: list[bytes | memoryview]) -> None:
        self.writes.append(b"".join(pieces))

    def close(self) -> None:
        self._socket.close()


def opened(wire: Wire, answer: int) -> FrameConnection:
    connection = FrameConnection(lambda: None)
    connection.connection_made(wire)  # type: ignore[arg-type]
    connection.data_received(bytes((answer,)))
    return connection


def test_turn_writes_no_more_of_a_large_frame_than_allowed() -> None:
    async def write() -> None:
        wire = Wire()
        connection = opened(wire, ACCEPTED_FRAGMENTS)
        connection.begin_large(PIECES)
        while connection.has_large:
            before = len(wire.writes)
            connection.put_fragments()
            sent = sum(map(len, wire.writes[before:]))
            assert sent <= FRAME_TURN_BYTES_MAX + 4 * FRAME_TURN_BYTES_MAX // FRAME_PIECE_BYTES_MIN
            connection.data_received(bytes((ACKNOWLEDGED,)) * (sent // FRAME_ACK_BYTES))
        reader = FrameReader(0, 1 << 30)
        reader.feed(b"".join(wire.writes))
        assert reader.frame() == b"".join(PIECES)
        assert len(wire.writes) >= sum(map(len, PIECES)) // FRAME_TURN_BYTES_MAX
        wire.close()

    asyncio.run(write())


def test_fragments_stop_where_the_window_is_full() -> None:
    async def write() -> None:
        wire = Wire()
        connection = opened(wire, ACCEPTED_FRAGMENTS)
        connection.begin_large(PIECES)
        connection.put_fragments()
        assert not connection.has_room
        assert len(wire.writes[0]) < SEND_WINDOW_BYTES_MIN + FRAME_PIECE_BYTES_MIN
        wire.close()

    asyncio.run(write())


def test_peer_that_knows_no_fragments_gets_the_frame_whole() -> None:
    async def write() -> None:
        wire = Wire()
        connection = opened(wire, ACCEPTED_WHOLE)
        connection.begin_large(PIECES)
        assert not connection.has_large
        reader = FrameReader(0, 1 << 30)
        reader.feed(b"".join(wire.writes))
        assert reader.frame() == b"".join(PIECES)
        wire.close()

    asyncio.run(write())


@LOOPS
@pytest.mark.parametrize("ends", ["here", "there"])
def test_connection_that_ends_is_not_writable_before_its_writer_knows(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], ends: str
) -> None:
    async def body() -> None:
        taken: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda _, writer: taken.set_result(writer), "127.0.0.1")
        over = asyncio.Event()
        host, port = server.sockets[0].getsockname()
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: FrameConnection(over.set), host, port)
        (await taken).write(bytes((ACCEPTED_FRAGMENTS,)))
        await connection.accepted
        assert connection.is_writable
        if ends == "here":
            connection.abort()
        else:
            taken.result().transport.abort()
        try:
            turns_after = 10
            while turns_after:  # as a ticker would, in any turn
                if connection.is_writable:
                    connection.put(Frame())
                await asyncio.sleep(0)
                turns_after -= over.is_set()
            assert not connection.is_writable
        finally:
            taken.result().transport.abort()
            server.close()
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(body())
