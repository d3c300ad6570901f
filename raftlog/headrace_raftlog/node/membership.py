"""Which change of membership brings a group closer to the nodes that it should be on.

Pure: the leader's host asks each time something changed, and proposes what it is told. One change
is under way at a time, and each leaves the group at least as available as before:

1. members that ask to join are admitted as learners, in place of an older learner of their node;
2. learners that have the log become voters: each replaces its node's older member, or a voter whose
   node is not wanted any more, or is added when the number of voters becomes odd or complete;
3. what is not wanted leaves when everything that is wanted is there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.limits import GROUP_MEMBERS_MAX, VOTERS_MAX
from headrace_raftlog.model.membership import Membership, member_node


@final
class Wanted:
    """On which nodes a group should be."""

    def __init__(self, voters: tuple[int, ...], learners: tuple[int, ...]) -> None:
        self.voters = voters  # node ids, ascending, at most VOTERS_MAX
        self.learners = learners  # node ids, ascending; none of them a voter's

    def contains(self, node: i64) -> bool:
        """Return whether any member of a node belongs there."""
        return node in self.voters or node in self.learners


def wanted_nodes(
    membership: Membership, desired: tuple[int, ...] | None, voter_count: i64 = VOTERS_MAX
) -> Wanted:
    """Return where a group should be.

    Args:
        membership: who belongs to it now.
        desired: node ids as the application says; None: those where it is now, in their parts.
        voter_count: how many of them should vote. Nodes that vote already go on doing so.
    """
    if desired is not None:
        voting = [member_node(member) for member in membership.voters]
        # Beyond the bound those stay that vote already; the rest receives entries.
        ranked = sorted(set(desired), key=lambda node: (node not in voting, node))
        staying = [node for node in ranked if node in voting]
        count: i64 = min(max(voter_count, len(staying)), VOTERS_MAX)
        voters = tuple(sorted(ranked[:count]))
        return Wanted(voters, tuple(sorted(ranked[count:])))
    voters = tuple(sorted({member_node(member) for member in membership.voters}))
    learners = {member_node(member) for member in membership.learners} - set(voters)
    return Wanted(voters, tuple(sorted(learners)))


def plan(
    membership: Membership,
    wanted: Wanted,
    joins: Mapping[int, int],
    caught_up: Collection[int],
    own: i64,
) -> Membership | None:
    """Return the next membership to propose, None while there is nothing to do.

    Args:
        membership: who belongs to the group; final and committed.
        wanted: where it should be.
        joins: by node id, the member that asks to be admitted there.
        caught_up: learners that have the log.
        own: member id of the leader, which leaves last.
    """
    learners = _admit(membership, wanted, joins)
    if learners != membership.learners:
        return Membership(membership.voters, learners)
    promoted = [m for m in learners if m in caught_up and member_node(m) in wanted.voters]
    voting = {member_node(member) for member in membership.voters}
    added = [member for member in promoted if member_node(member) not in voting]
    voters = _replace_older(membership.voters, promoted)
    kept = [member for member in voters if member_node(member) in wanted.voters]
    leaving = [member for member in voters if member not in kept]
    taken = _taken(kept, leaving, added, len(wanted.voters))
    waiting = [m for m in learners if m not in promoted or (m in added and m not in taken)]
    there = {member_node(m) for m in kept + taken} - {member_node(m) for m in waiting}
    if kept + taken and set(wanted.voters) <= there:
        leaving = []
        waiting = [member for member in waiting if wanted.contains(member_node(member))]
    else:  # the leader's own seat goes last of all
        gone = [member for member in leaving if member != own][: len(taken)]
        leaving = [member for member in leaving if member not in gone]
    found = Membership(tuple(kept + taken + leaving), tuple(waiting))
    return found if found != membership else None


def may_wait_for(membership: Membership, wanted: Wanted) -> bool:
    """Return whether a learner is about to become a voter once it has the log."""
    return any(member_node(member) in wanted.voters for member in membership.learners)


def _admit(membership: Membership, wanted: Wanted, joins: Mapping[int, int]) -> tuple[int, ...]:
    learners = list(membership.learners)
    for node in sorted(joins):
        member = joins[node]
        if membership.contains(member) or not wanted.contains(node):
            continue
        stale = [learner for learner in learners if member_node(learner) == node]
        if len(learners) - len(stale) >= GROUP_MEMBERS_MAX:
            break
        learners = [learner for learner in learners if learner not in stale]
        learners.append(member)
    return tuple(sorted(learners))


def _replace_older(voters: tuple[int, ...], promoted: list[int]) -> list[int]:
    """Return voters with the promoted members in the place of older ones of their nodes."""
    by_node = {member_node(member): member for member in promoted}
    return [by_node.get(member_node(voter), voter) for voter in voters]


def _taken(kept: list[int], leaving: list[int], added: list[int], wanted_count: int) -> list[int]:
    """Return which members become additional voters now.

    Those that only replace leaving ones always do. An even number of voters tolerates no more than
    the odd one below it, so the rest waits until it makes an odd number, or the wanted one.
    """
    for count in range(len(added), 0, -1):
        total = len(kept) + max(len(leaving), count)
        if count <= len(leaving) or total % 2 == 1 or len(kept) + count == wanted_count:
            return added[:count]
    return []
