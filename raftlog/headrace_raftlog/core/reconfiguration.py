"""Changes of membership, by a leader.

One change is under way at a time. A change of voters passes through a joint membership, in which
old and new voters decide together; its leader ends that by itself as soon as it is committed.

Source: thesis sections 4.2 and 4.3; the wait for an entry of the leader's own term: Ongaro's
message "bug in single-server membership changes" to raft-dev of 10 July 2015.
"""

from __future__ import annotations

from mypy_extensions import i64

from headrace_raftlog.core.progress import SNAPSHOT_OFFERED, Progress
from headrace_raftlog.core.replication import send_heartbeat
from headrace_raftlog.core.roles import become_follower
from headrace_raftlog.core.state import RaftState
from headrace_raftlog.model.entry import ENTRY_CONFIG
from headrace_raftlog.model.group import BUSY, LEADER, NOT_CAUGHT_UP, NOT_LEADER
from headrace_raftlog.model.limits import GROUP_MEMBERS_MAX, VOTERS_MAX
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.message import TIMEOUT_NOW, Message


def propose_membership(state: RaftState, wanted: Membership) -> i64:
    """Append a membership, a joint one if voters change; see `RaftCore.propose_membership`."""
    current = state.membership
    _check(wanted, current)
    if state.role != LEADER:
        return NOT_LEADER
    if state.commit_index < state.noop_index or is_changing(state) or state.transferee != 0:
        return BUSY
    if wanted == current:
        return state.membership_index()
    for voter in wanted.voters:
        if voter not in current.voters and not is_caught_up(state, voter):
            return NOT_CAUGHT_UP
    if wanted.voters != current.voters:
        wanted = Membership(wanted.voters, wanted.learners, current.voters)
    return _append(state, wanted)


def is_changing(state: RaftState) -> bool:
    """Return whether the newest membership is joint or not known to be committed."""
    return state.membership.is_joint or state.membership_index() > state.commit_index


def committed(state: RaftState) -> None:
    """Go on with a change after the leader's commit index rose.

    A leader of a later term finishes what an earlier one began, once it has committed an entry of
    its own term. One that is not a voter any more hands over to whoever has most of the log.
    """
    if not state.reconfiguring or state.commit_index < state.noop_index:
        return
    if state.membership_index() > state.commit_index:
        return
    state.reconfiguring = False
    membership = state.membership
    if membership.is_joint:
        _append(state, Membership(membership.voters, membership.learners))
        return
    for progress in list(state.peers):
        if not membership.contains(progress.member):
            send_heartbeat(state, progress, False)
            state.drop_peer(progress)
    if not state.promotable:
        _leave(state)


def _check(wanted: Membership, current: Membership) -> None:
    if not 1 <= len(wanted.voters) <= VOTERS_MAX:
        raise ValueError(f"{len(wanted.voters)} voters, a group has 1 to {VOTERS_MAX}")
    if len(wanted.learners) > GROUP_MEMBERS_MAX:
        raise ValueError(f"{len(wanted.learners)} learners, a group has {GROUP_MEMBERS_MAX}")
    ids = wanted.voters + wanted.learners
    if len(set(ids)) != len(ids) or min(ids) < 1:
        raise ValueError(f"{wanted!r} names a member twice, or one that cannot be")
    for learner in wanted.learners:
        if learner in current.voters or learner in current.outgoing:
            raise ValueError(f"voter {learner} cannot become a learner: remove it first")


def is_caught_up(state: RaftState, voter: i64) -> bool:
    """Return whether a learner has enough of the log to count.

    It lacks few entries, or keeps pace: under load it may never lack few, and still have within
    less than an election timeout what the leader has now.

    Source: thesis section 4.2.1: a member that lags must not be needed for commitment.
    """
    progress = state.peer_of.get(voter)
    if (
        progress is None
        or voter not in state.membership.learners
        or progress.state == SNAPSHOT_OFFERED
        or progress.is_out_of_reach()
    ):
        return False
    if progress.match + state.options.promote_lag_max >= state.commit_index:
        return True
    return progress.keeps_pace and progress.round_ticks < state.options.election_ticks


def _append(state: RaftState, membership: Membership) -> i64:
    return state.append_own(ENTRY_CONFIG, [membership.encode()])


def _leave(state: RaftState) -> None:
    best: Progress | None = None
    for voter in state.electorate.voters:
        progress = state.peer_of.get(voter)
        if progress is not None and (best is None or progress.match > best.match):
            best = progress
    if best is not None:
        state.send(Message(TIMEOUT_NOW, state.group, state.member, best.member, state.term))
    become_follower(state, state.term, 0)
