"""Processes that a group needs, by its membership, to go on deciding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable

from headrace_raftlog.model.membership import Membership, member_node
from headrace_simulation.cluster.hosts import host_of


def well_quorum(
    membership: Membership, running: Container[int], healthy: Callable[[list[int]], list[int]]
) -> list[int]:
    """Return the processes that are well, if they are to decide; [] where they need not.

    They are, in both electorates while the membership is joint, as long as fewer than half of the
    members would be lost if each host that is not well had one of them. So a host takes one member
    of a group with it, whatever processes it has. One whose member was replaced, as after the loss
    of its disk, does not stand for the member before.

    Args:
        membership: of the group.
        running: members that nodes run now.
        healthy: returns the processes that are well, of those given.
    """
    voters = {*membership.voters, *membership.outgoing}
    present = [member for member in sorted(voters) if member in running]
    well = healthy(sorted({member_node(member) for member in present}))
    for electorate in (membership.voters, membership.outgoing):
        lost = [m for m in electorate if m not in present or member_node(m) not in well]
        if electorate and 2 * _hosts_lost(lost) >= len(electorate):
            return []
    return well


def _hosts_lost(members: Iterable[int]) -> int:
    """Return how many members are lost with hosts: of each, those of one of its processes."""
    lost: dict[int, int] = {}
    for node, count in Counter(int(member_node(member)) for member in members).items():
        lost[host_of(node)] = max(lost.get(host_of(node), 0), count)
    return sum(lost.values())


def is_whole(membership: Membership, running: Container[int]) -> bool:
    """Return whether nodes run all members, and no change of them is under way."""
    return not membership.is_joint and all(each in running for each in membership.everyone())


def common_quorum(
    memberships: Iterable[Membership],
    running: Container[int],
    healthy: Callable[[list[int]], list[int]],
) -> list[int]:
    """Return `well_quorum` of the last of several memberships, [] where any of them has none.

    Nodes know different ones while a membership changes, and the next leader may know any of them.
    """
    well: list[int] = []
    for membership in memberships:
        well = well_quorum(membership, running, healthy)
        if not well:
            return []
    return well
