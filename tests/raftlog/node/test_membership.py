"""The plan of a group's members: tables of the current, the wanted and the next members."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from headrace_raftlog.model.membership import Membership, member_id
from headrace_raftlog.node.membership import Wanted, may_wait_for, plan, wanted_nodes

N1, N2, N3, N4 = (member_id(node, 7) for node in (1, 2, 3, 4))  # replacements
N3B = member_id(3, 8)


def group(*voters: int, learners: tuple[int, ...] = ()) -> Membership:
    return Membership(voters, learners)


THREE = group(1, 2, 3)


@pytest.mark.parametrize(
    ("membership", "desired", "joins", "caught_up", "then"),
    [
        # Nothing to do.
        (THREE, None, {}, (), None),
        (THREE, (1, 2, 3), {}, (), None),
        (THREE, (1, 2, 3, 4), {}, (), None),
        (THREE, None, {4: 4}, (), None),
        (THREE, None, {3: 3}, (), None),
        (THREE, (), {}, (), None),
        # A node that lost its data comes back.
        (THREE, None, {3: N3}, (), group(1, 2, 3, learners=(N3,))),
        (group(1, 2, 3, learners=(N3,)), None, {3: N3}, (), None),
        (group(1, 2, 3, learners=(N3,)), None, {}, (N3,), group(1, 2, N3)),
        # It loses them once more before it is a voter.
        (group(1, 2, 3, learners=(N3,)), None, {3: N3B}, (N3,), group(1, 2, 3, learners=(N3B,))),
        # A learner's node does: its members are swapped.
        (group(1, learners=(3,)), None, {3: N3}, (), group(1, learners=(N3,))),
        (group(1, learners=(N3,)), None, {}, (N3,), None),
        # Growing: members come in odd numbers, or up to what is wanted.
        (group(1), (1, 2, 3), {2: 2}, (), group(1, learners=(2,))),
        (group(1, learners=(2,)), (1, 2, 3), {3: 3}, (2,), group(1, learners=(2, 3))),
        (group(1, learners=(2, 3)), (1, 2, 3), {}, (2,), None),
        (group(1, learners=(2, 3)), (1, 2, 3), {}, (2, 3), THREE),
        (group(1, learners=(2,)), (1, 2), {}, (2,), group(1, 2)),
        (group(1, 2, learners=(3,)), (1, 2, 3, 4), {}, (3,), THREE),
        (group(1, 2, 3, learners=(4,)), (1, 2, 3, 4), {}, (4,), group(1, 2, 3, 4)),
        (group(1, 2, 3, learners=(4,)), (1, 2, 3, 4, 5), {}, (4,), None),
        # Shrinking: at once, when everybody wanted is there.
        (group(1, 2, 3, 4, 5), (1, 2, 3), {}, (), THREE),
        (group(1, 2, 3, 4, 5), (2, 3, 4), {}, (), group(2, 3, 4)),
        (THREE, (1,), {}, (), group(1)),
        (group(1, 2, 3, learners=(4,)), (1, 2, 3), {}, (4,), THREE),
        # But not while one of those is being replaced.
        (group(1, 2, 3, 4, 5, learners=(N3,)), (1, 2, 3), {}, (), None),
        (group(1, 2, 3, 4, 5, learners=(N3,)), (1, 2, 3), {}, (N3,), group(1, 2, N3)),
        # Moving: one comes, one goes, the leader (1) last.
        (THREE, (1, 2, 4), {4: 4}, (), group(1, 2, 3, learners=(4,))),
        (group(1, 2, 3, learners=(4,)), (1, 2, 4), {}, (), None),
        (group(1, 2, 3, learners=(4,)), (1, 2, 4), {}, (4,), group(1, 2, 4)),
        (group(1, 2, 3, learners=(4,)), (4, 5, 6), {}, (4,), group(1, 3, 4)),
        (group(1, 3, 4, learners=(5,)), (4, 5, 6), {}, (5,), group(1, 4, 5)),
        (group(1, 4, 5, learners=(6,)), (4, 5, 6), {}, (6,), group(4, 5, 6)),
        (group(1, 2, 3, learners=(4, 5)), (4, 5, 6), {}, (4, 5), group(1, 4, 5)),
        # All at once.
        (group(1, 2, 3, learners=(N2, 4)), (1, 2, 4), {}, (N2, 4), group(1, N2, 4)),
    ],
)
def test_next_membership(
    membership: Membership,
    desired: tuple[int, ...] | None,
    joins: dict[int, int],
    caught_up: tuple[int, ...],
    then: Membership | None,
) -> None:
    assert plan(membership, wanted_nodes(membership, desired), joins, caught_up, 1) == then


@pytest.mark.parametrize(
    ("voters", "desired", "caught_up", "then"),
    [
        # A replica moves within a host, that of the leader (1) too.
        (THREE, (1, 3, 12), (12,), group(1, 3, 12)),
        (THREE, (2, 3, 11), (11,), group(2, 3, 11)),
        # Two move: each takes the place of the one on its host, whichever is ready first.
        (THREE, (1, 12, 13), (13,), group(1, 2, 13, learners=(12,))),
        (THREE, (1, 12, 13), (12,), group(1, 3, 12, learners=(13,))),
        (THREE, (1, 4, 13), (13,), group(1, 2, 13, learners=(4,))),
        (THREE, (1, 12, 13), (12, 13), group(1, 12, 13)),
        # That of the leader, which leaves last, is not replaced by another one of its host before.
        (THREE, (3, 4, 11), (11,), None),
        (THREE, (3, 4, 11), (4,), group(1, 3, 4, learners=(11,))),
        (THREE, (3, 4, 11), (4, 11), group(3, 4, 11)),
        (group(1, 2), (2, 3, 11), (11,), None),
        (group(1, 2), (2, 3, 11), (3,), group(2, 1, 3, learners=(11,))),
    ],
)
def test_of_nodes_that_fail_together_one_votes(
    voters: Membership, desired: tuple[int, ...], caught_up: tuple[int, ...], then: Membership
) -> None:
    learners = tuple(node for node in desired if node not in voters.voters)
    membership = Membership(voters.voters, learners)
    wanted = wanted_nodes(membership, desired)
    assert plan(membership, wanted, {}, caught_up, 1, on_one_host) == then


def on_one_host(node: int, other: int) -> bool:
    return node % 10 == other % 10


def test_no_two_votes_come_to_one_host_on_the_way() -> None:
    """Replicas catch up one after the other, in any order, and anybody leads."""
    goals = [(1, 2, 3), (11, 2, 3), (11, 12, 3), (11, 12, 13), (11, 2, 4), (3, 4, 11), (14, 2, 11)]
    for start, goal, lead in product(goals, goals, range(3)):
        for order in permutations(goal):
            membership = Membership(start)
            for ready in range(1, 4):
                for _ in range(8):
                    joins = {node: node for node in goal if not membership.contains(node)}
                    there = [n for n in membership.learners if n in order[:ready]]
                    leader = start[lead] if start[lead] in membership.voters else order[0]
                    wanted = wanted_nodes(membership, goal)
                    then = plan(membership, wanted, joins, there, leader, on_one_host)
                    if then is None:
                        break
                    assert len({voter % 10 for voter in then.voters}) == len(then.voters) == 3
                    membership = then
            assert membership == Membership(goal)


def test_plan_comes_to_an_end_from_anywhere_to_anywhere() -> None:
    """Everybody who is wanted joins and catches up at once: the group gets there, and rests."""
    places = [(1,), (1, 2), (1, 2, 3), (3, 4, 5), (1, 2, 3, 4, 5), (2, 4, 6), (5, 6, 7, 1)]
    for start in places:
        for goal in places:
            membership = Membership(start)
            for _ in range(20):
                joins = {node: node for node in goal if not membership.contains(node)}
                wanted = wanted_nodes(membership, goal)
                then = plan(membership, wanted, joins, membership.learners, min(membership.voters))
                if then is None:
                    break
                assert len(then.voters) >= min(len(start), len(goal))
                membership = then
            assert membership == Membership(goal)


def test_plan_comes_to_an_end_whoever_is_to_vote() -> None:
    nodes = (1, 2, 3, 4, 5)
    electorates = [(1,), (2, 3), (1, 2, 3), (3, 4, 5), (1, 3, 5), nodes]
    for start, voting in product(electorates, repeat=2):
        membership = Membership(start, tuple(set(nodes) - set(start)))
        for _ in range(20):
            joins = {node: node for node in nodes if not membership.contains(node)}
            wanted = wanted_nodes(membership, nodes, voting)
            learners = membership.learners
            then = plan(membership, wanted, joins, learners, min(membership.voters))
            if then is None:
                break
            assert len(then.voters) >= min(len(start), len(voting))
            assert set(then.learners).isdisjoint(membership.voters), "it has to leave first"
            membership = then
        assert membership == Membership(voting, tuple(set(nodes) - set(voting)))


def test_more_nodes_than_may_vote_receive_entries_instead() -> None:
    wanted = wanted_nodes(Membership((8, 9)), tuple(range(1, 11)))
    assert (wanted.voters, wanted.learners) == ((1, 2, 3, 4, 5, 8, 9), (6, 7, 10))


@pytest.mark.parametrize(
    ("voting", "expected"),
    [
        ((1, 2, 3), ((1, 2, 3), (4, 5))),
        ((1, 3, 5), ((1, 3, 5), (2, 4))),
        ((1, 2, 3, 4, 5), ((1, 2, 3, 4, 5), ())),
        (None, ((1, 2, 3, 4, 5), ())),
    ],
)
def test_those_vote_that_are_said_to(
    voting: tuple[int, ...] | None, expected: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    wanted = wanted_nodes(Membership((1, 2, 3)), (1, 2, 3, 4, 5), voting)
    assert (wanted.voters, wanted.learners) == expected


def test_a_voter_that_is_to_learn_leaves_when_another_votes_and_is_admitted_again() -> None:
    wanted = wanted_nodes(Membership((1, 2, 3), (4,)), (1, 2, 3, 4), (1, 3, 4))
    begun = group(1, 2, 3, learners=(4,))
    assert plan(begun, wanted, {}, (), 2) is None, "4 has not got everything yet"
    replaced = plan(begun, wanted, {}, (4,), 2)
    assert replaced == group(1, 3, 4)
    assert plan(replaced, wanted, {2: 2}, (), 1) == group(1, 3, 4, learners=(2,))
    assert plan(group(1, 3, 4, learners=(2,)), wanted, {}, (2,), 1) is None


def test_a_voter_that_is_to_learn_may_be_replaced_by_its_node_before_it_leaves() -> None:
    wanted = Wanted((1, 3, 4), (2,))
    begun = group(1, 2, 3, learners=(N2, 4))
    assert may_wait_for(group(1, 2, 3, learners=(N2,)), wanted)
    assert plan(begun, wanted, {}, (N2,), 1) == group(1, N2, 3, learners=(4,))
    assert plan(begun, wanted, {}, (N2, 4), 1) == group(1, 3, 4, learners=(N2,))


def test_learners_are_bounded() -> None:
    full = group(1, learners=tuple(range(101, 117)))
    wanted = Wanted((1, 2), ())
    assert plan(full, wanted, {2: 2}, (), 1) is None


@pytest.mark.parametrize(
    ("learners", "waits"), [((), False), ((4,), False), ((N3,), True), ((2, 4), True)]
)
def test_learners_of_voting_nodes_are_waited_for(learners: tuple[int, ...], waits: bool) -> None:
    assert may_wait_for(group(1, learners=learners), Wanted((1, 2, 3), (4,))) == waits
