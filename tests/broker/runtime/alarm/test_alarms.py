"""Alarms that go from node to node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from headrace_broker.flow.alarm import STAGE_ALARM
from headrace_broker.model.flow import LIMIT_DISK, LIMIT_MEMORY, NO_LIMIT
from headrace_broker.model.limits import ALARM_LEASE_MS
from headrace_broker.runtime.alarm.alarms import AlarmBoard, AlarmReport

NAMES = {1: "n1", 2: "n2", 3: "n3"}
MIB = 1 << 20


class World:
    """Three nodes that hear each other unless they are cut off."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.boots = dict.fromkeys(NAMES, 1)
        self.cut: set[int] = set()
        self.sent: list[tuple[int, int, bytes]] = []
        self.boards = {node: self.make(node) for node in NAMES}
        self.changes = dict.fromkeys(NAMES, 0)
        for node, board in self.boards.items():
            board.blocked.watch(lambda before, now, node=node: self.change(node))  # type: ignore[misc]

    def make(self, node: int) -> AlarmBoard:
        return AlarmBoard(
            node,
            NAMES,
            lambda: self.boots[node],
            lambda peer, payload: self.send(node, peer, payload),
            lambda: self.now_ns,
        )

    def change(self, node: int) -> None:
        self.changes[node] += 1

    def send(self, source: int, target: int, payload: bytes) -> bool:
        self.sent.append((source, target, payload))
        if {source, target} & self.cut:
            return False
        self.deliver(source, target, payload)
        return True

    def deliver(self, source: int, target: int, payload: bytes) -> None:
        report = msgspec.msgpack.decode(payload, type=AlarmReport)
        self.boards[target].receive(source, report)

    def memory(self, node: int, on: bool) -> None:
        own = self.boards[node].own
        own.memory_used, own.memory_limit, own.memory_total = 700 * MIB, 600 * MIB, 1000 * MIB
        own.memory_stage = STAGE_ALARM if on else 0
        self.boards[node].announce()

    def disk(self, node: int, on: bool) -> None:
        self.boards[node].own.disk_alarm = on
        self.boards[node].announce()

    def turn(self, ms: int = 1000) -> None:
        """Let time pass, and run every node's periodic work."""
        self.now_ns += ms * 1_000_000
        for board in self.boards.values():
            board.start()
            assert board._handle is not None
            board._handle.cancel()

    @property
    def blocked(self) -> list[int]:
        return [node for node, board in self.boards.items() if board.blocked.now.is_on]


@pytest.fixture
def world() -> Iterator[World]:
    async def make() -> World:
        return World()

    with asyncio.Runner() as runner:
        asyncio.set_event_loop(runner.get_loop())
        yield runner.run(make())


def run(world: World, *milliseconds: int) -> None:
    async def work() -> None:
        for each in milliseconds:
            world.turn(each)

    asyncio.get_event_loop().run_until_complete(work())


def test_an_alarm_is_one_of_all_nodes_at_once_and_says_whose(world: World) -> None:
    world.memory(2, on=True)
    assert world.blocked == [1, 2, 3]
    reason = "low on memory: node n2 uses 700 MiB of 1000 MiB, the mark is 600 MiB"
    assert {board.blocked.now.reason for board in world.boards.values()} == {reason}
    assert {board.blocked.now.limit for board in world.boards.values()} == {LIMIT_MEMORY}
    assert [tuple(each) for each in world.boards[3].listing()] == [("n2", "memory", reason, 0)]
    world.memory(2, on=False)
    assert world.blocked == []
    assert world.boards[1].blocked.now.reason == ""
    assert world.changes == {1: 2, 2: 2, 3: 2}


def test_publishers_go_on_when_the_last_of_several_is_over(world: World) -> None:
    world.memory(2, on=True)
    world.disk(3, on=True)
    assert world.boards[1].blocked.now.limit == LIMIT_MEMORY, "the one that is on for longest"
    assert world.boards[1].blocked.now.reason.endswith("the mark is 600 MiB (and 1 more)")
    world.memory(2, on=False)
    assert world.boards[1].blocked.now.limit == LIMIT_DISK
    assert world.boards[1].blocked.now.reason.startswith("low on disk: node n3")
    world.disk(3, on=False)
    assert world.boards[1].blocked.now.limit == NO_LIMIT


def test_processes_of_a_node_have_one_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NAMES, 65, "n1:1")

    world = World()
    world.memory(65, on=True)
    world.memory(1, on=True)
    for board in world.boards.values():
        assert [(each.node, each.resource) for each in board.listing()] == [("n1", "memory")]
        assert "more" not in board.blocked.now.reason
    world.memory(1, on=False)
    assert world.blocked == [1, 2, 3, 65], "it lasts until all are over it"
    world.memory(65, on=False)
    assert world.blocked == []


def test_the_alarm_of_a_node_that_is_cut_off_ends_with_its_lease(world: World) -> None:
    world.memory(2, on=True)
    world.cut.add(2)
    run(world, ALARM_LEASE_MS - 1)
    assert world.blocked == [1, 2, 3]
    run(world, 1)
    assert world.blocked == [2]
    world.cut.clear()
    world.boards[2].peer_up(1)
    assert world.blocked == [1, 2], "told as soon as it can be reached"
    run(world, 1000)
    assert world.blocked == [1, 2, 3]


def test_an_alarm_that_lasts_is_renewed(world: World) -> None:
    world.memory(2, on=True)
    run(world, *[1000] * 30)
    assert world.blocked == [1, 2, 3]
    assert world.changes == {1: 1, 2: 1, 3: 1}


def test_a_report_that_was_lost_is_made_up_for(world: World) -> None:
    world.cut.add(2)
    world.memory(2, on=True)
    world.cut.clear()
    assert world.blocked == [2]
    run(world, 1000)
    assert world.blocked == [1, 2, 3]


def test_late_reports_do_not_bring_an_alarm_back(world: World) -> None:
    world.memory(2, on=True)
    late = [each for each in world.sent if each[0] == 2]
    world.memory(2, on=False)
    for each in late:
        world.deliver(*each)
    assert world.blocked == []


def test_a_node_that_comes_back_has_the_alarms_of_its_new_life(world: World) -> None:
    world.memory(2, on=True)
    world.boards[2] = world.make(2)
    world.boots[2] = 2
    world.boards[2].peer_up(1)
    world.boards[2].peer_up(3)
    assert world.blocked == []


def test_a_node_that_stops_takes_its_alarms_along(world: World) -> None:
    world.memory(2, on=True)
    world.boards[2].stop()
    assert world.blocked == []


def test_figures_of_all_nodes_are_known(world: World) -> None:
    world.boards[3].own.memory_used = 5
    run(world, 1000)
    assert world.boards[1].reports[3].memory_used == 5
