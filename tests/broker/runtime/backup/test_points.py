"""Points of queues on the nodes that have replicas, asked from any node."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.broker.gateways.grpc.lease_world import StoppedClock, Watcher
from tests.broker.runtime.rpc_links import Links

from headrace_broker.catalog.event import PermissionChanged
from headrace_broker.catalog.permission_watch import PermissionWatches
from headrace_broker.catalog.store import CatalogStore
from headrace_broker.codecs.batch import batch_count, encode_batch, message_body
from headrace_broker.core.queue.command.command import encode_enqueue, encode_purge
from headrace_broker.model.definition import QUEUE_QUORUM, Queue, User
from headrace_broker.model.limits import ANSWERS_READ_MAX
from headrace_broker.model.message import Publish
from headrace_broker.model.session import session_id
from headrace_broker.runtime.backup import client as module
from headrace_broker.runtime.backup import points as points_module
from headrace_broker.runtime.backup.client import BackupClient
from headrace_broker.runtime.backup.points import (
    DENIED,
    LOST,
    NO_REPLICA,
    OK,
    UNKNOWN_POINT,
    BackupPoints,
)
from headrace_broker.runtime.backup.question import (
    BackupAnswer,
    ClosePoint,
    KeepPoint,
    OpenPoint,
    ReadPoint,
)
from headrace_broker.runtime.contract.queue_log import MemoryQueueLog, QueueLog
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.rpc.leader import QueueGoneError
from headrace_broker.runtime.rpc.protocol import NoAnswerError, RpcError
from headrace_broker.runtime.session.wire import SessionRouter
from headrace_raftlog.model.errors import RaftLogError

QUEUE = Queue("/", "work", QUEUE_QUORUM, 7, (1, 2, 3))
PUBLISHER = session_id(3, 1, 1)
TTL = 60_000
ANN, BOB = "ann", "bob"


class Node:
    """A node with a replica, or without."""

    def __init__(self, world: World, number: int, has_replica: bool) -> None:
        self.number = number
        self.world = world
        self.clock = StoppedClock()
        self.hosts: dict[int, QueueHost] = {}
        self.short = ""
        self.points = BackupPoints(
            self.hosts, lambda: 5, lambda: self.short, world.refusal, self.clock
        )
        self.rpc = world.links.rpcs[number]
        self.client = BackupClient(
            self.rpc,
            self.points,
            lambda queue: world.leader,
            lambda group: QUEUE if world.exists else None,
        )
        if has_replica:
            log = MemoryQueueLog(number, asyncio.get_running_loop())
            board = SessionRouter(number, lambda node, payload: False)
            host = QueueHost(QUEUE, number, log, board, Watcher(), self.clock)
            log.apply = host.apply_one
            host.leadership(number, 1, True)
            self.hosts[QUEUE.group] = host
            world.publish(host)

    @property
    def host(self) -> QueueHost:
        return self.hosts[QUEUE.group]


class Hung(QueueLog):
    """The log of a replica whose disk gives nothing back."""

    def __init__(self, log: QueueLog) -> None:
        self.hold = log.hold
        self.waiting: list[Callable[[], None]] = []

    def entry_at_hand(self, index: int, done: Callable[[], None]) -> bytes | None:
        self.waiting.append(done)
        return None

    def give_up(self, done: Callable[[], None]) -> None:
        self.waiting = [each for each in self.waiting if each != done]

    def entry_bytes(self, index: int) -> int:
        return 1

    def propose(self, data: bytes, urgent: bool) -> int:
        raise AssertionError

    def forget(self, index: int) -> None:
        raise AssertionError

    def leader(self) -> int:
        raise AssertionError


class World:
    """Four nodes, of which 1 leads and 4 has no replica."""

    def __init__(self) -> None:
        self.leader = 1
        self.exists = True
        self.links = Links((1, 2, 3, 4), soon=True)
        self.denied = ""  # why nobody may read the queue
        self.nodes = {number: Node(self, number, number < 4) for number in (1, 2, 3, 4)}

    def publish(self, host: QueueHost) -> None:
        publishes = [Publish(1, b"\x00\x01q", False, False, b"\x00\x00", b"%d" % n) for n in (1, 2)]
        host.propose(encode_enqueue(PUBLISHER, 1, encode_batch(publishes)))

    def refusal(self, user: str, queue: Queue) -> str:
        return self.denied

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


READ = {"after": 0, "messages": 10, "byte_count": 1000}


def test_point_is_opened_on_a_follower_and_read_through_any_node(run) -> None:
    async def scenario(world: World) -> None:
        for asking, wanted in ((1, 2), (2, 2), (3, 3), (4, 2)):
            node, answer = await world.nodes[asking].client.open(QUEUE, TTL, ANN)
            assert (node, answer.status, answer.messages) == (wanted, OK, 2)
            for reading in world.nodes.values():
                asked = ReadPoint(answer.point, ANN, **READ)
                assert bodies(await reading.client.ask(node, asked)) == [b"1", b"2"]
            closed = await world.nodes[4].client.ask(node, ClosePoint(answer.point, ANN))
            assert closed.status == OK

    run(scenario)


def test_nodes_that_are_down_or_silent_are_passed_over_and_the_leader_comes_last(
    run, monkeypatch
) -> None:
    monkeypatch.setattr(module, "BACKUP_ANSWER_S", 0.2)
    monkeypatch.setattr(module, "BACKUP_CATCH_UP_S", 0.1)

    async def scenario(world: World) -> None:
        world.links.down = {2}
        assert (await world.nodes[4].client.open(QUEUE, TTL, ANN)).node == 3
        world.links.deaf = {3}
        assert (await world.nodes[4].client.open(QUEUE, TTL, ANN)).node == 1
        assert [to for by, to, _ in world.links.sent if by == 4] == [3, 3, 3, 1]
        assert world.links.sent[-3][2] == "cancel"
        world.links.down = {1, 2}
        node, answer = await world.nodes[4].client.open(QUEUE, TTL, ANN)
        assert (node, answer.status) == (0, NO_REPLICA)
        with pytest.raises(NoAnswerError, match="node 2 cannot be reached"):
            await world.nodes[4].client.ask(2, ReadPoint(1, ANN, **READ))
        with pytest.raises(NoAnswerError, match="node 3 does not answer"):
            await world.nodes[4].client.ask(3, ReadPoint(1, ANN, **READ))

    run(scenario)


def test_a_node_that_refuses_is_passed_over(run) -> None:
    def refuse(*_: object) -> BackupAnswer:
        raise RpcError("odd", "no")

    async def scenario(world: World) -> None:
        world.nodes[2].rpc.answering.handlers[OpenPoint] = refuse
        assert (await world.nodes[4].client.open(QUEUE, TTL, ANN)).node == 3

    run(scenario)


def test_point_of_which_nobody_was_told_in_time_is_closed(run, monkeypatch) -> None:
    monkeypatch.setattr(module, "BACKUP_ANSWER_S", 0.2)
    monkeypatch.setattr(module, "BACKUP_CATCH_UP_S", 0.1)

    async def scenario(world: World) -> None:
        world.links.late = {2}
        node, answer = await world.nodes[4].client.open(QUEUE, TTL, ANN)
        assert (node, answer.status) == (3, OK)
        [forgotten] = world.nodes[2].points._points
        world.links.late = set()
        world.links.carry()
        while world.nodes[2].points._points:  # noqa: ASYNC110  (it tells nobody)
            await asyncio.sleep(0)
        monkeypatch.undo()
        over = await world.nodes[4].client.ask(2, ReadPoint(forgotten, ANN, **READ))
        assert over.status != OK
        kept = await world.nodes[4].client.ask(3, ReadPoint(answer.point, ANN, **READ))
        assert bodies(kept) == [b"1", b"2"]

    run(scenario)


@pytest.mark.parametrize("asking", [2, 4])
def test_disk_that_hangs_is_waited_for_within_a_time_and_holds_no_place(
    run, monkeypatch, asking: int
) -> None:
    async def scenario(world: World) -> None:
        node = world.nodes[2]
        opened, answer = await world.nodes[4].client.open(QUEUE, TTL, ANN)
        assert opened == 2
        log, node.host.log = node.host.log, Hung(node.host.log)
        asked = ReadPoint(answer.point, ANN, **READ)
        monkeypatch.setattr(points_module, "BACKUP_ANSWER_S", 0.01)
        reads = [world.nodes[asking].client.ask(2, asked) for _ in range(ANSWERS_READ_MAX)]
        for failure in await asyncio.gather(*reads, return_exceptions=True):
            assert isinstance(failure, NoAnswerError)
            assert f"messages of queue '{QUEUE.name}'" in str(failure)
        while node.rpc.answering._tasks:  # noqa: ASYNC110  (it tells nobody)
            await asyncio.sleep(0)
        assert node.points._answers.turns.taken == 0
        assert node.host.log.waiting == []
        node.host.log = log
        monkeypatch.undo()
        found = await world.nodes[asking].client.ask(2, asked)
        assert bodies(found) == [b"1", b"2"]

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
        assert (await world.nodes[2].client.open(QUEUE, TTL, ANN)).node == 3

    run(scenario)


def test_queue_that_is_gone_is_no_queue(run) -> None:
    async def scenario(world: World) -> None:
        world.exists = False
        with pytest.raises(QueueGoneError):
            await world.nodes[4].client.open(QUEUE, TTL, ANN)

    run(scenario)


def test_publisher_that_is_known_goes_on_behind_what_it_sent(run) -> None:
    async def scenario(world: World) -> None:
        answer = await world.nodes[4].client.probe(QUEUE, b"nobody")
        assert (answer.status, answer.messages, answer.next_number) == (OK, 2, 1)

    run(scenario)


def test_what_died_is_held_until_the_last_point_is_over_and_then_forgotten(run) -> None:
    async def scenario(world: World) -> None:
        node = world.nodes[2]
        _, one = await node.client.open(QUEUE, TTL, ANN)
        _, two = await node.client.open(QUEUE, TTL, ANN)
        node.host.propose(encode_purge(PUBLISHER, 1))
        await asyncio.sleep(0)
        assert node.host.machine.held_count == 0
        assert node.host.snapshot()[1] == array("Q")  # which travels, and names what lives
        [entry] = node.host.held()
        await node.client.ask(2, ClosePoint(one.point, ANN))
        asked = ReadPoint(two.point, ANN, **READ)
        assert bodies(await node.client.ask(2, asked)) == [b"1", b"2"]
        assert node.host.log.entry_at_hand(entry, print)
        await node.client.ask(2, KeepPoint(two.point, ANN, done=2))
        node.points.sweep()
        assert node.host.held() == array("Q")
        with pytest.raises(KeyError):
            node.host.log.entry_at_hand(entry, print)

    run(scenario)


def test_disk_that_runs_short_ends_points_that_hold_something(run) -> None:
    async def scenario(world: World) -> None:
        node = world.nodes[2]
        _, point = await node.client.open(QUEUE, TTL, ANN)
        node.short = "the disk of the node is nearly full"
        node.points.sweep()
        asked = ReadPoint(point.point, ANN, **READ)
        assert (await node.client.ask(2, asked)).status == OK
        node.host.propose(encode_purge(PUBLISHER, 1))
        await asyncio.sleep(0)
        node.points.sweep()
        answer = await node.client.ask(2, asked)
        assert (answer.status, answer.text) == (LOST, node.short)
        assert node.host.held() == array("Q")

    run(scenario)


def test_point_that_is_over_is_remembered_for_a_while(run) -> None:
    async def scenario(world: World) -> None:
        node = world.nodes[2]
        _, point = await node.client.open(QUEUE, TTL, ANN)
        node.clock.ms += TTL
        node.points.sweep()
        asked = ReadPoint(point.point, ANN, **READ)
        assert (await node.client.ask(2, asked)).text == f"nobody read it for {TTL} ms"
        assert node.points.count == 1
        node.clock.ms += TTL
        node.points.sweep()
        assert node.points.count == 0

    run(scenario)


def test_a_point_of_somebody_else_is_answered_like_one_that_is_not_there(run) -> None:
    async def scenario(world: World) -> None:
        client = world.nodes[4].client
        node, point = await client.open(QUEUE, TTL, ANN)
        taken, absent = point.point, point.point + 1
        for asking in (client, world.nodes[node].client):
            answers = [
                await asking.ask(node, ReadPoint(each, BOB, **READ)) for each in (taken, absent)
            ]
            answers += [
                await asking.ask(node, KeepPoint(each, BOB, done=2)) for each in (taken, absent)
            ]
            assert {(each.status, each.text) for each in answers} == {
                (UNKNOWN_POINT, answers[0].text)
            }
            for each in (taken, absent):
                assert (await asking.ask(node, ClosePoint(each, BOB))).status == OK
        assert bodies(await client.ask(node, ReadPoint(taken, ANN, **READ))) == [b"1", b"2"]

    run(scenario)


def test_an_owner_is_judged_at_each_question(run) -> None:
    async def scenario(world: World) -> None:
        client = world.nodes[4].client
        node, point = await client.open(QUEUE, TTL, ANN)
        one = ReadPoint(point.point, ANN, **(READ | {"messages": 1}))
        assert bodies(await client.ask(node, one)) == [b"1"]
        world.denied = "read access to queue 'work' in vhost '/' refused for user 'ann'"
        for answer in (
            await client.ask(node, one),
            await client.ask(node, KeepPoint(point.point, ANN)),
            await client.ask(node, ClosePoint(point.point, ANN)),
        ):
            assert (answer.status, answer.text) == (DENIED, world.denied)
        assert world.nodes[node].points.count == 1
        world.nodes[node].clock.ms += TTL
        world.nodes[node].points.sweep()
        world.nodes[node].clock.ms += TTL
        world.nodes[node].points.sweep()
        assert world.nodes[node].points.count == 0

    run(scenario)


def test_a_point_is_given_up_when_its_owner_may_not_read_the_queue_any_more(run) -> None:
    async def scenario(world: World) -> None:
        rules = CatalogStore()
        rules.put_user(User(ANN, b"", b""))
        turns: list[Callable[[], None]] = []
        points = world.nodes[2].points
        points.standings = PermissionWatches(rules, turns.append, lambda: 0)
        client = world.nodes[2].client
        node, point = await client.open(QUEUE, TTL, ANN)
        assert node == 2
        await client.ask(node, ClosePoint(point.point, ANN))
        assert len(points.standings) == 0
        _, point = await client.open(QUEUE, TTL, ANN)
        world.denied = "read access to queue 'work' in vhost '/' refused for user 'ann'"
        points.standings.on_events([PermissionChanged(ANN, "/", None)])
        for turn in turns:
            turn()
        world.denied, given = "", ReadPoint(point.point, ANN, **READ)
        answer = await client.ask(2, given)
        assert (answer.status, answer.text) == (
            LOST,
            "read access to queue 'work' in vhost '/' refused for user 'ann': "
            "the permission was taken away",
        )
        assert len(points.standings) == 0

    run(scenario)
