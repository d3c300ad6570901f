"""Which change of membership brings a group closer to the nodes that it should be on.

Pure: the leader's host asks each time something changed, and proposes what it is told. One change
is under way at a time, and each leaves the group at least as available as before:

1. members that ask to join are admitted as learners, in place of an older learner of their node;
2. learners that have the log become voters: each replaces its node's older member, one of a node
   that is to vote no more too, or a voter whose node is not wanted any more, or is added when the
   number of voters becomes odd or complete;
3. what is not wanted leaves when everything that is wanted is there;
4. of nodes that fail together one votes, unless both are to: a new voter replaces the one that
   fails with it, and waits for everything that is wanted where that is the leader's own, which
   leaves last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.limits import GROUP_MEMBERS_MAX, NODE_ID_MAX, VOTERS_MAX
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


def checked_nodes(
    nodes: tuple[int, ...], voting: tuple[int, ...] | None
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return node ids of a group, and of those that vote, ascending.

    Raises ValueError: either is empty, too long or out of range, or `voting` is no part of `nodes`.
    """
    found = tuple(sorted(set(nodes)))
    if not 1 <= len(found) <= GROUP_MEMBERS_MAX:
        raise ValueError(f"{len(found)} nodes, a group is on 1 to {GROUP_MEMBERS_MAX}")
    if not 1 <= found[0] <= found[-1] <= NODE_ID_MAX:
        raise ValueError(f"nodes {found} are not all within 1 to {NODE_ID_MAX}")
    if voting is None:
        return found, None
    voters = tuple(sorted(set(voting)))
    if not 1 <= len(voters) <= VOTERS_MAX or not set(voters) <= set(found):
        raise ValueError(f"voters {voters} are not 1 to {VOTERS_MAX} of nodes {found}")
    return found, voters


def wanted_nodes(
    membership: Membership, desired: tuple[int, ...] | None, voting: tuple[int, ...] | None = None
) -> Wanted:
    """Return where a group should be.

    Args:
        membership: who belongs to it now.
        desired: node ids as the application says; None: those where it is now, in their parts.
        voting: which of these vote; None for as many as may, those first that do already.
    """
    sitting = {member_node(member) for member in membership.voters}
    if desired is None:
        learners = {member_node(member) for member in membership.learners} - sitting
        return Wanted(tuple(sorted(sitting)), tuple(sorted(learners)))
    if voting is None:  # beyond the bound, the rest receives entries
        ranked = sorted(set(desired), key=lambda node: (node not in sitting, node))
        voting = tuple(sorted(ranked[:VOTERS_MAX]))
    return Wanted(voting, tuple(sorted(set(desired).difference(voting))))


def never_together(node: int, other: int) -> bool:
    """Return False: each node fails for itself."""
    return False


def plan(
    membership: Membership,
    wanted: Wanted,
    joins: Mapping[int, int],
    caught_up: Collection[int],
    own: i64,
    fail_together: Callable[[int, int], bool] = never_together,
) -> Membership | None:
    """Return the next membership to propose, None while there is nothing to do.

    Args:
        membership: who belongs to the group; final and committed.
        wanted: where it should be.
        joins: by node id, the member that asks to be admitted there.
        caught_up: learners that have the log.
        own: member id of the leader, which leaves last.
        fail_together: returns whether two different nodes do, by their ids.
    """
    learners = _admit(membership, wanted, joins)
    if learners != membership.learners:
        return Membership(membership.voters, learners)
    voting = {member_node(member) for member in membership.voters}
    seats = voting.union(wanted.voters)
    promoted = [m for m in learners if m in caught_up and member_node(m) in seats]
    added = [member for member in promoted if member_node(member) not in voting]
    voters = _replace_older(membership.voters, promoted)
    kept = [member for member in voters if member_node(member) in wanted.voters]
    leaving = [member for member in voters if member not in kept]
    taken = _taken(kept, leaving, added, len(wanted.voters))
    waiting = [m for m in learners if m not in promoted or (m in added and m not in taken)]
    if own in leaving and not _is_there(wanted, kept + taken, waiting):
        apart = [m for m in added if not fail_together(member_node(m), member_node(own))]
        taken = _taken(kept, leaving, apart, len(wanted.voters))
        waiting = [m for m in learners if m not in promoted or (m in added and m not in taken)]
    staying = kept + taken
    if _is_there(wanted, staying, waiting):
        leaving = []
        waiting = [m for m in learners if m not in staying and wanted.contains(member_node(m))]
    else:  # the leader's own seat goes last of all
        free = [member for member in leaving if member != own]
        coming = [member_node(member) for member in taken]
        free.sort(key=lambda m: not any(fail_together(member_node(m), node) for node in coming))
        gone = free[: len(taken)]
        leaving = [member for member in leaving if member not in gone]
    found = Membership(tuple(kept + taken + leaving), tuple(waiting))
    return found if found != membership else None


def _is_there(wanted: Wanted, staying: list[int], waiting: list[int]) -> bool:
    """Return whether everybody who is to vote would, none of them in an older member's place."""
    there = {member_node(m) for m in staying} - {member_node(m) for m in waiting}
    return len(staying) > 0 and set(wanted.voters) <= there


def may_wait_for(membership: Membership, wanted: Wanted) -> bool:
    """Return whether a learner is about to become a voter once it has the log."""
    seats = {member_node(member) for member in membership.voters}.union(wanted.voters)
    return any(member_node(member) in seats for member in membership.learners)


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
