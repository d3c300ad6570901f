"""Admission of members, without a network."""

from __future__ import annotations

from typing import Any

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.limits import JOIN_TICKS, JOINS_PER_TICK
from headrace_raftlog.model.membership import Membership, member_id
from headrace_raftlog.model.message import (
    APPEND,
    APPEND_REPLY,
    HEARTBEAT,
    JOIN,
    PRE_VOTE_REPLY,
    VOTE_REPLY,
    Message,
)

NEW = member_id(3, 9)


def join(group: int, member: int = NEW, known: int = 0) -> Message:
    return Message(JOIN, group, member, 1, 0, index=known)


def wanted(world: Any, hosted: Any, nodes: tuple[int, ...], revision: int = 0) -> None:
    hosted.place(nodes, None, revision)
    world.host.placed(hosted)


def lead(world: Any, group: int) -> Any:
    """Return a group of nodes 1, 2 and 3, led from here, with all of its log on node 2."""
    world.host.create_group(group, (1, 2, 3), (), world.machine(group), True)
    world.run_turns()
    hosted = world.host.find(group)
    world.host.receive([Message(PRE_VOTE_REPLY, group, 2, 1, 1)])
    world.settle(1)
    world.host.receive([Message(VOTE_REPLY, group, 2, 1, 1)])
    world.settle(1)
    assert hosted.core.role == LEADER
    answer(world, hosted, 2)
    assert hosted.core.ready_to_serve
    return hosted


def answer(world: Any, hosted: Any, member: int) -> None:
    """Let a member acknowledge everything."""
    core = hosted.core
    world.host.receive(
        [Message(APPEND_REPLY, hosted.group, member, 1, core.term, index=core.last_index)]
    )
    world.settle()


def test_node_that_lost_its_data_is_admitted_and_promoted_in_place_of_its_old_member(
    world: Any,
) -> None:
    hosted = lead(world, 5)
    world.host.receive([join(5)])
    assert hosted.core.membership == Membership((1, 2, 3))
    world.host.tick()
    world.settle(1)
    assert hosted.core.membership == Membership((1, 2, 3), (NEW,))
    world.host.tick()
    assert hosted.core.membership.learners == (NEW,)
    answer(world, hosted, 2)
    answer(world, hosted, NEW)
    world.host.tick()
    world.settle(1)
    assert hosted.core.membership == Membership((1, 2, NEW), (), (1, 2, 3))
    answer(world, hosted, 2)
    world.settle(1)
    assert hosted.core.membership == Membership((1, 2, NEW))


def test_only_wanted_nodes_are_admitted_and_only_by_leaders(world: Any) -> None:
    hosted = lead(world, 5)
    world.host.receive([join(5, 4), join(6), join(5, 3)])
    world.host.tick()
    assert hosted.core.membership == Membership((1, 2, 3))
    assert world.host._held.count == 0
    wanted(world, hosted, (1, 2, 3, 4))
    world.host.receive([join(5, 4)])
    world.host.tick()
    world.settle(1)
    assert hosted.core.membership == Membership((1, 2, 3), (4,))
    world.host.create_group(7, (1, 2, 3), (), world.machine(7), False)
    world.host.receive([join(7)])
    world.host.tick()
    assert world.host.find(7).joins is None


def test_node_that_has_yet_to_leave_the_group_is_not_admitted(world: Any) -> None:
    """It would destroy the log of the member that was admitted as soon as it gets to know."""
    hosted = lead(world, 5)
    wanted(world, hosted, (1, 2, 3, 4), 6)
    world.host.receive([join(5, 4, known=6)])  # of revision 5
    world.host.tick()
    assert hosted.core.membership == Membership((1, 2, 3))
    world.host.receive([join(5, 4, known=7)])
    wanted(world, hosted, (1, 2, 3, 4), 7)  # what was asked before is void
    world.host.tick()
    assert hosted.core.membership == Membership((1, 2, 3))
    world.host.receive([join(5, 4, known=8)])
    world.host.tick()
    world.settle(1)
    assert hosted.core.membership == Membership((1, 2, 3), (4,))


