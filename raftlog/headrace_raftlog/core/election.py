"""Elections: campaigning, answering and counting.

Source: thesis sections 3.4, 3.6.1, 4.2.3 and 9.6.
"""

from __future__ import annotations

from mypy_extensions import i64

from headrace_raftlog.core.quorum import VOTE_LOST, VOTE_WON
from headrace_raftlog.core.roles import (
    become_candidate,
    become_follower,
    become_leader,
    become_pre_candidate,
)
from headrace_raftlog.core.state import RaftState
from headrace_raftlog.model.group import CANDIDATE, FOLLOWER, LEADER, PRE_CANDIDATE
from headrace_raftlog.model.message import (
    FORCED,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    VOTE,
    VOTE_REPLY,
    Message,
)


def leader_missing(state: RaftState) -> None:
    """Act on an election timeout.

    A learner asks too, though it could not use the answers: the question wakes a silent group
    whose last words this member missed. One that left the group, or was not admitted yet, waits.
    So does one whose disk does not answer, which no longer names a leader that it does not hear.
    """
    if state.withheld:
        become_follower(state, state.term, 0)
    elif state.promotable:
        campaign(state)
    elif state.membership.contains(state.member):
        state.election_elapsed = 0
        state.draw_election_timeout()
        state.slow_down()
        _ask(state, PRE_VOTE, state.term + 1, 0)


def campaign(state: RaftState) -> None:
    """Begin an election with the question whether it could be won.

    Leaders and members that may not lead do nothing.
    """
    if state.role == LEADER or not state.promotable or state.withheld:
        return
    become_pre_candidate(state)
    state.votes[state.member] = True
    _ask(state, PRE_VOTE, state.term + 1, 0)
    _count(state)


def campaign_forced(state: RaftState) -> None:
    """Begin an election at once because the leader hands over. Source: thesis section 3.10."""
    if state.role == LEADER or not state.promotable or state.withheld:
        return
    _start_election(state, FORCED)


def is_sticky(state: RaftState, request: Message) -> bool:
    """Return whether a request for a vote is disregarded because a leader is alive.

    A leader that hears its quorum, or a follower that heard its leader within the minimum
    election timeout, takes no part in an election unless the leader itself asked for it.

    Source: thesis section 4.2.3.
    """
    return (
        request.context != FORCED
        and state.leader != 0
        and state.election_elapsed < state.options.election_ticks
    )


def answer_request(state: RaftState, request: Message) -> None:
    """Grant or refuse a VOTE or PRE_VOTE of this term, or a PRE_VOTE of a newer one.

    Whether this member counts is the candidate's to know: a learner that was promoted may not
    have learned it yet. A candidate asks and counts voters only.
    """
    pre_vote = request.kind == PRE_VOTE
    free = (
        state.vote == request.source
        or (state.vote == 0 and state.leader == 0)
        or (pre_vote and request.term > state.term)
    )
    is_up_to_date = _is_up_to_date(state, request.index, request.log_term)
    if not free or not is_up_to_date:
        refuse(state, request)
        if pre_vote and not is_up_to_date and state.role == FOLLOWER and state.leader == 0:
            _ask_soon(state)
        return
    if not pre_vote:
        state.vote = request.source
        state.election_elapsed = 0
    state.send(
        Message(
            PRE_VOTE_REPLY if pre_vote else VOTE_REPLY,
            state.group,
            state.member,
            request.source,
            request.term,
        )
    )


def _ask_soon(state: RaftState) -> None:
    """Begin an election within half of the shortest timeout if the refused one cannot be won."""
    voters = state.electorate.voters
    others = sum([voter != state.member and state.is_node_up(voter) for voter in voters])
    if others > len(voters) // 2:
        return  # they may elect whoever asked
    half: i64 = max(state.options.election_ticks // 2, 1)
    soon: i64 = state.election_elapsed + 1 + state.prng.below(half)
    state.election_timeout = min(state.election_timeout, soon)


def refuse(state: RaftState, request: Message) -> None:
    """Answer a VOTE or PRE_VOTE with this member's term and no."""
    state.send(
        Message(
            PRE_VOTE_REPLY if request.kind == PRE_VOTE else VOTE_REPLY,
            state.group,
            state.member,
            request.source,
            state.term,
            reject=True,
        )
    )


def take_reply(state: RaftState, reply: Message) -> None:
    """Count an answer to the election under way; each member counts once.

    A granted PRE_VOTE_REPLY carries the term asked for, everything else the sender's term.
    """
    if reply.kind == PRE_VOTE_REPLY:
        expected: i64 = state.term if reply.reject else state.term + 1
        if state.role != PRE_CANDIDATE or reply.term != expected:
            return
    elif state.role != CANDIDATE or reply.term != state.term:
        return
    if reply.source not in state.votes:
        state.votes[reply.source] = not reply.reject
        _count(state)


def count_own_vote(state: RaftState) -> None:
    """Count a candidate's vote for itself, once it is durable."""
    if (
        state.role == CANDIDATE
        and state.member not in state.votes
        and state.is_hard_state_durable()
    ):
        state.votes[state.member] = True
        _count(state)


def _start_election(state: RaftState, context: i64) -> None:
    become_candidate(state)
    _ask(state, VOTE, state.term, context)


def _ask(state: RaftState, kind: i64, term: i64, context: i64) -> None:
    last_index: i64 = state.log.last_index
    last_term: i64 = state.log.last_term()
    for voter in state.electorate.voters:
        if voter != state.member:
            state.send(
                Message(
                    kind,
                    state.group,
                    state.member,
                    voter,
                    term,
                    index=last_index,
                    log_term=last_term,
                    context=context,
                )
            )


def _count(state: RaftState) -> None:
    outcome = state.electorate.outcome(state.votes)
    if outcome == VOTE_WON:
        if state.role == PRE_CANDIDATE:
            _start_election(state, 0)
        else:
            become_leader(state)
    elif outcome == VOTE_LOST:
        become_follower(state, state.term, 0)


def _is_up_to_date(state: RaftState, last_index: i64, last_term: i64) -> bool:
    """Source: thesis section 3.6.1: the later term wins, then the longer log."""
    own_term: i64 = state.log.last_term()
    if last_term != own_term:
        return last_term > own_term
    return last_index >= state.log.last_index
