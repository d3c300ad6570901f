"""Nodes that a group needs, by its membership, to go on deciding."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from headrace_raftlog.model.membership import Membership, member_node


def well_quorum(
    membership: Membership, running: Container[int], healthy: Callable[[list[int]], list[int]]
) -> list[int]:
    """Return the nodes that are well, if they can decide; [] where they cannot.

    It takes a majority of both electorates while the membership is joint. A node whose member was
    replaced, as after the loss of its disk, does not stand for the member before.

    Args:
        membership: of the group.
        running: members that nodes run now.
        healthy: returns the nodes that are well, of those given.
    """
    voters = {*membership.voters, *membership.outgoing}
    present = [member for member in sorted(voters) if member in running]
    well = healthy(sorted({member_node(member) for member in present}))
    for electorate in (membership.voters, membership.outgoing):
        count = sum(member in present and member_node(member) in well for member in electorate)
        if electorate and 2 * count <= len(electorate):
            return []
    return well


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
