"""Steps of a simulated leader to a group's wanted nodes, with wild attempts too."""

from __future__ import annotations

from typing import Final

from headrace_raftlog.model.group import LEADER, NOT_CAUGHT_UP
from headrace_raftlog.model.limits import VOTERS_MAX
from headrace_raftlog.model.membership import Membership, member_node
from headrace_simulation.simulator.catalog import GroupRecord
from headrace_simulation.simulator.replica import Replica

RECONCILED: Final = 0.3  # probability per tick that a leader looks at what is wanted


def reconcile(replica: Replica, record: GroupRecord) -> None:
    """Take one step, if this member leads: admit, promote, remove, or something wild."""
    core = replica.core
    if core.role != LEADER or replica.stopped:
        return
    parameters = replica.node.parameters
    rng = replica.node.loop.rng
    if parameters.churn and rng.random() < parameters.churn:
        _attempt(replica, record)
    elif parameters.transfer and rng.random() < parameters.transfer:
        replica.transfer(rng.choice(core.membership.voters))
    elif rng.random() < RECONCILED and not core.is_changing:
        nodes = (replica.node, *replica.node.peers)
        newest = {node.number: node.store.member(record.group) for node in nodes}
        step = next_step(core.membership, replica.joins, newest, record)
        if step is not None:
            _propose(replica, record, step)


def next_step(
    membership: Membership, joins: dict[int, int], newest: dict[int, int], record: GroupRecord
) -> Membership | None:
    """Return the next membership on the way to the wanted one, None when it is reached.

    Args:
        membership: who belongs to the group.
        joins: by node id, the member that asks to be admitted there.
        newest: by node id, the member whose log is on that node's disk, 0 for none.
        record: where the group is wanted.
    """
    voters = membership.voters
    learners = membership.learners
    for node in sorted(joins):
        member = joins[node]
        if node not in record.desired and node not in record.observers:
            continue
        if not membership.contains(member) and not _is_replaced(member, voters, newest):
            others = [one for one in learners if member_node(one) != node]
            return Membership(voters, (*others, member))
    for member in learners:
        node = member_node(member)
        if node in record.desired and not _is_replaced(member, voters, newest):
            others = [one for one in voters if member_node(one) != node]
            if len(others) < VOTERS_MAX:
                left = [one for one in learners if one != member]
                return Membership((*others, member), tuple(left))
    kept = tuple(
        one
        for one in voters
        if member_node(one) in record.desired and not _is_replaced(one, voters, newest)
    )
    wanted = (*record.desired, *record.observers)
    still = tuple(
        one
        for one in learners
        if member_node(one) in wanted and not _is_replaced(one, voters, newest)
    )
    if kept and (kept != voters or still != learners):
        return Membership(kept, still)
    return None


def _is_replaced(member: int, voters: tuple[int, ...], newest: dict[int, int]) -> bool:
    """Return whether the member that its node has now is another voter."""
    return newest[member_node(member)] not in (0, member) and newest[member_node(member)] in voters


def _attempt(replica: Replica, record: GroupRecord) -> None:
    """Propose an unwanted change, or change the wanted nodes from now on."""
    rng = replica.node.loop.rng
    membership = replica.core.membership
    voters = list(membership.voters)
    learners = list(membership.learners)
    way = rng.random()
    if way < 0.25 and replica.node.parameters.nodes > 1:
        nodes = list(range(1, replica.node.parameters.nodes + 1))
        count = rng.randint(1, min(5, len(nodes)))
        record.desired = tuple(sorted(rng.sample(nodes, count)))
        record.observers = tuple(one for one in record.observers if one not in record.desired)
        for node in record.desired:
            record.hosts[node] = True
        return
    if way < 0.55 and len(voters) > 1:
        for _ in range(rng.choice((1, 1, len(voters) - 1))):
            voters.remove(rng.choice(voters))
    elif way < 0.7 and learners:
        learners.remove(rng.choice(learners))
    elif learners and len(voters) < VOTERS_MAX:
        promoted = rng.choice(learners)
        learners.remove(promoted)
        if way > 0.85 and len(voters) > 1:
            voters.remove(rng.choice(voters))
        voters.append(promoted)
    else:
        return
    _propose(replica, record, Membership(tuple(voters), tuple(learners)))


def _propose(replica: Replica, record: GroupRecord, wanted: Membership) -> None:
    """Propose a membership unless it could never decide, because too many lost their data."""
    if not record.may_have(wanted.voters):
        return
    index = replica.propose_membership(wanted.voters, wanted.learners)
    if index > 0:
        replica.coverage.note("memberships proposed")
        if replica.member not in wanted.voters:
            replica.coverage.note("leaders that remove themselves")
    elif index == NOT_CAUGHT_UP:
        replica.coverage.note("learners not caught up")
