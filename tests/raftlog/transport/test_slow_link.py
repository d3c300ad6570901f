"""Large frames over a link that takes longer for them than any silence may last."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from headrace_protos.raftlog.v1.transport_pb2 import Frame
from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import FRAME_ACK_BYTES
from headrace_raftlog.model.message import APPEND, HEARTBEAT, Message
from headrace_raftlog.transport.frame_connection import FrameConnection, open_frames
from headrace_raftlog.transport.framing import ACCEPTED_WHOLE
from headrace_raftlog.transport.outbox import Outbox
from headrace_raftlog.transport.peer_link import PeerLink
from headrace_raftlog.transport.send_window import SendWindow

Addresses = dict[int, str]
Until = Callable[..., Awaitable[None]]

SILENCE_S = 1.0
RATE = 1_000_000  # bytes a second: the large frame takes eight times the silence
LARGE = bytes(8_000_000)
CHUNK = 4096
BUFFER = 64 << 10  # bytes that the link holds in each of its sockets


class SlowLink:
    """Passes connections on to the same port of another address, so many bytes a second.

    Attributes:
        address: where it listens.
        passed: bytes passed on.
    """

    def __init__(self, address: str, target: str) -> None:
        self.address = address
        self.passed = 0
        self._target = target
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, port: int, rate: float) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            there = await asyncio.open_connection(self._target, port, limit=BUFFER)
            for each in (writer, there[1]):
                kernel = each.get_extra_info("socket")
                kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
                kernel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass(reader, there[1], rate))
                    group.create_task(self._pass(there[0], writer, rate))
            except* (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()
                there[1].close()

        self._servers.append(await asyncio.start_server(accept, self.address, port, limit=BUFFER))

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: float
    ) -> None:
        loop = asyncio.get_running_loop()
        free_at = 0.0
        while data := await reader.read(CHUNK):
            free_at = max(free_at, loop.time()) + len(data) / rate
            await asyncio.sleep(free_at - loop.time())
            writer.write(data)
            await writer.drain()
            self.passed += len(data)
        raise OSError("one end has closed the connection")

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def slow_pair(node_type: Any, addresses: Addresses) -> AsyncIterator[tuple[Any, Any]]:
    """Two nodes, of which the first sends its frames to the second over a slow link."""
    target, _, port = addresses[2].rpartition(":")
    link = SlowLink("127.0.0.2", target)
    with socket.socket() as probe:
        probe.bind((target, 0))
        frames_port = probe.getsockname()[1]
    far = {**addresses, 2: f"{link.address}:{port}"}
    one = node_type(1, far, silence_s_max=SILENCE_S)
    two = node_type(2, addresses, silence_s_max=SILENCE_S, frames_port=frames_port)
    try:
        await link.listen(int(port), RATE if one.over_grpc else 100 * RATE)
        await link.listen(frames_port, RATE)
        await one.start()
        await two.start()
        await one.up(2)
        await two.up(1)
        yield one, two
    finally:
        await one.stop()
        await two.stop()
        await link.close()


@pytest.mark.usefixtures("over_grpc")
def test_large_frame_arrives_and_heartbeats_pass_it(node_type: Any, addresses: Addresses) -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        async with slow_pair(node_type, addresses) as (one, two):
            large = Message(APPEND, 1, 1, 2, 1, entries=[Entry(1, 1, 0, LARGE)])
            assert one.transport.post(large)
            assert one.transport.send(2, LARGE)
            one.transport.flush()
            heard: list[float] = []
            two.events.on_messages = lambda messages: note(two.events, heard, messages)
            group = 1
            while not two.events.payloads or not any(m.entries for m in two.events.messages):
                group += 1
                assert one.transport.post(Message(HEARTBEAT, group, 1, 2, 1))
                assert one.transport.post(Message(APPEND, group, 1, 2, 1))
                one.transport.flush()
                await asyncio.sleep(SILENCE_S / 5)
            whole_s = loop.time() - heard[0]
            assert whole_s > 4 * SILENCE_S, "the link was not slow"
            assert max(later - sooner for sooner, later in pairwise(heard)) < whole_s / 4
            assert one.events.peers == [(2, True, 1)]
            assert two.events.peers == [(1, True, 1)]
            assert two.events.payloads == [(1, LARGE)]

    def note(events: Any, heard: list[float], messages: list[Message]) -> None:
        events.messages += messages
        heard.append(asyncio.get_running_loop().time())
        events._changed.set()

    asyncio.run(body())


def test_control_beyond_the_window_waits_where_newer_heartbeats_take_its_place(
    node_type: Any, addresses: Addresses, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = 20_000
    opened: dict[int, FrameConnection] = {}  # by node that is called

    async def open_and_note(
        address: str, place: Any, security: Any, peer: int, on_lost: Any
    ) -> FrameConnection:
        opened[peer] = await open_frames(address, place, security, peer, on_lost)
        return opened[peer]

    monkeypatch.setattr("headrace_raftlog.transport.peer_link.open_frames", open_and_note)
    acknowledge = "headrace_raftlog.transport.frame_listener.IncomingFrames._acknowledge"
    monkeypatch.setattr(acknowledge, lambda _: None)

    async def body() -> None:
        one, two = node_type(1, addresses), node_type(2, addresses)
        await one.start()
        await two.start()
        await one.up(2)
        await two.up(1)
        connection = opened[2]
        window = connection.window
        for commit in (1, 2):
            for group in range(1, groups + 1):
                assert one.transport.post(Message(HEARTBEAT, group, 1, 2, 1, commit=commit))
            one.transport.flush()
            await until(lambda: not window.is_open_to_control)
            assert window.sent_bytes < window.size + 3 * window.piece_bytes
            assert not one.transport.sessions[2].link._outbox.is_empty()
        while not one.transport.sessions[2].link._outbox.is_empty():
            connection.data_received(
                bytes(window.sent_bytes // FRAME_ACK_BYTES - acknowledged(window))
            )
            await asyncio.sleep(0)
        await two.events.until(lambda: {m.group for m in two.events.messages} >= {groups})
        newest = {message.group: message.commit for message in two.events.messages}
        assert len(newest) == groups
        assert sum(commit == 1 for commit in newest.values()) < groups / 2
        assert len(two.events.messages) < 2 * groups
        await one.stop()
        await two.stop()

    def acknowledged(window: SendWindow) -> int:
        return window.acknowledged_bytes // FRAME_ACK_BYTES

    asyncio.run(body())


class CountedConnection:
    """A connection that counts what is written, and of which a test acknowledges."""

    def __init__(self) -> None:
        self.window = SendWindow()
        self.is_writable = True
        self.has_large = False
        self.fragments = 0
        self.frames: list[Frame] = []

    def put(self, frame: Frame) -> None:
        self.frames.append(frame)
        self.window.sent(frame.ByteSize(), 0.0)

    def begin_large(self, pieces: Any) -> None:
        del pieces
        self.has_large = True

    def put_fragments(self) -> None:
        self.fragments += 1
        self.window.sent(self.window.piece_bytes, 0.0)


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_control_without_end_does_not_keep_data_back(identity_of: Any, size: int) -> None:
    async def body() -> None:
        outbox = Outbox()
        owner: Any = None
        link = PeerLink(2, "127.0.0.1:1", identity_of(1), owner, outbox)
        link.connected = True
        counted = CountedConnection()
        connection: Any = counted
        window = counted.window

        def refill(commit: int) -> None:
            for group in range(2, 12_000):
                link.post(Message(HEARTBEAT, group, 1, 2, 1, commit=commit))
            while link._write_next(connection):
                assert window.sent_bytes - window.acknowledged_bytes < 2 * window.size

        refill(0)
        assert outbox.has_control()
        assert link.post(Message(APPEND, 1, 1, 2, 1, entries=[Entry(1, 1, 0, bytes(size))]))
        for commit in range(1, 20):
            refill(commit)
            if counted.fragments or any(
                m.kind == APPEND for frame in counted.frames for m in frame.messages
            ):
                return
            window.acknowledged(1, 0.0, True)
        pytest.fail("no data has left")

    asyncio.run(body())


def test_beat_leaves_in_the_turn_of_the_loop_that_it_is_due_in(identity_of: Any) -> None:
    async def body() -> None:
        owner: Any = None
        link = PeerLink(2, "127.0.0.1:1", identity_of(1), owner, Outbox())
        counted = CountedConnection()
        connection: Any = counted
        link.connected, link._connection = True, connection
        link.beat()
        assert len(counted.frames) == 1
        counted.is_writable = False
        link.beat()  # a frame has left since the call before
        link.beat()
        assert len(counted.frames) == 1
        assert link._work.is_set()

    asyncio.run(body())


def test_node_that_knows_no_fragments_gets_whole_frames(
    node_type: Any, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headrace_raftlog.transport.frame_listener.ACCEPTED", bytes((ACCEPTED_WHOLE,))
    )
    monkeypatch.setattr(
        "headrace_raftlog.transport.frame_listener.IncomingFrames._acknowledge", lambda _: None
    )
    written: list[bytes] = []
    monkeypatch.setattr(
        "headrace_raftlog.transport.frame_connection.fragment_head",
        lambda size, more: written.append(bytes(size)),
    )

    async def body() -> None:
        one, two = node_type(1, addresses), node_type(2, addresses)
        await one.start()
        await two.start()
        await one.up(2)
        await two.up(1)
        for index in range(3):
            entries = [Entry(index + 1, 1, 0, LARGE)]
            assert one.transport.post(Message(APPEND, 1, 1, 2, 1, index=index, entries=entries))
            assert one.transport.send(2, LARGE)
        one.transport.flush()
        await two.events.until(
            lambda: len(two.events.payloads) == 3 and len(two.events.messages) == 3
        )
        assert [m.index for m in two.events.messages] == [0, 1, 2]
        await one.stop()
        await two.stop()

    asyncio.run(body())
    assert not written
