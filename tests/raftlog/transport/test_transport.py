"""Real connections over loopback."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
import uvloop

from headrace_raftlog.log_event import LOOP_STALLED
from headrace_raftlog.model.errors import CloneError, ForgottenError
from headrace_raftlog.model.limits import FRAME_GATHER_TURNS
from headrace_raftlog.model.message import APPEND, HEARTBEAT, Message
from headrace_raftlog.transport.identity import StreamIdentity, StreamRefusedError
from headrace_raftlog.transport.outbox import Outbox
from headrace_raftlog.transport.peer_link import PeerLink

pytestmark = pytest.mark.usefixtures("over_grpc")

Addresses = dict[int, str]
Identify = Callable[..., Any]
Until = Callable[..., Awaitable[None]]


async def started(node_type: Any, addresses: Addresses, nodes: tuple[int, ...]) -> list[Any]:
    found = [node_type(node, addresses) for node in nodes]
    for node in found:
        await node.start()
    for node in found:
        others = {other for other in nodes if other != node.node}
        await node.events.until(
            lambda n=node, o=others: {p for p, up, _ in n.events.peers if up} == o
        )
    return found


async def stop_all(nodes: list[Any]) -> None:
    for node in nodes:
        await node.stop()


def heartbeat(source: int, target: int, group: int) -> Message:
    return Message(HEARTBEAT, group, source, target, 1)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_messages_and_payloads_arrive_in_order_in_few_frames(
    node_type: Any, addresses: Addresses, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def body() -> None:
        one, two = nodes = await started(node_type, addresses, (1, 2))
        before = two.transport.sessions[1].frames_received
        for i in range(500):
            assert one.transport.post(heartbeat(1, 2, i))
            assert one.transport.send(2, b"%d" % i)
        one.transport.flush()
        await two.events.until(
            lambda: len(two.events.messages) == 500 and len(two.events.payloads) == 500
        )
        assert [m.group for m in two.events.messages] == list(range(500))
        assert two.events.payloads == [(1, b"%d" % i) for i in range(500)]
        link, session = one.transport.sessions[2].link, two.transport.sessions[1]
        assert link.messages_sent == session.messages_received == 500
        # One frame; beats before and after it may be counted too, but none per message.
        assert session.frames_received - before < 100
        await stop_all(nodes)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(body())


def test_what_comes_in_the_next_turns_shares_a_frame(
    node_type: Any, addresses: Addresses, until: Until
) -> None:
    async def body() -> None:
        one, two = nodes = await started(node_type, addresses, (1, 2))
        link = one.transport.sessions[2].link
        await until(lambda: link.frames_sent > 0)
        await one.fall_silent()
        before = link.frames_sent
        groups = list(range(1 + FRAME_GATHER_TURNS))
        for group in groups:
            one.transport.post(Message(APPEND, group, 1, 2, 1))
            one.transport.flush()
            await asyncio.sleep(0)
        await two.events.until(lambda: len(two.events.messages) == len(groups))
        assert [message.group for message in two.events.messages] == groups
        assert link.frames_sent == before + 1
        await stop_all(nodes)

    asyncio.run(body())


def test_peer_that_stops_is_down_and_comes_back_with_its_new_boot_count(
    node_type: Any, addresses: Addresses
) -> None:
    async def body() -> None:
        one, two = await started(node_type, addresses, (1, 2))
        assert one.events.peers == [(2, True, 1)]
        await two.stop()
        await one.events.until(lambda: (2, False, 1) in one.events.peers)
        assert not one.transport.send(2, b"lost")
        assert not one.transport.post(heartbeat(1, 2, 1))
        again = node_type(2, addresses, boot=2)
        await again.start()
        await one.events.until(lambda: len(one.events.peers) == 3)
        assert one.events.peers == [(2, True, 1), (2, False, 1), (2, True, 2)]
        assert one.transport.send(2, b"arrives")
        one.transport.flush()
        await again.events.until(lambda: bool(again.events.payloads))
        assert again.events.payloads == [(1, b"arrives")]
        await stop_all([one, again])

    asyncio.run(body())


def test_broken_stream_takes_both_sides_down_and_up_again(
    node_type: Any, addresses: Addresses
) -> None:
    async def body() -> None:
        one, two = nodes = await started(node_type, addresses, (1, 2))
        one.transport.sessions[2].link.reset()
        assert not one.transport.send(2, b"while down")
        await one.events.until(lambda: len(one.events.peers) == 3)
        await two.events.until(lambda: len(two.events.peers) == 3)
        assert [up for _, up, _ in one.events.peers] == [True, False, True]
        assert [up for _, up, _ in two.events.peers] == [True, False, True]
        await stop_all(nodes)

    asyncio.run(body())


def test_silent_peer_is_down_without_a_broken_stream(node_type: Any, addresses: Addresses) -> None:
    async def body() -> None:
        one = node_type(1, addresses, silence_s_max=0.5)
        two = node_type(2, addresses)
        await one.start()
        await two.start()
        await one.events.until(lambda: (2, True, 1) in one.events.peers)
        two.stop_ticking()
        await one.events.until(lambda: (2, False, 1) in one.events.peers)
        await stop_all([one, two])

    asyncio.run(body())


def test_time_in_which_this_process_stood_still_is_not_held_against_a_peer(
    node_type: Any, addresses: Addresses
) -> None:
    async def body() -> None:
        one, _ = nodes = await started(node_type, addresses, (1, 2))
        session = one.transport.sessions[2]
        session.check_liveness(-1.0, 3600.0)
        assert session.up
        session.check_liveness(-7200.0, 0.0)
        assert not session.up
        await stop_all(nodes)

    asyncio.run(body())


def test_node_says_for_how_long_it_stood_still_and_whether_it_was_at_work(
    node_type: Any, addresses: Addresses, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        one, *_ = nodes = await started(node_type, addresses, (1, 2))
        one.stop_ticking()
        transport = one.transport
        transport.tick()
        assert stalls(caplog) == []
        for worked in (0, 3000):
            transport.tick()
            transport._ticked_at -= 3600.0
            transport._worked_s -= worked
            transport.tick()
        told = stalls(caplog)
        assert all(3600 <= each["seconds"] < 3700 for each in told)
        assert [each["worked"] // 1000 for each in told] == [0, 3]
        assert one.events.peers == [(2, True, 1)]
        await stop_all(nodes)

    caplog.set_level(logging.WARNING, logger="headrace.cluster")
    asyncio.run(body())


def stalls(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    found = [each for each in caplog.records if getattr(each, "event", "") == LOOP_STALLED.name]
    return [each.fields for each in found]  # type: ignore[attr-defined]


def test_node_of_another_cluster_is_refused_with_the_reason(
    node_type: Any, caller_type: Any, addresses: Addresses, identity_of: Identify
) -> None:
    async def body() -> None:
        one = node_type(1, addresses)
        await one.start()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await caller_type(identity_of(2, cluster="another"), addresses[1], 1).ask()
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "'another' reached node 1 of cluster 'test'" in str(refused.value.details())
        assert one.events.peers == []
        await one.stop()

    asyncio.run(body())


class RefusalWatch(logging.Handler):
    """Waits for log records of refused streams."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = asyncio.Semaphore(0)

    def emit(self, record: logging.LogRecord) -> None:
        if "refused a stream" in record.getMessage():
            self.seen.release()


