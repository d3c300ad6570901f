"""Replicas that may go: who notices, and what becomes of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import encode_request
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import Request
from headrace_broker.catalog.result import UpgradePending
from headrace_broker.model.definition import Node, Queue, User
from headrace_broker.runtime.cluster import member_moves as module
from headrace_broker.runtime.cluster.catalog_service import CatalogUnavailableError
from headrace_broker.runtime.cluster.member_moves import MemberMoves
from headrace_raftlog.model.membership import Membership, member_id

NODES = tuple(Node(number, f"n{number}", f"h:{number}") for number in (1, 2, 3))


class World:
    """One node, with a catalog that applies at once."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.groups: dict[int, Membership] = {}
        self.led: set[int] = set()
        self.lost = False
        self.early = ""
        self.submitted: list[Any] = []
        self.moves = MemberMoves(self.catalog, self, self.submit)
        self.do(commands.Bootstrap(NODES, "/", User("guest", b"s", b"h")))

    def is_settled(self, group: int) -> bool:
        return group in self.led

    def members(self, group: int) -> Membership:
        return self.groups[group]

    async def submit(self, command: Any) -> Any:
        if self.lost:
            raise CatalogUnavailableError("no quorum")
        if self.early:
            return UpgradePending(self.early)
        self.submitted.append(command)
        return self.do(command)

    def do(self, command: Any) -> Any:
        index = self.catalog.applied_index + 1
        data = encode_request(Request(1, 1, index), command)
        result, events = self.catalog.apply(index, data)
        self.moves.on_events(events)
        return result

    def declare(self) -> Queue:
        queue: Queue = self.do(commands.DeclareQueue("/", "q", "quorum", replicas=3)).value
        self.groups[queue.group] = Membership(queue.members)
        return queue

    def move(self, queue: Queue, add: tuple[int, ...], remove: tuple[int, ...]) -> Queue:
        moved: Queue = self.do(commands.SetMembers("/", "q", queue.group, add, remove)).value
        return moved

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0)

    @property
    def queue(self) -> Queue:
        found = self.catalog.queue("/", "q")
        assert found is not None
        return found


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)

    def runner(scenario: Any) -> None:
        async def work() -> None:
            world = World()
            await scenario(world)
            await world.moves.stop()

        asyncio.run(work())

    return runner


def test_leader_says_so_when_members_have_left(run: Any) -> None:
    async def scenario(world: World) -> None:
        queue = world.declare()
        world.led = {queue.group}
        moved = world.move(queue, (), (2, 3))
        world.groups[queue.group] = Membership((1,), outgoing=(1, 2))
        await world.until(lambda: world.queue.leaving == (2,))
        assert world.submitted == [commands.SettleMembers(queue.group, moved.revision, (3,))]
        world.groups[queue.group] = Membership((1,))
        await world.until(lambda: not world.queue.leaving)

    run(scenario)


def test_member_that_still_votes_or_learns_is_there(run: Any) -> None:
    async def scenario(world: World) -> None:
        queue = world.declare()
        world.led = {queue.group}
        world.groups[queue.group] = Membership((1, 2), (member_id(3, 9),))
        world.move(queue, (), (3,))
        await asyncio.sleep(0.01)
        assert world.submitted == []

    run(scenario)


def test_who_does_not_lead_or_is_in_mid_change_says_nothing(run: Any) -> None:
    async def scenario(world: World) -> None:
        queue = world.declare()
        world.groups[queue.group] = Membership((1, 2))
        world.move(queue, (), (3,))
        await asyncio.sleep(0.01)
        assert world.submitted == []
        world.led = {queue.group}
        await world.until(lambda: not world.queue.leaving)

    run(scenario)


def test_catalog_without_a_quorum_is_told_again(run: Any) -> None:
    async def scenario(world: World) -> None:
        queue = world.declare()
        world.led = {queue.group}
        world.lost = True
        world.groups[queue.group] = Membership((1, 2))
        world.move(queue, (), (3,))
        await asyncio.sleep(0.01)
        assert world.queue.leaving == (3,)
        world.lost = False
        await world.until(lambda: not world.queue.leaving)

    run(scenario)


def test_older_node_is_waited_for_and_told_of_once(
    run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        queue = world.declare()
        world.led = {queue.group}
        world.early = "node 'n3' runs an older version"
        world.groups[queue.group] = Membership((1, 2))
        world.move(queue, (), (3,))
        await world.until(lambda: caplog.messages)
        await asyncio.sleep(0.01)
        assert len([text for text in caplog.messages if "'n3' runs an older" in text]) == 1
        assert world.queue.leaving == (3,)
        world.early = ""
        await world.until(lambda: not world.queue.leaving)

    run(scenario)


def test_queue_that_is_deleted_meanwhile_is_forgotten(run: Any) -> None:
    async def scenario(world: World) -> None:
        queue = world.declare()
        world.led = {queue.group}
        world.move(queue, (), (3,))
        world.do(commands.DeleteQueue("/", "q"))
        await asyncio.sleep(0.01)
        assert world.moves._open == {}
        assert world.submitted == []

    run(scenario)
