"""Which nodes a group needs, as the watch over simulated clusters reckons it."""

from __future__ import annotations

from headrace_raftlog.model.membership import Membership, member_id
from headrace_simulation.cluster.quorums import common_quorum, is_whole, well_quorum

FOUNDERS = Membership((1, 2, 3))
REPLACED = int(member_id(2, 77))  # of node 2, whose disk was lost


def well(membership: Membership, running: set[int], *ill: int) -> list[int]:
    return well_quorum(
        membership, running, lambda nodes: [node for node in nodes if node not in ill]
    )


def test_majority_decides() -> None:
    assert well(FOUNDERS, {1, 2, 3}) == [1, 2, 3]
    assert well(FOUNDERS, {1, 2, 3}, 3) == [1, 2]
    assert well(FOUNDERS, {1, 2, 3}, 2, 3) == []


def test_joint_membership_needs_both_electorates() -> None:
    """Nodes 1 and 2 are two of three, and one of the two that were before."""
    joint = Membership((1, REPLACED, 3), outgoing=(1, 3))
    assert well(joint, {1, REPLACED, 3}, 3) == []
    assert well(joint, {1, REPLACED, 3}) == [1, 2, 3]


def test_member_that_was_replaced_is_not_there() -> None:
    assert well(FOUNDERS, {1, REPLACED, 3}, 3) == []
    assert well(FOUNDERS, {1, REPLACED, 3}) == [1, 3]


def test_a_host_takes_one_member_with_it_whatever_is_on_it() -> None:
    """Process 65 is on the host of node 1, 66 on that of 2."""
    spread = Membership((65, 2, 3))
    assert well(spread, {65, 2, 3}, 65) == [2, 3]
    assert well(spread, {65, 2, 3}, 65, 2) == []
    crowded = Membership((1, 65, 3))  # is to go on without host 1, and cannot
    assert well(crowded, {1, 65, 3}, 1, 65) == [3]
    assert well(crowded, {1, 65, 3}, 1, 65, 3) == []
    assert well(crowded, {1, 65, 3}, 65, 3) == []
    assert well(Membership((1, 66, 3), outgoing=(65, 66, 3)), {1, 65, 66, 3}, 1, 65) == [3, 66]


def test_members_of_one_process_are_lost_one_by_one() -> None:
    replacing = Membership((1, 2, REPLACED, 3))
    assert well(replacing, {1, 2, REPLACED, 3}, 2) == []
    assert well(replacing, {1, REPLACED, 3}) == [1, 2, 3]


def test_every_membership_that_is_known_must_have_a_quorum() -> None:
    joint = Membership((1, REPLACED, 3), outgoing=(1, 3))
    after = Membership((1, REPLACED, 3))

    def healthy(nodes: list[int]) -> list[int]:
        return [node for node in nodes if node != 3]

    assert common_quorum([after], {1, REPLACED, 3}, healthy) == [1, 2]
    assert common_quorum([after, joint], {1, REPLACED, 3}, healthy) == []
    assert common_quorum([], {1}, healthy) == []


def test_group_is_whole_when_its_lost_member_is_gone() -> None:
    running = {1, REPLACED, 3}
    assert not is_whole(FOUNDERS, running)
    assert not is_whole(Membership((1, 2, REPLACED, 3)), running)
    assert not is_whole(Membership((1, REPLACED, 3), outgoing=(1, 3)), running)
    assert is_whole(Membership((1, REPLACED, 3)), running)
