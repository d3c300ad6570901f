"""Frames over gRPC: one port, nodes of both kinds together, bounds, and refusals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace_protos.raftlog.v1.transport_pb2 import Frame, FrameBytes, OpenRequest, StreamPlace
from headrace_protos.raftlog.v1.transport_pb2_grpc import (
    RaftTransportStub,
    add_RaftTransportServicer_to_server,
)
from headrace_raftlog.model.limits import (
    FRAME_PIECE_BYTES_MIN,
    FRAME_WRITE_BYTES,
    GRPC_MESSAGE_BYTES_MAX,
    STREAM_CALLERS_MAX,
    STREAM_TICKET_BYTES,
)
from headrace_raftlog.transport.frame_call import CallTransport, call_frames
from headrace_raftlog.transport.frame_listener import ACCEPTED
from headrace_raftlog.transport.framing import LENGTH_BYTES
from headrace_raftlog.transport.security import NoSecurity

Addresses = dict[int, str]
Identify = Callable[..., Any]
Until = Callable[..., Awaitable[None]]


def listening_ports() -> set[int]:
    """Ports of TCP on which this process listens."""
    inodes = {
        target[8:-1]
        for each in Path("/proc/self/fd").iterdir()
        if each.is_symlink() and (target := str(each.readlink())).startswith("socket:[")
    }
    found: set[int] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found


@pytest.mark.parametrize("first", [False, True], ids=["frames", "grpc"])
def test_node_over_grpc_listens_on_one_port_and_works_with_either_kind(
    node_type: Any, addresses: Addresses, first: bool
) -> None:
    async def body() -> None:
        before = listening_ports()
        two = node_type(2, addresses, over_grpc=True)
        await two.start()
        assert listening_ports() - before == {int(addresses[2].rpartition(":")[2])}
        one = node_type(1, addresses, over_grpc=first)
        await one.start()
        await one.up(2)
        await two.up(1)
        assert one.transport.send(2, b"to two")
        assert two.transport.send(1, b"to one")
        await two.events.until(lambda: two.events.payloads == [(1, b"to two")])
        await one.events.until(lambda: one.events.payloads == [(2, b"to one")])
        await one.stop()
        await two.stop()

    asyncio.run(body())


def test_payload_longer_than_a_message_of_grpc_arrives(
    node_type: Any, addresses: Addresses
) -> None:
    payload = bytes(range(256)) * (GRPC_MESSAGE_BYTES_MAX // 256) + b"beyond"

    async def body() -> None:
        one, two = nodes = [node_type(node, addresses, over_grpc=True) for node in (1, 2)]
        for node in nodes:
            await node.start()
        await one.up(2)
        await two.up(1)
        assert one.transport.send(2, payload)
        await two.events.until(lambda: two.events.payloads == [(1, payload)])
        for node in nodes:
            await node.stop()

    asyncio.run(body())


def test_caller_of_an_earlier_release_is_refused_by_the_settings_name(
    node_type: Any, addresses: Addresses, identity_of: Identify
) -> None:
    async def body() -> None:
        one = node_type(1, addresses, over_grpc=True)
        await one.start()
        metadata = grpc.aio.Metadata(*identity_of(2).metadata(1))
        async with NoSecurity().open(addresses[1], 1) as channel:
            stub = RaftTransportStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Open(OpenRequest(), metadata=metadata)
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert 'set cluster.transport = "frames" on this one' in str(refused.value.details())
        assert not one.events.met
        await one.stop()

    asyncio.run(body())


def test_called_node_of_an_earlier_release_is_named_with_the_setting(
    node_type: Any,
    addresses: Addresses,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def earlier(port: int, ticket: bytes, frames_call: bool) -> StreamPlace:
        del frames_call
        return StreamPlace(port=port, ticket=ticket)

    monkeypatch.setattr("headrace_raftlog.transport.server.StreamPlace", earlier)
    caplog.set_level(logging.WARNING)

    async def body() -> None:
        one = node_type(1, addresses, over_grpc=True)
        two = node_type(2, addresses, over_grpc=False)
        await one.start()
        await two.start()
        session = one.transport.sessions[2]
        await until(lambda: bool(session.link.refusal))
        assert 'set cluster.transport = "frames" on this node' in session.link.refusal
        assert not one.events.peers
        await one.stop()
        await two.stop()

    asyncio.run(body())
    assert "node 2" in caplog.text


def test_calls_without_a_ticket_are_bounded_and_end(
    node_type: Any, caller_type: Any, addresses: Addresses, identity_of: Identify, until: Until
) -> None:
    async def body() -> None:
        one = node_type(1, addresses, over_grpc=True)
        await one.start()
        callers = one.transport._servicer.listener.callers
        async with NoSecurity().open(addresses[1], 1) as channel:
            stub: Any = RaftTransportStub(channel)
            aio: Any = grpc.aio
            idle = [stub.Frames() for _ in range(STREAM_CALLERS_MAX + 8)]
            for call in idle:
                await call.write(FrameBytes(data=bytes(STREAM_TICKET_BYTES - 1)))
            async with asyncio.timeout(30):
                for call in idle:  # the oldest are sent away, and the others after a time
                    assert await call.read() == aio.EOF
                    assert len(callers) <= STREAM_CALLERS_MAX
        await until(lambda: not callers)
        assert not one.events.met
        caller = caller_type(identity_of(2), addresses[1], 1)
        caller.over_grpc = True
        await caller.enter()
        await caller.write(Frame())
        await until(lambda: one.transport.sessions[2].frames_received == 1)
        await one.stop()
        await caller.ended()

    asyncio.run(body())


class Recipient(asyncio.Protocol):
    """A protocol that counts pauses."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append(f"lost {exc}")


