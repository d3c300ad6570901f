"""Proposals of the planner, in examples and in general."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.catalog.movement import (
    GROW_EVEN,
    Led,
    Step,
    add_step,
    critical,
    grow,
    has_quorum,
    rebalance,
    remove_step,
    shrink,
)
from headrace_broker.catalog.placement import Place
from headrace_broker.model.definition import QUEUE_CLASSIC, QUEUE_QUORUM, Queue
from headrace_broker.model.limits import REPLICAS_MAX

NODES = range(1, 8)


def queue(*members: int, group: int = 1, kind: str = QUEUE_QUORUM, durable: bool = True) -> Queue:
    return Queue("/", f"q{group}", kind, group, members, durable=durable)


def queues_of(*members: tuple[int, ...]) -> list[Queue]:
    return [queue(*each, group=group) for group, each in enumerate(members, 1)]


@pytest.mark.parametrize(
    ("voters", "up", "expected"),
    [
        ((1,), (1,), True),
        ((1,), (), False),
        ((1, 2), (1,), False),
        ((1, 2, 3), (1, 3), True),
        ((1, 2, 3, 4), (1, 2), False),
        ((1, 2, 3, 4), (1, 2, 4), True),
    ],
)
def test_majority(voters: tuple[int, ...], up: tuple[int, ...], expected: bool) -> None:
    assert has_quorum(voters, up) is expected


def test_queue_gets_a_replica_where_it_has_none() -> None:
    assert add_step(queue(1, 2), 3) == Step(queue(1, 2), add=(3,))
    assert "has a replica there" in add_step(queue(1, 2), 2).problem
    full = queue(*range(1, REPLICAS_MAX + 1))
    assert "which is the most" in add_step(full, 99).problem
    assert "has one replica" in add_step(queue(1, kind=QUEUE_CLASSIC), 2).problem


def test_replica_goes_only_where_a_majority_of_the_others_runs() -> None:
    three = queue(1, 2, 3)
    assert remove_step(three, 3, (1, 2)) == Step(three, remove=(3,))
    assert remove_step(three, 3, (1, 2, 3)) == Step(three, remove=(3,))
    assert "1 are on nodes that are down" in remove_step(three, 3, (1, 3)).problem
    assert "last replica" in remove_step(queue(1), 1, (1,)).problem
    assert "no replica there" in remove_step(three, 4, (1, 2, 3)).problem


def test_growing_passes_over_what_is_there_or_not_replicated() -> None:
    found = [*queues_of((1, 2), (1, 2, 3), (4,)), queue(1, group=9, kind=QUEUE_CLASSIC)]
    assert [step.queue.group for step in grow(found, 3)] == [1, 3]
    assert [step.queue.group for step in grow(found, 5, GROW_EVEN)] == [1]


def test_shrinking_leaves_one_less_or_moves_to_the_emptiest_spare() -> None:
    found = queues_of((1, 2, 3), (1, 2, 4), (2,), (1,), (3, 4))
    memory = queue(1, group=8, kind=QUEUE_CLASSIC, durable=False)
    up = (1, 2, 3, 4, 5)
    plain = shrink([*found, memory], 1, up, {})
    assert [(s.queue.group, s.add, s.remove, s.problem) for s in plain] == [
        (1, (), (1,), ""),
        (2, (), (1,), ""),
        (4, (), (), "it is the last replica"),
    ]
    moved = shrink([*found, memory], 1, up, {1: 0, 3: 2, 4: 2, 5: 1, 6: 0})
    assert [(s.queue.group, s.add, s.remove) for s in moved] == [
        (1, (5,), (1,)),
        (2, (3,), (1,)),  # node 5 has two by now
        (4, (4,), (1,)),
    ]


def test_a_replica_moves_to_the_zone_with_the_fewest_others() -> None:
    zones = {1: "a", 2: "b", 3: "c", 4: "c", 5: "a"}
    places = {node: Place(zone, f"host {node}") for node, zone in zones.items()}
    steps = shrink(queues_of((1, 2, 3)), 1, (1, 2, 3, 4, 5), {4: 0, 5: 7}, places)
    assert [(step.add, step.remove) for step in steps] == [((5,), (1,))]


def test_no_step_gives_two_processes_of_a_node_a_replica() -> None:
    names = {1: "n1", 2: "n2", 3: "n3", 66: "n2", 67: "n3", 4: "n4"}
    places = {node: Place("", "x", name) for node, name in names.items()}
    [queue] = queues_of((1, 2, 3))
    up = tuple(names)
    [step] = shrink([queue], 1, up, {66: 0, 67: 0}, places)
    assert (step.add, step.remove) == ((), (1,)), "one less, for no other node is left"
    [step] = shrink([queue], 1, up, {66: 0, 67: 0, 4: 9}, places)
    assert (step.add, step.remove) == ((4,), (1,))
    [step] = shrink([queue], 2, up, {66: 3}, places)
    assert (step.add, step.remove) == ((66,), (2,)), "from one process to another of its node"
    assert add_step(queue, 66, places).problem == "it has a replica in another process of that node"
    assert grow([queue], 67, places=places)[0].problem
    assert grow([queue], 4, places=places)[0].add == (4,)


def test_replica_moves_to_the_process_with_the_number_of_the_others() -> None:
    ids = [node + 64 * shard for node in (1, 2, 3, 4) for shard in (0, 1)]
    places = {each: Place("", "x", f"n{each % 64}", each // 64) for each in ids}
    [queue] = queues_of((65, 66, 67))
    [step] = shrink([queue], 66, ids, {4: 9, 68: 10}, places)
    assert (step.add, step.remove) == ((68,), (66,))


def test_replica_that_no_spare_can_take_is_given_up() -> None:
    steps = shrink(queues_of((1, 2, 3)), 1, (1, 2, 3), {2: 1, 3: 1})
    assert [(step.add, step.remove) for step in steps] == [((), (1,))]


def test_leaders_are_spread_and_no_more_are_handed_over_than_needed() -> None:
    found = [Led(group, 1, (2, 3)) for group in range(1, 8)]
    moves = rebalance(found, (1, 2, 3))
    assert len(moves) == 4
    assert sorted(move.target for move in moves) == [2, 2, 3, 3]
    assert rebalance([Led(1, 1, (2,)), Led(2, 2, (1,))], (1, 2)) == []
    assert rebalance([Led(1, 1, (2,)), Led(2, 1, ()), Led(3, 2, (1,))], (1, 2)) == []


def test_node_that_may_lead_nothing_gives_up_all_it_can() -> None:
    moves = rebalance([Led(1, 9, (1, 2)), Led(2, 9, ()), Led(3, 1, (9, 2))], (1, 2))
    assert [(move.group, move.source, move.target) for move in moves] == [(1, 9, 2)]


def test_critical_node_is_one_without_which_a_majority_is_missing() -> None:
    voters: Mapping[int, tuple[int, ...]] = {
        1: (1, 2, 3),
        2: (1,),
        3: (2, 3),
        4: (1, 2),
        5: (1, 4, 5),
    }
    assert critical(voters, 1, (1, 2, 3)) == [2, 4, 5]
    assert critical(voters, 3, (1, 2, 3)) == [3]
    assert critical(voters, 9, (1, 2, 3)) == []


# In general

placements = st.lists(
    st.lists(st.sampled_from(NODES), min_size=1, max_size=5, unique=True).map(tuple),
    min_size=1,
    max_size=12,
)
subsets = st.sets(st.sampled_from(NODES))


def apply(step: Step) -> tuple[int, ...]:
    """Return the members that a step leads to."""
    staying = [node for node in step.queue.members if node not in step.remove]
    return (*staying, *step.add)


@given(placements, st.sampled_from(NODES), subsets, subsets)
def test_no_step_of_shrinking_leaves_a_queue_without_a_majority_that_is_up(
    members: list[tuple[int, ...]], node: int, up: set[int], spares: set[int]
) -> None:
    found = queues_of(*members)
    for step in shrink(found, node, up, dict.fromkeys(spares, 0)):
        assert node in step.queue.members
        if step.problem:
            assert (step.add, step.remove) == ((), ())
            continue
        after = apply(step)
        assert node not in after
        assert len(after) == len(set(after)) >= len(step.queue.members) - 1
        assert has_quorum(after, up)
        assert set(step.add) <= spares & up


@given(placements, st.sampled_from(NODES), subsets)
def test_growing_never_costs_a_queue_the_majority_of_its_old_replicas(
    members: list[tuple[int, ...]], node: int, up: set[int]
) -> None:
    for step in grow(queues_of(*members), node):
        assert step.remove == ()
        assert set(step.queue.members) <= set(apply(step))
        assert len(apply(step)) <= REPLICAS_MAX


@given(placements, st.data())
def test_any_order_of_steps_with_nodes_that_fail_keeps_a_majority_or_takes_no_step(
    members: list[tuple[int, ...]], data: st.DataObject
) -> None:
    """Nodes are emptied one after the other, while others come and go: as an operator would."""
    found = {each.group: each for each in queues_of(*members)}
    up = set(NODES)
    for _ in range(data.draw(st.integers(1, 6))):
        change = data.draw(st.sampled_from(NODES))
        up = up ^ {change} if len(up ^ {change}) > 3 else up
        node = data.draw(st.sampled_from(NODES))
        spares = dict.fromkeys(up - {node}, 0)
        for step in shrink(list(found.values()), node, up, spares):
            if step.problem:
                continue
            after = apply(step)
            assert has_quorum(after, up)
            found[step.queue.group] = queue(*after, group=step.queue.group)
    assert all(each.members for each in found.values())


@st.composite
def led_queues(draw: st.DrawFn) -> tuple[list[Led], set[int]]:
    nodes = draw(st.sets(st.sampled_from(NODES), min_size=1))
    found = []
    for group in range(draw(st.integers(0, 20))):
        members = draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=5, unique=True))
        found.append(Led(group, members[0], tuple(members[1:])))
    return found, nodes


@given(led_queues())
def test_rebalance_hands_over_to_candidates_only_and_ends_balanced(
    case: tuple[list[Led], set[int]],
) -> None:
    found, nodes = case
    by_group = {led.group: led for led in found}
    moves = rebalance(found, nodes)
    assert len({move.group for move in moves}) == len(moves)
    places = {led.group: led.leader for led in found}
    for move in moves:
        led = by_group[move.group]
        assert move.source == led.leader
        assert move.target in led.candidates
        assert move.target in nodes
        places[move.group] = move.target
    counts = {node: list(places.values()).count(node) for node in nodes}
    for led in found:
        place = places[led.group]
        for other in (led.leader, *led.candidates):
            if other in nodes and place in nodes:
                assert counts[place] - counts[other] < 2
            elif other in nodes:
                raise AssertionError(f"{led} stays at a node that may not lead")


@given(placements, st.sampled_from(NODES), subsets)
def test_node_is_critical_for_exactly_those_that_lose_their_majority(
    members: list[tuple[int, ...]], node: int, up: set[int]
) -> None:
    voters = dict(enumerate(members))
    found = critical(voters, node, up | {node})
    for group, nodes in voters.items():
        lost = node in nodes and not has_quorum(nodes, (up | {node}) - {node})
        assert (group in found) == lost
