"""A node that is drained and revived, however often and in whatever order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest

from headrace_broker.catalog.event import NodeAdded
from headrace_broker.model.definition import Node
from headrace_broker.runtime.cluster import maintenance as module
from headrace_broker.runtime.cluster.maintenance import Maintenance


class World:
    """Node 1, its listeners, and its leaderships."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.leads = [5, 6]
        self.others: list[Node] = []
        self.stuck: list[int] = []
        view: Any = self
        self.maintenance = Maintenance(1, "n1", view, self)

    def nodes(self) -> list[Node]:
        return [Node(1, "n1", "h:1"), *self.others]

    async def drain(self, seconds: float, avoid: Callable[[], Collection[int]]) -> list[int]:
        self.calls.append(f"drain avoiding {sorted(avoid())}")
        await asyncio.sleep(0)
        self.leads = list(self.stuck)
        return self.leads

    def led(self) -> list[int]:
        return self.leads

    async def open(self) -> None:
        self.calls.append("open")

    async def suspend(self) -> None:
        self.calls.append("suspend")

    async def dismiss(self, reason: str) -> None:
        self.calls.append(f"dismiss: {reason}")

    def tell(self, on: bool) -> None:
        self.maintenance.on_events([NodeAdded(Node(1, "n1", "h:1", maintenance=on))])


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def run(scenario: Any) -> None:
    async def work() -> None:
        world = World()
        await scenario(world)
        await world.maintenance.stop()

    asyncio.run(work())


GONE = "dismiss: node n1 is taken out of service for maintenance: connect to another one"


def test_leaders_go_before_clients_and_nobody_comes_in_meanwhile() -> None:
    async def scenario(world: World) -> None:
        world.maintenance.opened(world)
        world.tell(True)
        assert world.maintenance.on
        await settle()
        assert world.calls == ["suspend", "drain avoiding []", GONE]
        world.tell(True)
        await settle()
        assert len(world.calls) == 3
        world.calls.clear()
        world.tell(False)
        await settle()
        assert world.calls == ["open"]

    run(scenario)


def test_node_that_was_drained_when_it_was_stopped_opens_nothing() -> None:
    async def scenario(world: World) -> None:
        world.tell(True)
        await settle()
        assert world.calls == []
        world.maintenance.opened(world)
        await settle()
        assert world.calls == ["suspend", "drain avoiding []", GONE]

    run(scenario)


def test_drained_node_that_is_elected_hands_over_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)

    async def scenario(world: World) -> None:
        world.maintenance.opened(world)
        world.tell(True)
        await settle()
        world.calls.clear()
        world.leads = [9]
        await settle()
        assert world.calls == ["drain avoiding []"]
        assert world.leads == []

    run(scenario)


def test_node_of_a_second_cluster_tells_clients_to_go_at_once_and_is_not_revived(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        world.maintenance.opened(world)
        world.maintenance.contest("founded twice")
        world.maintenance.contest("founded twice")
        await settle()
        gone = "belongs to a cluster that was founded a second time: connect to another one"
        assert world.calls == ["suspend", f"dismiss: node n1 {gone}"]
        world.tell(False)
        await settle()
        assert len(world.calls) == 2
        assert [each.levelname for each in caplog.records].count("ERROR") == 1

    run(scenario)


def test_revival_ends_a_drain_that_goes_on() -> None:
    async def scenario(world: World) -> None:
        world.maintenance.opened(world)
        world.tell(True)
        world.tell(False)
        await settle()
        assert world.calls[-1] == "open"
        assert GONE not in world.calls

    run(scenario)


def test_nodes_that_are_drained_or_stop_are_avoided() -> None:
    async def scenario(world: World) -> None:
        world.others = [Node(2, "n2", "h:2", maintenance=True), Node(3, "n3", "h:3")]
        world.maintenance.stopping.add(3)
        assert world.maintenance.avoided() == {2, 3}
        world.stuck = [5]
        assert await world.maintenance.hand_over() == [5]
        assert world.calls == ["drain avoiding [2, 3]"]

    run(scenario)


def test_other_nodes_are_none_of_its_business() -> None:
    async def scenario(world: World) -> None:
        world.maintenance.opened(world)
        world.maintenance.on_events([NodeAdded(Node(2, "n2", "h:2", maintenance=True))])
        await settle()
        assert world.calls == []

    run(scenario)


def test_node_that_was_removed_serves_nobody() -> None:
    async def scenario(world: World) -> None:
        world.maintenance.opened(world)
        for _ in range(2):  # each of its peers says so
            world.maintenance.expel()
            await settle()
        gone = "dismiss: node n1 was removed from the cluster: connect to another one"
        assert world.calls == ["suspend", "drain avoiding []", gone]
        assert world.maintenance.on

    run(scenario)


def test_what_the_catalog_says_of_a_node_that_was_removed_is_of_before() -> None:
    async def scenario(world: World) -> None:
        world.maintenance.opened(world)
        world.maintenance.expel()
        await settle()
        world.tell(False)
        await settle()
        assert world.maintenance.on
        assert "open" not in world.calls

    run(scenario)