def test_members_say_which_revision_of_the_nodes_they_know(world: Any) -> None:
    world.host.create_group(8, (2, 3), (), world.machine(8), False)
    hosted = world.host.find(8)
    world.up = [2, 3]
    for nodes, revision, known in ((None, 0, 0), ((1, 2, 3), 0, 1), ((1, 2, 3), 5, 6)):
        if nodes is not None:
            wanted(world, hosted, nodes, revision)
        world.posted.clear()
        for _ in range(JOIN_TICKS + 1):
            world.host.tick()
        assert {each.index for each in world.posted if each.kind == JOIN} == {known}


def test_groups_that_rest_are_not_looked_at(world: Any) -> None:
    hosted = lead(world, 5)
    world.host.tick()
    world.host.tick()
    assert world.host._reconciler._open == {}
    world.host.receive([join(5)])
    assert list(world.host._reconciler._open) == [5]
    world.host.tick()
    world.settle(1)
    answer(world, hosted, 2)
    world.host.tick()
    assert list(world.host._reconciler._open) == [5]  # the learner is about to be promoted


def test_nothing_is_begun_for_which_too_few_of_the_voters_to_be_answer(world: Any) -> None:
    hosted = lead(world, 5)
    wanted(world, hosted, (1, 3))
    world.host.tick()
    world.host.tick()
    assert hosted.core.membership == Membership((1, 2, 3))  # node 3 has yet to answer
    answer(world, hosted, 3)
    world.host.tick()
    world.settle(1)
    assert hosted.core.membership == Membership((1, 3), (), (1, 2, 3))


def test_leader_that_loses_sight_of_those_who_stay_waits(world: Any) -> None:
    hosted = lead(world, 5)
    answer(world, hosted, 3)
    world.host.peer_changed(3, False)
    wanted(world, hosted, (1, 3))
    for _ in range(3):
        world.host.tick()
    assert hosted.core.membership == Membership((1, 2, 3))
    wanted(world, hosted, (1, 2))
    world.host.tick()
    world.settle(1)
    assert hosted.core.membership == Membership((1, 2), (), (1, 2, 3))


def joins(world: Any) -> list[tuple[int, int, int]]:
    found = [(m.group, m.source, m.target) for m in world.posted if m.kind == JOIN]
    world.posted.clear()
    return found


def test_new_member_asks_all_nodes_that_are_up_until_it_is_admitted(world: Any) -> None:
    world.host.member = NEW & ~1023 | 1
    world.host.create_group(5, (1, 2, 3), (), world.machine(5), True)
    world.run_turns()
    hosted = world.host.find(5)
    assert hosted.core.member == world.host.member
    assert hosted.core.membership == Membership(())
    world.up = [3, 2]
    for _ in range(JOIN_TICKS):
        world.host.tick()
    assert joins(world) == [(5, world.host.member, 2), (5, world.host.member, 3)]
    for _ in range(JOIN_TICKS):
        world.host.tick()
    assert len(joins(world)) == 2
    admitted = Membership((1, 2, 3), (world.host.member,))
    config = Entry(1, 1, 2, admitted.encode())
    world.host.receive([Message(APPEND, 5, 2, world.host.member, 1, entries=[config], commit=1)])
    world.settle(1)
    for _ in range(3 * JOIN_TICKS):
        world.host.tick()
        world.host.receive([Message(HEARTBEAT, 5, 2, world.host.member, 1)])
    assert joins(world) == []


def test_member_without_leader_for_long_asks_as_well_if_it_is_wanted(world: Any) -> None:
    world.host.create_group(5, (1, 2, 3), (), world.machine(5), False)
    world.host.create_group(6, (1, 2, 3), (), world.machine(6), False)
    wanted(world, world.host.find(6), (2, 3))
    world.up = [2]
    for _ in range(200):
        world.host.tick()
        world.run_turns()
    assert {group for group, _, _ in joins(world)} == {5}


def test_many_groups_ask_in_turns(world: Any) -> None:
    world.host.member = NEW & ~1023 | 1
    count = JOINS_PER_TICK + 10
    for group in range(count):
        world.host.create_group(group, (1, 2, 3), (), world.machine(group), False)
    world.run_turns()
    world.up = [2]
    for _ in range(JOIN_TICKS):
        world.host.tick()
    assert [group for group, _, _ in joins(world)] == list(range(JOINS_PER_TICK))
    world.host.tick()
    assert [group for group, _, _ in joins(world)] == list(range(JOINS_PER_TICK, count))
