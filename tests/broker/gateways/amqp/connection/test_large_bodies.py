"""Large bodies on their way to a client's socket."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace_broker.codecs.delivery_encoder import BodyFrames
from headrace_broker.gateways.amqp.connection.socket_output import SocketOutput
from headrace_broker.model.limits import LARGE_BYTES, OUTPUT_FLUSH_BYTES

BODY = bytes(range(251)) * (4 * LARGE_BYTES // 251)
FRAME_MAX = 4096


class Wire(asyncio.Transport):
    """A transport that keeps written bytes, and is full after `room` bytes."""

    def __init__(self, room: int = 1 << 30) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.told: list[bool] = []
        self.closed = False
        self.room = room
        self.output = SocketOutput(asyncio.get_running_loop(), self.told.append)
        self.output.transport = self

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))
        self.room -= len(data)
        if self.room < 0:
            self.output.pause()

    def drain(self) -> None:
        self.room = 1 << 30
        self.output.resume()

    def get_write_buffer_size(self) -> int:
        return max(-self.room, 0)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


async def turns(count: int = 64) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def a_body() -> BodyFrames:
    return BodyFrames(1, BODY, 0, len(BODY), FRAME_MAX)


def whole() -> bytes:
    body = a_body()
    frames = b""
    while body.left > 0:
        frames += body.take(len(BODY))
    return frames


def test_each_turn_writes_a_piece_and_what_follows_waits() -> None:
    async def work() -> None:
        wire = Wire()
        wire.output.write_body(a_body())
        wire.output.write(b"behind")
        assert len(wire.writes) == 1
        left = len(BODY) + len(b"behind") - OUTPUT_FLUSH_BYTES // 4088 * 4088
        assert wire.output.backlog() == left
        assert wire.told == [False]
        before = len(wire.writes)
        while wire.output.backlog():
            await asyncio.sleep(0)
            assert len(wire.writes) - before <= 2  # one, whichever is called first in a turn
            before = len(wire.writes)
        assert max(map(len, wire.writes)) <= OUTPUT_FLUSH_BYTES
        assert b"".join(wire.writes) == whole() + b"behind"
        assert wire.told == [False, True]

    asyncio.run(work())


def test_connection_that_writes_in_every_turn_is_writable_again_after_a_body() -> None:
    async def work() -> None:
        wire = Wire()
        wire.output.write_body(a_body())
        count = 0
        while wire.told != [False, True]:
            wire.output.write(b"confirm")
            count += 1
            assert count < 2 * len(BODY) // OUTPUT_FLUSH_BYTES
            await asyncio.sleep(0)
        assert b"".join(wire.writes) == whole() + b"confirm" * count

    asyncio.run(work())


def test_socket_that_is_full_is_given_no_more_until_it_has_room() -> None:
    async def work() -> None:
        wire = Wire(OUTPUT_FLUSH_BYTES)
        wire.output.write_body(a_body())
        await turns()
        assert sum(map(len, wire.writes)) <= 2 * OUTPUT_FLUSH_BYTES
        wire.drain()
        await turns()
        assert b"".join(wire.writes) == whole()
        assert wire.told == [False, True]

    asyncio.run(work())


def test_socket_is_closed_when_a_large_body_has_left() -> None:
    async def work() -> None:
        wire = Wire()
        wire.output.write_body(a_body())
        wire.output.close()
        assert not wire.is_closing()
        await turns()
        assert wire.is_closing()
        assert b"".join(wire.writes) == whole()

    asyncio.run(work())


def test_socket_that_is_gone_is_written_nothing_more() -> None:
    async def work() -> None:
        wire = Wire()
        wire.output.write_body(a_body())
        wire.output.abort()
        await turns()
        assert len(wire.writes) == 1
        assert wire.output.backlog() == 0

    asyncio.run(work())
