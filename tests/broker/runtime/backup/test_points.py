"""Points of queues on the nodes that have replicas, asked from any node."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.broker.gateways.grpc.lease_world import StoppedClock, Watcher

from headrace_broker.codecs.batch import batch_count, encode_batch, message_body
from headrace_broker.core.queue.command import encode_enqueue, encode_purge
from headrace_broker.model.definition import QUEUE_QUORUM, Queue
from headrace_broker.model.message import Publish
from headrace_broker.model.session import session_id
from headrace_broker.runtime import backup_client as module
from headrace_broker.runtime.backup_client import BackupClient, NodeSilentError
from headrace_broker.runtime.backup_points import LOST, NO_REPLICA, OK, BackupPoints
from headrace_broker.runtime.leader_client import QueueGoneError
from headrace_broker.runtime.pb.cluster_pb2 import BackupKeep, BackupRead, ClusterPayload
from headrace_broker.runtime.queue_host import QueueHost
from headrace_broker.runtime.queue_log import MemoryQueueLog
from headrace_broker.runtime.wire import Switchboard
from headrace_raftlog.model.errors import RaftLogError

QUEUE = Queue("/", "work", QUEUE_QUORUM, 7, (1, 2, 3))
PUBLISHER = session_id(3, 1, 1)
TTL = 60_000


class Node:
    """A node with a replica, or without."""

    def __init__(self, world: World, number: int, has_replica: bool) -> None:
        self.number = number
        self.world = world
        self.clock = StoppedClock()
        self.hosts: dict[int, QueueHost] = {}
        self.short = ""
        self.points = BackupPoints(self.hosts, lambda: 5, lambda: self.short, self.clock)
        self.client = BackupClient(
            number,
            self.points,
            self.hosts,
            lambda queue: world.leader,
            self.send,
            lambda group: QUEUE if world.exists else None,
        )
        if has_replica:
            log = MemoryQueueLog(number, asyncio.get_running_loop())
            board = Switchboard(number, lambda node, payload: False)
            host = QueueHost(QUEUE, number, log, board, Watcher(), self.clock)
            log.apply = host.apply_one
            host.leadership(number, 1, True)
            self.hosts[QUEUE.group] = host
            world.publish(host)

    @property
    def host(self) -> QueueHost:
        return self.hosts[QUEUE.group]

    def send(self, target: int, data: bytes) -> bool:
        world = self.world
        world.asked.append((self.number, target))
        if target in world.down:
            return False
        if self.number in world.late:
            world.kept.append((target, self.number, data))
        elif target not in world.deaf:
            asyncio.get_running_loop().call_soon(world.nodes[target].receive, self.number, data)
        return True

    def receive(self, source: int, data: bytes) -> None:
        payload = ClusterPayload.FromString(data)
        if payload.WhichOneof("body") == "backup_question":
            self.client.receive_question(source, payload.backup_question)
        else:
            self.client.receive_answer(source, payload.backup_answer)


class World:
    """Four nodes, of which 1 leads and 4 has no replica."""

    def __init__(self) -> None:
        self.leader = 1
        self.exists = True
        self.down: set[int] = set()
        self.deaf: set[int] = set()
        self.late: set[int] = set()  # what they send arrives when it is let go
        self.kept: list[tuple[int, int, bytes]] = []
        self.asked: list[tuple[int, int]] = []
        self.nodes = {number: Node(self, number, number < 4) for number in (1, 2, 3, 4)}

    def publish(self, host: QueueHost) -> None:
        publishes = [Publish(1, b"\x00\x01q", False, False, b"\x00\x00", b"%d" % n) for n in (1, 2)]
        host.propose(encode_enqueue(PUBLISHER, 1, encode_batch(publishes)))

    def stop(self) -> None:
        for node in self.nodes.values():
            node.points.stop()


@pytest.fixture
def run() -> Callable[[Callable[[World], Coroutine[Any, Any, None]]], None]:
    async def with_world(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        world = World()
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(20):
                await scenario(world)
        finally:
            world.stop()

    return lambda scenario: asyncio.run(with_world(scenario))


def bodies(answer: Any) -> list[bytes]:
    return [message_body(answer.batch, 0, at) for at in range(batch_count(answer.batch, 0))]


READ = {"after": 0, "messages": 10, "octets": 1000}


def test_point_is_opened_on_a_follower_and_read_through_any_node(run) -> None:
    async def scenario(world: World) -> None:
        for asking, wanted in ((1, 2), (2, 2), (3, 3), (4, 2)):
            node, answer = await world.nodes[asking].client.open(QUEUE, TTL)
            assert (node, answer.status, answer.messages) == (wanted, OK, 2)
            for reading in world.nodes.values():
                asked = BackupRead(point=answer.point, **READ)
                assert bodies(await reading.client.read(node, asked)) == [b"1", b"2"]
            closed = await world.nodes[4].client.close(node, answer.point)
            assert closed.status == OK

    run(scenario)


def test_nodes_that_are_down_or_silent_are_passed_over_and_the_leader_comes_last(
    run, monkeypatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.2)
    monkeypatch.setattr(module, "BACKUP_CATCH_UP_S", 0.1)

    async def scenario(world: World) -> None:
        world.down = {2}
        assert (await world.nodes[4].client.open(QUEUE, TTL)).node == 3
        world.deaf = {3}
        assert (await world.nodes[4].client.open(QUEUE, TTL)).node == 1
        assert [target for source, target in world.asked if source == 4] == [2, 3, 2, 3, 1]
        world.down = {1, 2}
        node, answer = await world.nodes[4].client.open(QUEUE, TTL)
        assert (node, answer.status) == (0, NO_REPLICA)
        with pytest.raises(NodeSilentError, match="node 2 cannot be reached"):
            await world.nodes[4].client.read(2, BackupRead(point=1, **READ))
        with pytest.raises(NodeSilentError, match="node 3 does not answer"):
            await world.nodes[4].client.read(3, BackupRead(point=1, **READ))

    run(scenario)


def test_point_of_which_nobody_was_told_in_time_is_closed(run, monkeypatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.2)
    monkeypatch.setattr(module, "BACKUP_CATCH_UP_S", 0.1)

    async def scenario(world: World) -> None:
        world.late = {2}
        node, answer = await world.nodes[4].client.open(QUEUE, TTL)
        assert (node, answer.status) == (3, OK)
        [(target, source, data)] = world.kept
        [forgotten] = world.nodes[2].points._points
        world.late = set()
        world.nodes[target].receive(source, data)
        while world.nodes[2].points._points:  # noqa: ASYNC110  (it tells nobody)
            await asyncio.sleep(0)
        monkeypatch.undo()
        over = await world.nodes[4].client.read(2, BackupRead(point=forgotten, **READ))
        assert over.status != OK
        kept = await world.nodes[4].client.read(3, BackupRead(point=answer.point, **READ))
        assert bodies(kept) == [b"1", b"2"]

    run(scenario)


def test_replica_that_is_not_caught_up_opens_nothing(run, monkeypatch) -> None:
    async def late(self: Any, seconds: float) -> None:
        if self is behind:
            raise RaftLogError("no leader confirms it")

    behind: Any = None
    if isinstance(MemoryQueueLog.catch_up, type(late)):
        monkeypatch.setattr(MemoryQueueLog, "catch_up", late)
    else:
        pytest.skip("compiled classes stay as they are")

    async def scenario(world: World) -> None:
        nonlocal behind
        behind = world.nodes[2].host.log
        assert (await world.nodes[2].client.open(QUEUE, TTL)).node == 3

    run(scenario)


def test_queue_that_is_gone_is_no_queue(run) -> None:
    async def scenario(world: World) -> None:
        world.exists = False
        with pytest.raises(QueueGoneError):
            await world.nodes[4].client.open(QUEUE, TTL)

    run(scenario)


def test_publisher_that_is_known_goes_on_behind_what_it_sent(run) -> None:
    async def scenario(world: World) -> None:
        answer = await world.nodes[4].client.probe(QUEUE, b"nobody")
        assert (answer.status, answer.messages, answer.next_number) == (OK, 2, 1)

    run(scenario)


def test_what_died_is_held_until_the_last_point_is_over_and_then_forgotten(run) -> None:
    async def scenario(world: World) -> None:
        node = world.nodes[2]
        _, one = await node.client.open(QUEUE, TTL)
        _, two = await node.client.open(QUEUE, TTL)
        node.host.propose(encode_purge(PUBLISHER, 1))
        await asyncio.sleep(0)
        assert node.host.machine.held_count == 0
        assert node.host.snapshot()[1] == array("Q")  # which travels, and names what lives
        [entry] = node.host.held()
        await node.client.close(2, one.point)
        asked = BackupRead(point=two.point, **READ)
        assert bodies(await node.client.read(2, asked)) == [b"1", b"2"]
        assert node.host.log.entry_data(entry)
        await node.client.keep(2, BackupKeep(point=two.point, done=2))
        node.points.sweep()
        assert node.host.held() == array("Q")
        with pytest.raises(KeyError):
            node.host.log.entry_data(entry)

    run(scenario)


def test_disk_that_runs_short_ends_points_that_hold_something(run) -> None:
    async def scenario(world: World) -> None:
        node = world.nodes[2]
        _, point = await node.client.open(QUEUE, TTL)
        node.short = "the disk of the node is nearly full"
        node.points.sweep()
        asked = BackupRead(point=point.point, **READ)
        assert (await node.client.read(2, asked)).status == OK
        node.host.propose(encode_purge(PUBLISHER, 1))
        await asyncio.sleep(0)
        node.points.sweep()
        answer = await node.client.read(2, asked)
        assert (answer.status, answer.text) == (LOST, node.short)
        assert node.host.held() == array("Q")

    run(scenario)


def test_point_that_is_over_is_remembered_for_a_while(run) -> None:
    async def scenario(world: World) -> None:
        node = world.nodes[2]
        _, point = await node.client.open(QUEUE, TTL)
        node.clock.ms += TTL
        node.points.sweep()
        asked = BackupRead(point=point.point, **READ)
        assert (await node.client.read(2, asked)).text == f"nobody read it for {TTL} ms"
        assert node.points.count == 1
        node.clock.ms += TTL
        node.points.sweep()
        assert node.points.count == 0

    run(scenario)
