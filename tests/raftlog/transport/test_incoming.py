"""Streams: who may open one, and what happens to arriving frames."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from headrace_protos.raftlog.v1.transport_pb2 import (
    Frame,
    MessageKind,
    OpenRequest,
    RaftMessage,
    StreamPlace,
)
from headrace_raftlog.model.limits import FRAME_BYTES_MAX, STREAM_CALLERS_MAX, STREAM_TICKET_BYTES
from headrace_raftlog.model.message import APPEND, Message
from headrace_raftlog.transport.frame_connection import FrameConnection, open_frames
from headrace_raftlog.transport.frame_listener import ACCEPTED
from headrace_raftlog.transport.identity import StreamIdentity
from headrace_raftlog.transport.security import NoSecurity
from headrace_raftlog.transport.transport import Transport

BOTH_WAYS = pytest.mark.usefixtures("over_grpc")

Addresses = dict[int, str]
Identify = Callable[..., Any]
Until = Callable[..., Awaitable[None]]


def raw_heartbeat(source: int) -> RaftMessage:
    return RaftMessage(kind=MessageKind.MESSAGE_KIND_HEARTBEAT, source=source, target=1)


@BOTH_WAYS
def test_newer_stream_of_a_peer_replaces_the_older(
    node_type: Any, caller_type: Any, addresses: Addresses, identity_of: Identify, until: Until
) -> None:
    async def body() -> None:
        one = node_type(1, addresses)
        await one.start()
        first, second = (caller_type(identity_of(2), addresses[1], 1) for _ in range(2))
        await first.enter()
        await first.write(Frame())
        session = one.transport.sessions[2]
        await until(lambda: session.frames_received == 1)
        await second.enter()
        await first.ended()
        await second.write(Frame())
        await second.write(Frame(messages=[raw_heartbeat(3)]))
        await second.ended()
        assert session.frames_received == 3
        await one.stop()

    asyncio.run(body())


@BOTH_WAYS
def test_only_the_newest_ticket_of_a_peer_counts_and_only_once(
    node_type: Any, caller_type: Any, addresses: Addresses, identity_of: Identify
) -> None:
    async def body() -> None:
        one = node_type(1, addresses)
        await one.start()
        older, newer, again, guess = (
            caller_type(identity_of(2), addresses[1], 1) for _ in range(4)
        )
        first, second = await older.ask(), await newer.ask()
        assert (len(first.ticket), first.ticket == second.ticket) == (STREAM_TICKET_BYTES, False)
        await older.refused(first)
        await newer.enter(second)
        await again.refused(second)
        await guess.refused(StreamPlace(port=second.port, ticket=bytes(STREAM_TICKET_BYTES)))
        assert not newer.is_over
        assert [met.node for met in one.events.met] == [2]
        await one.stop()

    asyncio.run(body())


@BOTH_WAYS
def test_a_ticket_is_worth_nothing_late_or_once_its_node_was_removed(
    node_type: Any,
    caller_type: Any,
    addresses: Addresses,
    identity_of: Identify,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body() -> None:
        one = node_type(1, addresses)
        await one.start()
        barred, away, anew, late = (caller_type(identity_of(2), addresses[1], 1) for _ in range(4))
        place = await barred.ask()
        await one.transport.set_peers(addresses, [(2, 22)])
        await barred.refused(place)
        await one.transport.set_peers(addresses)
        place = await away.ask()
        await one.transport.set_peers({1: addresses[1]})
        await away.refused(place)
        await one.transport.set_peers(addresses)
        place = await anew.ask()
        await one.transport.verify_anew()
        await anew.refused(place)
        monkeypatch.setattr("headrace_raftlog.transport.server.STREAM_TICKET_S_MAX", -1.0)
        await late.refused()
        assert not one.events.met
        await one.stop()

    asyncio.run(body())


@BOTH_WAYS
def test_who_was_told_an_older_identity_has_to_ask_again(
    node_type: Any,
    caller_type: Any,
    addresses: Addresses,
    identity_of: Identify,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    class Context:
        """A call during whose answer the node joins the cluster."""

        def __init__(self, transport: Transport) -> None:
            self.transport = transport
            self.told: StreamIdentity | None = None

        def invocation_metadata(self) -> Any:
            return identity_of(2).metadata(1)

        async def send_initial_metadata(self, metadata: Any) -> None:
            self.told = identity_of(2).check(metadata, (1,))
            self.transport.become(identity_of(1))

    async def body() -> None:
        one = node_type(1, addresses, identity=identity_of(1, formed={}))
        await one.start()
        context = Context(one.transport)
        place = await one.transport._servicer.Open(OpenRequest(frames_call=True), context)
        assert context.told is not None
        assert not context.told.formed
        caller = caller_type(identity_of(2), addresses[1], 1)
        await caller.refused(place)
        assert not one.events.met
        [told] = [r for r in caplog.records if "withdrawn" in r.message]
        assert told.levelname == "INFO"
        assert told.message.startswith("node 2 came with a ticket that was withdrawn")
        assert "no ticket that counts" not in caplog.text
        await caller_type(identity_of(2), addresses[1], 1).refused(place)  # known once
        assert "no ticket that counts" in caplog.text
        await caller.enter()
        await one.events.until(lambda: [met.node for met in one.events.met] == [2])
        await one.stop()

    asyncio.run(body())


def test_who_shows_no_ticket_is_sent_away(
    node_type: Any, caller_type: Any, addresses: Addresses, identity_of: Identify
) -> None:
    async def body() -> None:
        one = node_type(1, addresses)
        await one.start()
        port = (await caller_type(identity_of(2), addresses[1], 1).ask()).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(bytes(STREAM_TICKET_BYTES - 1))
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()
        assert not one.events.met
        await one.stop()

    asyncio.run(body())


def test_callers_without_a_ticket_are_bounded(
    node_type: Any, caller_type: Any, addresses: Addresses, identity_of: Identify, until: Until
) -> None:
    async def body() -> None:
        one = node_type(1, addresses)
        await one.start()
        listener = one.transport._servicer.listener
        idle = [
            await asyncio.open_connection("127.0.0.1", listener.port)
            for _ in range(2 * STREAM_CALLERS_MAX)
        ]
        async with asyncio.timeout(30):
            for reader, writer in idle[:STREAM_CALLERS_MAX]:  # the oldest
                assert await reader.read() == b""
                writer.close()
        assert len(listener.callers) <= STREAM_CALLERS_MAX
        caller = caller_type(identity_of(2), addresses[1], 1)
        await caller.enter()
        await caller.write(Frame())
        await until(lambda: one.transport.sessions[2].frames_received == 1)
        for _, writer in idle[STREAM_CALLERS_MAX:]:
            writer.close()
        await until(lambda: not listener.callers)
        await one.stop()
        await caller.ended()

    asyncio.run(body())


@pytest.mark.parametrize("turns", range(8))
def test_who_has_just_connected_is_sent_away_at_the_stop(
    node_type: Any, addresses: Addresses, turns: int
) -> None:
    async def body() -> None:
        one = node_type(1, addresses)
        await one.start()
        listener = one.transport._servicer.listener
        with socket.create_connection(("127.0.0.1", listener.port), timeout=30) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await listener.stop()
            assert not listener.callers
            gc.collect()
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
        await one.stop()

    asyncio.run(body())


@BOTH_WAYS
def test_malformed_frame_ends_the_stream_and_harms_nobody(
    node_type: Any,
    caller_type: Any,
    addresses: Addresses,
    identity_of: Identify,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> None:
        one, three = nodes = [node_type(node, addresses) for node in (1, 3)]
        await one.start()
        await three.start()
        await one.up(3)
        wrong, garbage, huge = (caller_type(identity_of(2), addresses[1], 1) for _ in range(3))
        await wrong.enter()
        await wrong.write(Frame(messages=[raw_heartbeat(3)]))
        await wrong.ended()
        for caller, data in ((garbage, b"\0\0\0\3\xff\xff\xff"), (huge, b"\x3f\0\0\0")):
            await caller.enter()
            caller.connection.show(data)
            await caller.ended()
        assert one.events.messages == []
        assert one.events.peers == [(3, True, 1)]
        for node in nodes:
            await node.stop()

    asyncio.run(body())
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert [text.partition(": ")[0] for text in errors] == ["node 2 sent a malformed frame"] * 3
    assert "message from 3 to 1" in errors[0]
    assert errors[2].endswith(f"frame of {0x3F << 24} bytes, the maximum is {FRAME_BYTES_MAX}")


def test_port_of_frames_in_use_is_named(node_type: Any, addresses: Addresses) -> None:
    async def body() -> None:
        one = node_type(1, addresses)
        await one.start()
        port = one.transport._servicer.listener.port
        other = node_type(2, {2: addresses[2], 1: addresses[3]}, frames_port=port)
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port} for frames"):
            await other.start()
        await other.stop()
        await one.stop()

    asyncio.run(body())


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0", "[::]", "[::1]"])
def test_frames_are_taken_wherever_the_node_listens(
    node_type: Any, addresses: Addresses, host: str
) -> None:
    ports = {node: addresses[node].rpartition(":")[2] for node in (1, 2)}
    called = "[::1]" if host in ("[::]", "[::1]") else "localhost"

    async def body() -> None:
        places = {node: f"{called}:{port}" for node, port in ports.items()}
        nodes = [node_type(n, places, listen=f"{host}:{ports[n]}") for n in places]
        one, two = nodes
        await one.start()
        await two.start()
        await one.up(2)
        await two.up(1)
        assert one.transport.send(2, b"x")
        await two.events.until(lambda: two.events.payloads == [(1, b"x")])
        for node in nodes:
            await node.stop()

    asyncio.run(body())


@BOTH_WAYS
def test_a_peer_whose_connection_breaks_is_down_at_once(
    node_type: Any, caller_type: Any, addresses: Addresses, identity_of: Identify
) -> None:
    async def body() -> None:
        one, two = nodes = [node_type(node, addresses) for node in (1, 2)]
        await one.start()
        await two.start()
        await one.up(2)
        await two.up(1)
        for frames in list(two.transport._servicer.listener.open):
            frames.abort()
        await one.events.until(lambda: one.events.peers[1:2] == [(2, False, 1)])
        await two.events.until(lambda: (1, False, 1) in two.events.peers)
        await one.events.until(lambda: one.events.peers[2:] == [(2, True, 1)])
        for node in nodes:
            await node.stop()

    asyncio.run(body())


@BOTH_WAYS
@pytest.mark.parametrize("event", ["on_met", "on_messages"])
def test_a_fault_in_who_takes_what_arrives_is_told(
    node_type: Any,
    caller_type: Any,
    addresses: Addresses,
    identity_of: Identify,
    event: str,
    until: Until,
) -> None:
    async def body() -> None:
        one, two = nodes = [node_type(node, addresses) for node in (1, 2)]
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, _context: None)  # it tells of the same
        await one.start()
        if event == "on_messages":
            await two.start()
            await one.up(2)
            await two.up(1)

        def broken(_event: Any) -> None:
            raise ZeroDivisionError("in vain")

        setattr(one.events, event, broken)
        if event == "on_met":
            with contextlib.suppress(OSError):
                await caller_type(identity_of(2), addresses[1], 1).enter()
        else:
            two.transport.post(Message(APPEND, 1, 2, 1, 1))
            two.transport.flush()
        await until(lambda: bool(one.events.failures))
        assert {type(each) for each in one.events.failures} == {ZeroDivisionError}
        for node in nodes:
            await node.stop()

    asyncio.run(body())


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_writes_waits_for_who_reads(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """A peer that reads nothing is sent what the kernels hold, and FRAME_WRITE_BYTES."""
    frame = Frame(application=[bytes(1 << 20)])

    async def body() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            place = StreamPlace(port=listening.getsockname()[1], ticket=bytes(STREAM_TICKET_BYTES))
            over = asyncio.Event()
            opening = asyncio.create_task(
                open_frames("127.0.0.1:1", place, NoSecurity(), 2, over.set)
            )
            peer, _ = await loop.sock_accept(listening)
            with peer:
                assert await loop.sock_recv(peer, STREAM_TICKET_BYTES) == place.ticket
                await asyncio.sleep(0)
                assert not opening.done()
                await loop.sock_sendall(peer, ACCEPTED)
                connection = await opening
                written = 0
                while not await stands_still(connection, frame):
                    written += 1
                    assert written < 64, "it goes on writing"
                assert connection._transport.get_write_buffer_size() < 3 << 20
                for _ in range(written):
                    left = 1 << 20
                    while left:
                        left -= len(await loop.sock_recv(peer, left))
                async with asyncio.timeout(30):
                    await connection.write(frame)
                stuck = asyncio.create_task(fill(connection, frame))
                await asyncio.sleep(0)
            async with asyncio.timeout(30):
                await over.wait()
            stuck.cancel()
            connection.abort()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(body())


async def stands_still(connection: FrameConnection, frame: Frame) -> bool:
    """Write a frame; return whether there is no room for another then."""
    try:
        async with asyncio.timeout(1):
            await connection.write(frame)
    except TimeoutError:
        return True
    return False


async def fill(connection: FrameConnection, frame: Frame) -> None:
    """Write for ever."""
    while True:
        await connection.write(frame)
