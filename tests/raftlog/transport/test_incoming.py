"""Who may open a stream, and what becomes of what arrives on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace_raftlog.model.limits import (
    FRAME_BYTES_MAX,
    STREAM_CALLERS_MAX,
    STREAM_TICKET_BYTES,
)
from headrace_raftlog.transport.identity import StreamIdentity
from headrace_raftlog.transport.pb.transport_pb2 import (
    Frame,
    MessageKind,
    OpenRequest,
    RaftMessage,
    StreamPlace,
)
from headrace_raftlog.transport.transport import Transport

Addresses = dict[int, str]
Identify = Callable[..., Any]


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await body()

    asyncio.run(main())


async def up(node: Any, peer: int) -> None:
    await node.events.until(lambda: (peer, True, 1) in node.events.peers)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what no event tells."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def raw_heartbeat(source: int) -> RaftMessage:
    return RaftMessage(kind=MessageKind.MESSAGE_KIND_HEARTBEAT, source=source, target=1)


def test_newer_stream_of_a_peer_replaces_the_older(
    node_type: Any, caller_type: Any, addresses: Addresses, identity_of: Identify
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

    run(body)


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
        await older.enter(first)
        await older.ended()
        await newer.enter(second)
        await again.enter(second)
        await again.ended()
        await guess.enter(StreamPlace(port=second.port, ticket=bytes(STREAM_TICKET_BYTES)))
        await guess.ended()
        assert not newer.is_over
        assert [met.node for met in one.events.met] == [2]
        await one.stop()

    run(body)


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
        await barred.enter(place)
        await barred.ended()
        await one.transport.set_peers(addresses)
        place = await away.ask()
        await one.transport.set_peers({1: addresses[1]})
        await away.enter(place)
        await away.ended()
        await one.transport.set_peers(addresses)
        place = await anew.ask()
        await one.transport.verify_anew()
        await anew.enter(place)
        await anew.ended()
        monkeypatch.setattr("headrace_raftlog.transport.server.STREAM_TICKET_S_MAX", -1.0)
        await late.enter()
        await late.ended()
        assert not one.events.met
        await one.stop()

    run(body)


def test_who_was_told_an_older_identity_has_to_ask_again(
    node_type: Any, caller_type: Any, addresses: Addresses, identity_of: Identify
) -> None:
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
        place = await one.transport._servicer.Open(OpenRequest(), context)
        assert context.told is not None
        assert not context.told.formed
        caller = caller_type(identity_of(2), addresses[1], 1)
        await caller.enter(place)
        await caller.ended()
        assert not one.events.met
        await caller.enter()
        await one.events.until(lambda: [met.node for met in one.events.met] == [2])
        await one.stop()

    run(body)


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

    run(body)


def test_callers_without_a_ticket_are_bounded(
    node_type: Any, caller_type: Any, addresses: Addresses, identity_of: Identify
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
            for reader, writer in idle[STREAM_CALLERS_MAX:]:
                assert await reader.read() == b""
                writer.close()
        assert len(listener.callers) <= STREAM_CALLERS_MAX
        for _, writer in idle[:STREAM_CALLERS_MAX]:
            writer.close()
        await until(lambda: not listener.callers)
        caller = caller_type(identity_of(2), addresses[1], 1)
        await caller.enter()
        await caller.write(Frame())
        await until(lambda: one.transport.sessions[2].frames_received == 1)
        await one.stop()
        await caller.ended()

    run(body)


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
        await up(one, 3)
        wrong, garbage, huge = (caller_type(identity_of(2), addresses[1], 1) for _ in range(3))
        await wrong.enter()
        await wrong.write(Frame(messages=[raw_heartbeat(3)]))
        await wrong.ended()
        for caller, octets in ((garbage, b"\0\0\0\3\xff\xff\xff"), (huge, b"\x7f\0\0\0")):
            await caller.enter()
            caller.connection.show(octets)
            await caller.ended()
        assert one.events.messages == []
        assert one.events.peers == [(3, True, 1)]
        for node in nodes:
            await node.stop()

    run(body)
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert [text.partition(": ")[0] for text in errors] == ["node 2 sent a malformed frame"] * 3
    assert "message from 3 to 1" in errors[0]
    assert errors[2].endswith(f"frame of {0x7F << 24} octets, the maximum is {FRAME_BYTES_MAX}")


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

    run(body)


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
        await up(one, 2)
        await up(two, 1)
        assert one.transport.send(2, b"x")
        await two.events.until(lambda: two.events.payloads == [(1, b"x")])
        for node in nodes:
            await node.stop()

    run(body)