def test_node_that_reaches_the_wrong_address_logs_the_refusal_once(
    node_type: Any, addresses: Addresses, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        other = node_type(2, {2: addresses[2]}, cluster="another")
        one = node_type(1, addresses)
        watch = RefusalWatch()
        server_log = logging.getLogger("headrace.cluster")
        server_log.addHandler(watch)
        try:
            await other.start()
            await one.start()
            async with asyncio.timeout(30):
                for _ in range(3):
                    await watch.seen.acquire()
        finally:
            server_log.removeHandler(watch)
            await stop_all([one, other])

    asyncio.run(body())
    refusals = [r.message for r in caplog.records if "node 2 at" in r.message]
    assert len(refusals) == 1
    assert "of cluster 'another'" in refusals[0]


def test_other_end_cannot_write_lines_of_the_log(
    caplog: pytest.LogCaptureFixture, identity_of: Identify
) -> None:
    async def refuse(request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no\nCRITICAL forged")

    async def body() -> None:
        handler = grpc.unary_unary_rpc_method_handler(refuse)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    "headrace.raftlog.v1.RaftTransport", {"Open": handler}
                )
            ]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        identity = identity_of(1)
        link = PeerLink(2, f"127.0.0.1:{port}", identity, Owner(), Outbox())
        with pytest.raises(StreamRefusedError) as refused:
            await link._stream()
        link._complain(refused.value)
        await server.stop(None)

    with caplog.at_level(logging.INFO):
        asyncio.run(body())
    [message] = [r.message for r in caplog.records if "node 2 at" in r.message]
    assert "forged" in message
    assert "\n" not in message


class Owner:
    """Takes no notice of its link."""

    def link_connected(self) -> None:
        """See `LinkOwner`."""

    def link_lost(self) -> None:
        """See `LinkOwner`."""

    def judge(self, remote: StreamIdentity) -> None:
        """See `LinkOwner`."""

    def removed(self) -> None:
        """See `LinkOwner`."""

    def outdated(self, reason: ForgottenError | CloneError) -> None:
        """See `LinkOwner`."""


def test_port_in_use_is_named(node_type: Any, addresses: Addresses) -> None:
    async def body() -> None:
        one = node_type(1, addresses)
        await one.start()
        other = node_type(2, {2: addresses[1], 1: addresses[3]})
        with pytest.raises(
            OSError, match=f"cannot listen on {addresses[1]} .*: address already in use"
        ):
            await other.start()
        await one.stop()

    asyncio.run(body())


def test_large_payloads_fit_a_frame_and_a_slow_peer_fills_the_lane(
    node_type: Any, addresses: Addresses
) -> None:
    async def body() -> None:
        one, two = nodes = await started(node_type, addresses, (1, 2))
        big = b"x" * (30 << 20)
        assert one.transport.send(2, big)
        assert not one.transport.send(2, big)
        one.transport.flush()
        await two.events.until(lambda: bool(two.events.payloads))
        assert two.events.payloads == [(1, big)]
        await stop_all(nodes)

    asyncio.run(body())


