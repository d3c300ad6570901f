"""Three real nodes over loopback, each with its own directory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.raftlog.node.inside import entry_data

from headrace_raftlog.model.errors import IdentityError
from headrace_raftlog.model.group import BUSY, NOT_LEADER, CoreOptions
from headrace_raftlog.model.pieces import Pieces

MakeCluster = Callable[..., Any]


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(body)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_proposal_is_applied_on_every_node_in_the_same_order(
    cluster: MakeCluster, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(1, 2, 3)
        c.create(5)
        leader = await c.elected(5)
        sent = [b"%d" % i for i in range(200)]
        first = c.nodes[leader].propose(5, sent[0])
        for data in sent[1:]:
            assert c.nodes[leader].propose(5, data) > first
        await c.until(lambda: all(c.machines[n, 5].applied == sent for n in (1, 2, 3)))
        for node in (1, 2, 3):
            assert c.nodes[node].leader(5) == leader
            assert entry_data(c.nodes[node], 5, first) == b"0"
            assert c.nodes[node].applied_index(5) == first + 199
            if node != leader:
                assert c.nodes[node].propose(5, b"no") == NOT_LEADER
                assert not c.nodes[node].serving(5)
        assert c.machines[leader, 5].leaders[-1][0::2] == (leader, True)
        await c.stop()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(body())


def test_proposals_of_one_turn_leave_in_one_message_and_frame(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster(core=CoreOptions(election_ticks=500))
        await c.start(1, 2, 3)
        await c.until(lambda: len(c.peers[1]) == 2)
        c.create(5, campaign=1)
        assert await c.elected(5) == 1
        core = c.nodes[1]._host.find(5).core
        await c.ticks(lambda: all(core.progress(p).match == core.last_index for p in (2, 3)))
        posted: list[Any] = []
        transport = c.nodes[1]._transport
        post = c.nodes[1]._host._port.post

        def spy(message: Any) -> Any:
            posted.append(message)
            return post(message)

        c.nodes[1]._host._port.post = spy
        frames = {p: transport.sessions[p].link.frames_sent for p in (2, 3)}
        for i in range(100):
            c.nodes[1].propose(5, b"%d" % i)
        await c.until(lambda: len(c.machines[1, 5].applied) == 100)
        appends = [m for m in posted if m.entries]
        assert sorted((m.target, len(m.entries)) for m in appends) == [(2, 100), (3, 100)]
        for peer in (2, 3):
            assert transport.sessions[peer].link.frames_sent - frames[peer] < 50
        await c.stop()

    run(body())


def test_restarted_follower_recovers_and_catches_up(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(1, 2, 3)
        c.create(5)
        await c.propose(5, b"before")
        follower = next(n for n in (1, 2, 3) if n != c.leader(5))
        await c.until(lambda: b"before" in c.machines[follower, 5].applied)
        await c.stop(follower)
        await c.propose(5, b"while away")
        await c.start(follower)
        assert c.nodes[follower].boot == 2
        c.create(5, follower)
        await c.propose(5, b"after")
        machine = c.machines[follower, 5]
        await c.until(lambda: b"after" in machine.applied)
        assert list(dict.fromkeys(machine.applied)) == [b"before", b"while away", b"after"]
        assert machine.indexes == sorted(set(machine.indexes))
        await c.stop()

    run(body())


def test_dead_leader_is_replaced_and_nothing_committed_is_lost(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(1, 2, 3)
        c.create(5)
        for i in range(20):
            await c.propose(5, b"%d" % i)
        old = await c.elected(5)
        committed = list(dict.fromkeys(c.machines[old, 5].applied))
        await c.stop(old)
        new = await c.elected(5)
        assert new != old
        await c.propose(5, b"by the new leader")
        after = list(dict.fromkeys(c.machines[c.leader(5), 5].applied))
        assert after == [*committed, b"by the new leader"]
        await c.start(old)
        c.create(5, old)
        await c.until(lambda: list(dict.fromkeys(c.machines[old, 5].applied)) == after)
        await c.stop()

    run(body())


def test_whole_cluster_restarted_applies_everything_anew(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(1, 2, 3)
        c.create(0)
        c.create(9)
        await c.propose(9, b"one")
        await c.propose(9, b"two")
        await c.stop()
        await c.start(1, 2, 3)
        c.create(0)
        c.create(9)
        await c.until(
            lambda: all(
                list(dict.fromkeys(c.machines[n, 9].applied)) == [b"one", b"two"] for n in (1, 2, 3)
            )
        )
        await c.stop()

    run(body())


def all_quiesced(c: Any, groups: range) -> bool:
    return all(node._host.find(g).core.quiesced for node in c.nodes.values() for g in groups)


def test_silent_groups_send_nothing_and_wake_when_a_node_dies(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster(core=CoreOptions(election_ticks=50, quiesce_ticks=5))
        groups = range(1, 201)
        await c.start(1, 2, 3)
        await c.until(lambda: all(len(c.peers[n]) == 2 for n in (1, 2, 3)))
        for group in groups:
            c.create(group, campaign=1 + group % 3)
        await c.until(lambda: all(c.leader(g) for g in groups))
        await c.ticks(lambda: all_quiesced(c, groups))
        before = {n: node.counters() for n, node in c.nodes.items()}

        def beats() -> int:
            counts: list[Any] = [(c.nodes[n].counters(), before[n]) for n in (1, 2, 3)]
            return min(int(now["frames_received"] - was["frames_received"]) for now, was in counts)

        await c.ticks(lambda: beats() > 20)
        for node, was in before.items():
            now = c.nodes[node].counters()
            assert now["raft_messages_sent"] == was["raft_messages_sent"]
        assert all_quiesced(c, groups)

        await c.stop(1)
        await c.until(lambda: all(c.leader(g) for g in groups))
        assert {c.leader(g) for g in groups} == {2, 3}
        await c.stop()

    run(body())


def test_application_payloads_arrive_in_order_and_peers_are_reported(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(1, 2)
        await c.until(lambda: c.peers[1] == [(2, True, 1)] and c.peers[2] == [(1, True, 1)])
        sent = [b"%d" % i for i in range(1000)]
        assert all(c.nodes[1].send(2, data) for data in sent)
        assert not c.nodes[1].send(3, b"not there")
        assert not c.nodes[1].send(7, b"unknown")
        await c.until(lambda: len(c.payloads[2]) == 1000)
        assert c.payloads[2] == [(1, data) for data in sent]
        await c.stop(2)
        await c.until(lambda: c.peers[1] == [(2, True, 1), (2, False, 1)])
        assert not c.nodes[1].send(2, b"down")
        await c.start(2)
        await c.until(lambda: c.peers[1][2:] == [(2, True, 2)])
        assert c.nodes[1].send(2, b"again")
        await c.until(lambda: c.payloads[2] == [(1, b"again")])
        await c.stop()

    run(body())


def test_messages_for_a_group_not_there_yet_are_held(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster(core=CoreOptions(election_ticks=200))
        await c.start(1, 2, 3)
        await c.until(lambda: len(c.peers[1]) == 2)
        held = c.nodes[3]._host._held
        c.create(5, 1, 2, campaign=1)
        await c.elected(5)
        await c.propose(5, b"early")
        await c.ticks(lambda: held.count > 0)
        c.create(5, 3)
        assert held.count == 0
        await c.until(lambda: c.machines[3, 5].applied == [b"early"])
        assert c.machines[3, 5].leaders[0][0] == 1
        await c.stop()

    run(body())


def test_removed_group_is_gone_for_good(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(1, 2, 3)
        c.create(5)
        c.create(6)
        await c.propose(5, b"x")
        c.nodes[3].remove_group(5)
        assert c.nodes[3].propose(5, b"x") == NOT_LEADER
        assert c.nodes[3].leader(5) == 0
        with pytest.raises(KeyError, match="group 5"):
            entry_data(c.nodes[3], 5, 1)
        await c.propose(5, b"the others go on")
        assert c.nodes[3]._host._held.count == 0
        with pytest.raises(KeyError, match="removed"):
            c.create(5, 3)
        await c.stop(3)
        await c.start(3)
        with pytest.raises(KeyError, match="removed"):
            c.create(5, 3)
        c.create(6, 3)
        with pytest.raises(ValueError, match="group 6 exists"):
            c.create(6, 3)
        await c.stop()

    run(body())


def test_handler_that_raises_stops_its_node_and_no_other(cluster: MakeCluster) -> None:
    class BrokenError(RuntimeError):
        pass

    def raises(entries: list[Any]) -> None:
        raise BrokenError

    async def body() -> None:
        c = cluster()
        await c.start(1, 2, 3)
        c.create(5)
        old = await c.elected(5)
        c.machines[old, 5].apply = raises
        c.nodes[old].propose(5, b"poison")
        await c.until(lambda: old in c.fatal)
        assert isinstance(c.fatal[old], BrokenError)
        assert c.nodes[old].propose(5, b"more") == NOT_LEADER
        await c.until(lambda: any(n != old and c.nodes[n].serving(5) for n in (1, 2, 3)))
        await c.stop()
        assert list(c.fatal) == [old]

    run(body())


def test_full_disk_refuses_proposals_and_the_group_goes_on_following(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(1, 2, 3)
        c.create(5)
        leader = await c.elected(5)
        node = c.nodes[leader]
        node._disk.full(True)
        assert node.disk_full
        assert node.propose(5, b"no room") == BUSY
        others = [n for n in (1, 2, 3) if n != leader]
        assert c.nodes[others[0]].propose(5, b"x") == NOT_LEADER
        node._disk.full(False)
        await c.propose(5, b"room")
        await c.until(lambda: all(c.machines[n, 5].applied == [b"room"] for n in (1, 2, 3)))
        await c.stop()

    run(body())


@pytest.mark.parametrize("report", ["on_peer", "on_payload"])
def test_application_that_raises_on_a_report_stops_the_node(
    cluster: MakeCluster, report: str
) -> None:
    def fail(*args: object) -> None:
        raise ZeroDivisionError

    async def body() -> None:
        c = cluster()
        await c.start(1)
        setattr(c.nodes[1], report, fail)
        events = c.nodes[1]._transport._events
        if report == "on_peer":
            events.on_peer(2, True, 1)
        else:
            events.on_payload(2, b"x")
        assert isinstance(c.fatal[1], ZeroDivisionError)
        await c.stop()

    run(body())


def test_directory_of_another_cluster_is_refused(cluster: MakeCluster) -> None:
    async def body() -> None:
        first = cluster()
        await first.start(1)
        await first.stop()
        with pytest.raises(IdentityError, match="cluster 'test'"):
            await cluster(cluster="another").start(1)

    run(body())


def test_health_follows_the_leader_of_group_0_and_other_services_may_be_added(
    cluster: MakeCluster,
) -> None:
    async def body() -> None:
        c = cluster()
        served: list[grpc.aio.Server] = []
        c.nodes[1] = node = c.make(1)
        node.servicers.append(served.append)
        await node.start()
        assert served == [node.server]
        async with grpc.aio.insecure_channel(c.addresses[1]) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service="headrace.raftlog")
            assert (await stub.Check(request)).status == health_pb2.HealthCheckResponse.NOT_SERVING
            watch = stub.Watch(request)
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            node.create_group(0, (1,), (), c.make_machine())
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            watch.cancel()
        await c.stop()

    run(body())


def test_oversized_data_is_refused_by_size(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(1)
        with pytest.raises(ValueError, match=r"entry of 524289 bytes, the maximum is 524288"):
            c.nodes[1].propose(5, b"x" * (512 * 1024 + 1))
        pieces = Pieces([*[bytes(1 << 20)] * 513, b"x"])
        with pytest.raises(ValueError, match="payload of 537919489 bytes, the maximum is"):
            c.nodes[1].send(2, pieces)
        await c.stop()

    run(body())
