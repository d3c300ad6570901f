"""Which leaders move by themselves: in examples, and that repeating it always ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.catalog import movement
from headrace_broker.catalog.movement import (
    Handover,
    Led,
    Movable,
    is_uneven,
    leader_counts,
    rebalance,
)
from headrace_broker.model.limits import (
    BALANCE_APART_MIN,
    BALANCE_BUSY_AT_ONCE,
    BALANCE_IDLE_AT_ONCE,
    BALANCE_IDLE_PERCENT,
)

NODES = range(1, 6)
THREE = (1, 2, 3)


def queues_of(*leaders: int, busy: tuple[int, ...] = (), stays: tuple[int, ...] = ()) -> list:
    """Return queues 1, 2, ... on all three nodes, led by these."""
    return [
        Movable(
            Led(group, leader, tuple(node for node in THREE if node != leader)),
            group in busy,
            group in stays,
        )
        for group, leader in enumerate(leaders, 1)
    ]


def after(queues: list[Movable], moves: list[Handover]) -> list[Movable]:
    """Return the queues as they are once the handovers are done."""
    to = {move.group: move for move in moves}
    found = []
    for each in queues:
        led = each.led
        if led.group in to:
            move = to[led.group]
            others = (led.leader, *(node for node in led.candidates if node != move.target))
            led = Led(led.group, move.target, others)
        found.append(each._replace(led=led))
    return found


def numbers(queues: list[Movable], nodes: tuple[int, ...] = THREE) -> list[int]:
    return list(leader_counts([each.led for each in queues], nodes).values())


def spread(queues: list[Movable], nodes: tuple[int, ...]) -> list[Handover]:
    return movement.spread(queues, leader_counts([each.led for each in queues], nodes), nodes)


def settled(queues: list[Movable], nodes: tuple[int, ...] = THREE) -> list[Movable]:
    while moves := spread(queues, nodes):
        queues = after(queues, moves)
    return queues


def test_leaders_come_back_to_a_node_that_came_back_a_few_at_a_time() -> None:
    queues = queues_of(*[1] * 15, *[2] * 15)
    assert is_uneven(leader_counts([each.led for each in queues], THREE), THREE)
    first = spread(queues, THREE)
    assert len(first) == BALANCE_IDLE_AT_ONCE
    assert {move.target for move in first} == {3}
    assert numbers(settled(queues)) == [10, 10, 10]


def test_many_leaders_come_back_a_part_at_a_time() -> None:
    queues = queues_of(*[1] * 1500, *[2] * 1500)
    assert len(spread(queues, THREE)) == 3000 * BALANCE_IDLE_PERCENT // 100
    assert numbers(settled(queues)) == [1000, 1000, 1000]


def test_queues_without_traffic_go_first_and_busy_ones_one_by_one() -> None:
    queues = queues_of(1, 1, 1, 1, 1, 1, busy=(1, 2, 3, 4))
    first = spread(queues, THREE)
    assert {move.group for move in first} == {5, 6}
    second = spread(after(queues, first), THREE)
    assert len(second) == BALANCE_BUSY_AT_ONCE
    assert numbers(settled(queues)) == [2, 2, 2]


def test_queue_that_is_to_stay_counts_where_it_is() -> None:
    queues = queues_of(1, 1, 1, 1, stays=(1, 2))
    assert {move.group for move in spread(queues, THREE)} == {3, 4}
    assert spread(queues_of(1, 1, 1, stays=(1, 2, 3)), THREE) == []


def test_node_that_may_get_none_is_neither_filled_nor_emptied() -> None:
    queues = queues_of(1, 1, 1, 1, 2, 2)
    assert {move.target for move in spread(queues, (1, 2))} == {2}
    assert spread(queues_of(3, 1, 2), (1, 2)) == []
    assert spread(queues_of(1, 1, 1), ()) == []
    assert not is_uneven({1: 3}, ())


def test_nothing_goes_where_no_replica_could_lead() -> None:
    assert spread([Movable(Led(group, 1, (2,))) for group in (1, 2)], (1, 3)) == []


@pytest.mark.parametrize(
    ("counts", "uneven"),
    [
        ({1: 1, 2: 1, 3: 0}, False),
        ({1: 2, 2: 1, 3: 0}, True),
        ({1: 100, 2: 100, 3: 91}, False),  # within a tenth of the mean
        ({1: 105, 2: 105, 3: 90}, True),
        ({1: 0, 2: 0, 3: 0}, False),
    ],
)
def test_small_differences_begin_nothing(counts: dict[int, int], uneven: bool) -> None:
    assert is_uneven(counts, THREE) is uneven


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Movable], tuple[int, ...]]:
    nodes = draw(st.sets(st.sampled_from(NODES)))
    found = []
    for group in range(draw(st.integers(0, 40))):
        members = draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=5, unique=True))
        led = Led(group, members[0], tuple(members[1:]))
        found.append(Movable(led, draw(st.booleans()), draw(st.integers(0, 9)) == 0))
    return found, tuple(sorted(nodes))


@given(clusters())
def test_repeating_it_ends_and_never_goes_back(case: tuple[list[Movable], tuple[int, ...]]) -> None:
    """The sum of squares falls with each handover, so no distribution ever comes twice."""
    queues, nodes = case
    moved = {each.led.group for each in queues if each.stays}
    while moves := spread(queues, nodes):
        assert len(moves) <= BALANCE_IDLE_AT_ONCE
        assert len({move.group for move in moves}) == len(moves)
        for move in moves:
            each = next(each for each in queues if each.led.group == move.group)
            assert not each.stays
            assert each.led.leader == move.source
            assert move.target in each.led.candidates
            assert move.target in nodes
            before = sum(count**2 for count in numbers(queues, nodes))
            queues = after(queues, [move])
            assert sum(count**2 for count in numbers(queues, nodes)) < before
    counts = leader_counts([each.led for each in queues], nodes)
    for each in queues:
        if each.led.group not in moved:
            for node in each.led.candidates:
                if node in nodes:
                    assert counts[each.led.leader] - counts[node] < BALANCE_APART_MIN


@given(st.lists(st.sampled_from(THREE), max_size=60))
def test_it_ends_where_a_rebalance_by_hand_finds_nothing_to_do(leaders: list[int]) -> None:
    queues = settled(queues_of(*leaders))
    assert rebalance([each.led for each in queues], THREE) == []
    assert max(numbers(queues)) - min(numbers(queues)) < BALANCE_APART_MIN