def test_how_far_a_log_is_synced_is_said_once_on_each_connection(
    node_type: Any, addresses: Addresses
) -> None:
    async def body() -> None:
        one, two = nodes = [node_type(node, addresses) for node in (1, 2)]
        link = one.transport.sessions[2].link
        link.synced = lambda: 7
        for node in nodes:
            await node.start()
        said: list[int] = []
        receiver = two.transport.sessions[1]
        receive = receiver.received

        def note(stream: Any, frame: Any, bodies: Any) -> None:
            said.append(frame.synced)
            receive(stream, frame, bodies)

        receiver.received = note
        await two.up(1)
        await one.up(2)
        assert one.transport.send(2, b"first")
        await two.events.until(lambda: two.events.payloads == [(1, b"first")])
        assert receiver._incoming.synced == 7
        link.reset()
        await two.events.until(lambda: two.events.peers[-2:] == [(1, False, 1), (1, True, 1)])
        await one.events.until(lambda: one.events.peers[-1] == (2, True, 1))
        assert one.transport.send(2, b"second")
        await two.events.until(lambda: two.events.payloads[-1] == (1, b"second"))
        assert receiver._incoming.synced == 7
        assert one.transport.send(2, b"third")
        await two.events.until(lambda: two.events.payloads[-1] == (1, b"third"))
        assert said.count(7) <= 2 < len(said)
        link.synced = lambda: 8
        assert one.transport.send(2, b"fourth")
        await two.events.until(lambda: two.events.payloads[-1] == (1, b"fourth"))
        assert receiver._incoming.synced == 8
        await stop_all(nodes)

    asyncio.run(body())


def test_heartbeats_travel_with_what_is_urgent_and_alone_a_little_later(
    node_type: Any, addresses: Addresses, until: Until
) -> None:
    async def body() -> None:
        one, two = nodes = await started(node_type, addresses, (1, 2))
        link = one.transport.sessions[2].link
        await until(lambda: link.frames_sent > 0)
        await one.fall_silent()
        one.transport.post(heartbeat(1, 2, 1))
        one.transport.flush()
        assert not link._work.is_set()
        one.transport.post(Message(APPEND, 2, 1, 2, 1))
        one.transport.flush()
        assert link._work.is_set()
        await two.events.until(lambda: len(two.events.messages) == 2)
        assert [m.group for m in two.events.messages] == [1, 2]
        one.transport.post(heartbeat(1, 2, 3))
        one.transport.flush()
        assert not link._work.is_set()
        await two.events.until(lambda: len(two.events.messages) == 3)
        one.transport.post(Message(HEARTBEAT, 4, 1, 2, 1, context=9))
        one.transport.flush()
        assert link._work.is_set()
        await stop_all(nodes)

    asyncio.run(body())


def test_nodes_that_join_meanwhile_come_up_with_new_streams(
    node_type: Any, addresses: Addresses, identity_of: Identify
) -> None:
    async def body() -> None:
        one, two = (node_type(n, addresses, identity=identity_of(n, formed={})) for n in (1, 2))
        await one.start()
        await two.start()
        await one.events.until(lambda: any(m.disk == 22 for m in one.events.met))
        await two.events.until(lambda: any(m.disk == 11 for m in two.events.met))
        assert one.transport.generation(2) == -1
        one.transport.become(identity_of(1))
        await two.events.until(lambda: any(m.formed for m in two.events.met))
        assert not one.transport.send(2, b"it does not belong to us yet")
        two.transport.become(identity_of(2, disk=99))
        await one.events.until(lambda: (2, True, 1) in one.events.peers)
        await two.events.until(lambda: (1, True, 1) in two.events.peers)
        assert one.transport.generation(2) == 99
        assert two.transport.generation(1) == 0
        assert one.transport.post(heartbeat(1, 99 << 10 | 2, 5))
        one.transport.flush()
        await two.events.until(lambda: bool(two.events.messages))
        assert two.events.messages[0].target == 99 << 10 | 2
        await stop_all([one, two])

    asyncio.run(body())


def test_stop_ends_though_whoever_asked_first_is_cancelled(
    node_type: Any, addresses: Addresses
) -> None:
    """A node that has failed leaves by itself, and is told to stop meanwhile."""

    async def body() -> None:
        one = node_type(1, addresses)
        await one.start()
        stop, over = one.transport.server.stop, asyncio.get_running_loop().create_future()

        async def stop_as_grpc_does(grace: float | None) -> None:
            await over  # of all who stop it: it is cancelled with one of them

        one.transport.server.stop = stop_as_grpc_does
        leaving = asyncio.create_task(one.transport.stop())
        await asyncio.sleep(0.01)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        again = asyncio.create_task(one.transport.stop())
        await asyncio.sleep(0.01)
        assert not again.done()
        over.set_result(None)
        await again
        await stop(None)

    asyncio.run(body())