async def silence() -> AsyncIterator[FrameBytes]:
    """Messages of who says nothing."""
    await asyncio.Event().wait()
    yield FrameBytes()


def test_messages_are_pieces_and_who_takes_none_pauses_the_writer(until: Until) -> None:
    async def body() -> None:
        taken: list[bytes] = []
        open_gate = asyncio.Event()

        async def write(message: FrameBytes) -> None:
            await open_gate.wait()
            taken.append(message.data)

        protocol = Recipient()
        transport = CallTransport(protocol, write)
        transport.set_write_buffer_limits(FRAME_WRITE_BYTES)
        carrying = asyncio.create_task(transport.carry(silence()))
        sent: list[bytes | memoryview] = [
            b"head",
            memoryview(bytes(range(256)) * 2048),
            b"",
            b"tail" * 9000,
        ]
        while not protocol.calls:
            transport.writelines(sent)
            await asyncio.sleep(0)
        assert protocol.calls == ["pause"]
        waiting = transport.get_write_buffer_size()
        assert FRAME_WRITE_BYTES < waiting <= FRAME_WRITE_BYTES + sum(map(len, sent))
        assert not taken
        open_gate.set()
        await until(lambda: not transport.get_write_buffer_size())
        assert protocol.calls == ["pause", "resume"]
        whole = b"".join(sent)
        assert b"".join(taken) == whole * (waiting // len(whole))
        assert max(map(len, taken)) == FRAME_PIECE_BYTES_MIN
        transport.abort()
        await carrying
        assert protocol.calls == ["pause", "resume", "lost None"]

    asyncio.run(body())


def test_peer_that_reads_nothing_is_sent_no_more_than_flow_control_takes(until: Until) -> None:
    frame = Frame(application=[bytes(FRAME_PIECE_BYTES_MIN)])

    async def body() -> None:
        reads = asyncio.Event()
        taken = 0

        class Peer:
            async def Open(self, request: Any, context: Any) -> StreamPlace:  # noqa: N802
                return StreamPlace()

            async def Frames(self, request_iterator: Any, context: Any) -> None:  # noqa: N802
                nonlocal taken
                await context.write(FrameBytes(data=ACCEPTED))
                await reads.wait()
                async for message in request_iterator:
                    taken += len(message.data)

        server = grpc.aio.server()
        peer: Any = Peer()
        add_RaftTransportServicer_to_server(peer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        over = asyncio.Event()
        place = StreamPlace(ticket=bytes(STREAM_TICKET_BYTES))
        connection = await call_frames(f"127.0.0.1:{port}", place, NoSecurity(), 2, over.set)
        assert connection.takes_fragments
        sent = STREAM_TICKET_BYTES
        stands_still = 0
        while stands_still < 20:  # half a second in which nothing more is taken
            stands_still += 1
            if connection.is_writable:
                connection.put(frame)
                sent += LENGTH_BYTES + frame.ByteSize()
                stands_still = 0
            await asyncio.sleep(0.025 if stands_still else 0)
            assert sent < 64 << 20, "it goes on writing"
        assert not connection.has_room
        assert connection._transport.get_write_buffer_size() < 2 * FRAME_WRITE_BYTES
        reads.set()
        await until(lambda: taken == sent)
        assert connection.is_writable
        await server.stop(None)
        async with asyncio.timeout(30):
            await over.wait()
        connection.abort()

    asyncio.run(body())
