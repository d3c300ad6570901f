"""Leaders that spread by themselves: when, and when not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import encode_request
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.movement import Led, Movable
from headrace_broker.catalog.request import Request
from headrace_broker.catalog.result import Ok
from headrace_broker.model.definition import Node, Queue, User
from headrace_broker.model.limits import (
    BALANCE_BUSY_AT_ONCE,
    BALANCE_IDLE_AT_ONCE,
    BALANCE_LOOK_SECONDS,
    BALANCE_REST_SECONDS,
    BALANCE_STEADY_LOOKS,
    LISTING_ROWS_MAX,
)
from headrace_broker.model.status import NodeLoad
from headrace_broker.runtime.cluster.leader_balance import (
    ELSEWHERE,
    EVEN,
    MOVING,
    OFF,
    WAITING,
    BalanceAround,
    LeaderBalance,
    fit_nodes,
)
from headrace_broker.runtime.rpc.question import Leads

NODES = {number: f"n{number}" for number in (1, 2, 3)}


class World:
    """Three nodes with queues on all of them, as node 1 sees them; the test moves the clock.

    Attributes:
        leads: who leads each group.
        silent: names of nodes that do not answer.
        mute: nodes that do not say which queues they lead.
        old: nodes of a release that answers with all, whatever is asked.
        members: nodes of a group's replicas, all where it is not there.
        asked: nodes that were asked for queues, what, and for how many.
        refusing: groups whose leadership cannot be handed over.
    """

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.catalog = Catalog()
        nodes = tuple(Node(number, name, f"h:{number}") for number, name in NODES.items())
        self.do(commands.Bootstrap(nodes, "/", User("guest", b"s", b"h")))
        for number in range(1, count + 1):
            self.do(commands.DeclareQueue("/", f"q{number}", "quorum", replicas=3))
        self.leads = dict.fromkeys(range(1, count + 1), 1)
        self.decider = 1
        self.running = frozenset(NODES)
        self.avoided: set[int] = set()
        self.unfit: dict[int, str] = {}
        self.unheard: dict[int, tuple[int, ...]] = {}
        self.silent: list[str] = []
        self.mute: set[int] = set()
        self.old: set[int] = set()
        self.members: dict[int, tuple[int, ...]] = {}
        self.asked: list[tuple[int, Leads, int]] = []
        self.busy: set[int] = set()
        self.chosen: set[int] = set()
        self.refusing: set[int] = set()
        self.moves: list[tuple[int, int]] = []
        self.on_move: Callable[[], None] = lambda: None
        self.is_rebalancing = False
        around = BalanceAround(
            1,
            self.catalog,
            lambda: self.decider,
            lambda: self.running,
            lambda: self.avoided,
            NODES,
            lambda: self.now,
        )
        operations: Any = self
        self.balance = LeaderBalance(around, operations, True, self.wait)

    def do(self, command: Any) -> None:
        index = self.catalog.applied_index + 1
        result, _ = self.catalog.apply(index, encode_request(Request(1, 1, index), command))
        assert isinstance(result, Ok)

    async def wait(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    async def movable(self, node: int, question: Leads, rows_max: int) -> list[Movable] | None:
        self.asked.append((node, question, rows_max))
        if node in self.mute:
            return None
        found = [
            Movable(
                Led(group, leader, tuple(sorted(self.replicas(group) - {leader}))),
                group in self.busy,
                group in self.chosen,
            )
            for group, leader in self.leads.items()
            if leader == node
        ]
        if node not in self.old:
            found = [
                each
                for each in found
                if each.busy is question.busy
                and not each.stays
                and not set(question.targets).isdisjoint(each.led.candidates)
            ]
        return found[:rows_max]

    def replicas(self, group: int) -> frozenset[int]:
        return self.running & frozenset(self.members.get(group, self.running))

    async def loads(self) -> dict[int, NodeLoad]:
        counts = dict(zip(NODES, self.counts, strict=True))
        counts[self.decider] += 1  # the catalog
        return {
            node: NodeLoad(counts[node], 0, 0, self.unfit.get(node, ""), self.unheard.get(node, ()))
            for node in self.running
            if NODES[node] not in self.silent
        }

    async def move(self, queue: Queue, target: int) -> bool:
        if queue.group in self.refusing:
            return False
        self.moves.append((queue.group, target))
        self.on_move()
        self.leads[queue.group] = target
        return True

    def poll(self, times: int = 1) -> int:
        """Look so many times; return how many leaderships moved."""
        before = len(self.moves)

        async def looks() -> None:
            for _ in range(times):
                await self.wait(BALANCE_LOOK_SECONDS)
                await self.balance.poll()

        asyncio.run(looks())
        return len(self.moves) - before

    def steady(self) -> None:
        assert self.poll(BALANCE_STEADY_LOOKS - 1) == 0

    @property
    def counts(self) -> list[int]:
        return [list(self.leads.values()).count(node) for node in NODES]

    @property
    def state(self) -> str:
        return self.balance.status.state


def test_leaders_spread_once_the_nodes_are_steady(caplog: pytest.LogCaptureFixture) -> None:
    world = World(30)
    with caplog.at_level(logging.INFO):
        world.steady()
        assert world.state == WAITING
        assert "2 of 3 looks" in world.balance.status.text
        assert world.poll() == BALANCE_IDLE_AT_ONCE
        assert world.state == MOVING
        world.poll(3)
    assert world.counts == [10, 10, 10]
    assert world.state == EVEN
    assert world.balance.status.handed_over == 20
    assert "leaders unbalanced (n1 30, n2 0, n3 0): transferring 8" in caplog.text
    assert "leaders balanced: n1 10, n2 10, n3 10" in caplog.text
    assert world.poll(50) == 0


def test_round_that_takes_long_ends_so_that_the_nodes_are_looked_at_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(30)

    def take_long() -> None:
        world.now += BALANCE_LOOK_SECONDS / 3

    world.on_move = take_long
    world.steady()
    with caplog.at_level(logging.INFO):
        assert world.poll() == 3
    assert "round ended after 3 of 8 transfers" in caplog.text
    world.poll(10)
    assert world.counts == [10, 10, 10]


@pytest.mark.parametrize("cause", ["decider", "rebalancing"])
def test_round_ends_where_another_one_takes_over(cause: str) -> None:
    world = World(30)

    def take_over() -> None:
        if cause == "decider":
            world.decider = 2
        else:
            world.is_rebalancing = True

    world.on_move = take_over
    world.steady()
    assert world.poll() == 1


def test_another_node_leads_the_catalog_and_decides() -> None:
    world = World(6)
    world.decider = 2
    assert world.poll(10) == 0
    assert (world.state, world.balance.status.decides) == (ELSEWHERE, "n2")
    world.decider = 1
    world.steady()
    assert world.poll() == 4


def test_node_that_comes_or_goes_has_it_wait_anew() -> None:
    world = World(6)
    world.steady()
    world.running = frozenset({1, 2})
    world.steady()
    world.running = frozenset(NODES)
    world.steady()
    assert world.poll() > 0


@pytest.mark.parametrize("why", ["its memory is scarce", "its disk is far behind"])
def test_unfit_node_gets_none_and_keeps_what_it_has(why: str) -> None:
    world = World(9)
    world.leads |= {1: 3, 2: 3}
    world.unfit = {3: why}
    world.poll(20)
    assert world.counts == [4, 3, 2]


def test_draining_node_gets_none_and_is_emptied_by_itself() -> None:
    world = World(9)
    world.leads = dict.fromkeys(world.leads, 3)
    world.avoided = {3}
    assert world.poll(20) == 0
    world.leads = dict.fromkeys(world.leads, 1)
    world.poll(20)
    assert world.counts == [5, 4, 0]


def test_nodes_that_do_not_hear_each_other_get_none() -> None:
    world = World(9)
    world.unheard = {2: (3,)}
    assert world.poll(20) == 0
    loads = {node: NodeLoad(0, 0, 0, "", (4,) if node == 1 else ()) for node in NODES}
    assert fit_nodes(loads, NODES, ()) == frozenset(NODES)  # node 4 is down for all
    assert fit_nodes({1: NodeLoad(0, 0)}, {1}, ()) == frozenset()  # an older node does not say


def test_nothing_moves_while_a_queue_has_no_leader_though_it_could() -> None:
    world = World(9)
    del world.leads[9]
    assert world.poll(20) == 0
    assert world.balance.status.text == "1 queues have no leader yet"
    world.leads[9] = 1
    assert world.poll() > 0


def test_nothing_moves_while_a_node_does_not_answer_or_somebody_rebalances() -> None:
    world = World(9)
    world.silent = ["n3"]
    assert world.poll(20) == 0
    assert world.balance.status.text == "these nodes do not answer: n3"
    world.silent = []
    world.mute = {1}
    assert world.poll(2 * BALANCE_STEADY_LOOKS) == 0
    assert world.balance.status.text == "these nodes do not answer: n1"
    world.mute = set()
    world.is_rebalancing = True
    assert world.poll(20) == 0
    world.is_rebalancing = False
    world.steady()
    assert world.poll() > 0


def test_queue_that_somebody_moved_by_hand_stays() -> None:
    world = World(6)
    world.chosen = {1, 2, 3, 4}
    world.poll(20)
    assert {group for group, _ in world.moves} == {5, 6}
    world.chosen = set()
    world.poll(20)
    assert world.counts == [2, 2, 2]


def test_nodes_are_asked_for_no_more_queues_than_may_move() -> None:
    world = World(3000)
    world.poll(BALANCE_STEADY_LOOKS)
    assert [(node, question.targets, most) for node, question, most in world.asked] == [
        (1, (2, 3), 30)
    ]
    world.refusing = {31, 32}
    world.asked.clear()
    world.poll(2)
    assert [most for _, _, most in world.asked] == [30, 30, 90]
    assert len({group for group, _ in world.moves}) == len(world.moves) == 88


def test_an_older_node_gives_what_could_move_among_all_that_it_leads() -> None:
    world = World(40)
    world.old = {1}
    world.members = dict.fromkeys(range(1, 21), (1,))
    world.busy = set(range(21, 31))
    world.chosen = {31, 32}
    world.steady()
    assert world.poll() == BALANCE_IDLE_AT_ONCE
    assert {group for group, _ in world.moves} == set(range(33, 41))
    assert [most for _, _, most in world.asked] == [8, LISTING_ROWS_MAX]


def test_the_lightest_node_is_filled_first() -> None:
    world = World(40)
    world.leads |= dict.fromkeys(range(21, 39), 2)
    world.members = dict.fromkeys(range(1, 11), (1, 2))
    world.steady()
    assert world.poll() == BALANCE_IDLE_AT_ONCE
    assert {target for _, target in world.moves} == {3}
    world.poll(10)
    assert max(world.counts) - min(world.counts) < 2


def test_where_leaders_are_even_no_node_is_asked_for_its_queues() -> None:
    world = World(10)
    world.leads |= {1: 2, 2: 2, 3: 2, 4: 3, 5: 3, 6: 3}
    world.poll(20)
    assert world.asked == []
    assert world.state == EVEN
    assert world.balance.status.text == "queues led: n1 4, n2 3, n3 3"


def test_busy_queues_move_one_at_a_time() -> None:
    world = World(6)
    world.busy = set(world.leads)
    world.steady()
    for _ in range(4):
        assert world.poll() == BALANCE_BUSY_AT_ONCE
    assert world.counts == [2, 2, 2]


def test_what_was_moved_rests_though_the_numbers_turn_around() -> None:
    world = World(6)
    world.poll(10)
    assert world.counts == [2, 2, 2]
    moved = {group for group, _ in world.moves}
    for group in moved:
        world.leads[group] = 2  # as after an election
    world.poll(2)
    assert moved.isdisjoint(group for group, _ in world.moves[len(moved) :])
    world.poll(int(BALANCE_REST_SECONDS / BALANCE_LOOK_SECONDS))
    assert world.counts == [2, 2, 2]


def test_handover_that_fails_is_counted_and_not_tried_at_once_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(3)
    world.refusing = {1, 2, 3}
    with caplog.at_level(logging.INFO):
        world.poll(10)
    assert world.moves == []
    assert world.balance.status.failed == 3
    assert "could not be moved from n1 to n2" in caplog.text
    world.refusing = set()
    world.poll(int(BALANCE_REST_SECONDS / BALANCE_LOOK_SECONDS) + 1)
    assert world.counts == [1, 1, 1]


def test_it_is_off_where_the_configuration_says_so() -> None:
    async def scenario() -> None:
        world = World(3)
        off = LeaderBalance(world.balance._around, world.balance._operations, False, world.wait)
        off.start()
        await asyncio.sleep(0)
        assert off.status.state == OFF
        await off.stop()
        assert world.now == 0.0

    asyncio.run(scenario())


def test_it_looks_by_itself_until_it_is_stopped() -> None:
    async def scenario() -> None:
        world = World(6)
        world.balance.start()
        async with asyncio.timeout(30):
            while world.counts != [2, 2, 2]:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await world.balance.stop()

    asyncio.run(scenario())
