"""The only places where the role changes."""

from __future__ import annotations

from mypy_extensions import i64

from headrace_raftlog.core.reads import lose_all
from headrace_raftlog.core.state import NO_VOTES, NOT_UNCOMMITTED, RaftState
from headrace_raftlog.model.entry import ENTRY_NOOP
from headrace_raftlog.model.group import CANDIDATE, FOLLOWER, LEADER, PRE_CANDIDATE


def become_follower(state: RaftState, term: i64, leader: i64) -> None:
    """Follow `leader` (0 while unknown) in `term`, which is this term or a newer one."""
    _reset(state, term)
    state.role = FOLLOWER
    state.leader = leader
    if leader != 0:
        state.asked = 0
        state.askers = ()


def become_pre_candidate(state: RaftState) -> None:
    """Ask whether an election could be won; term and vote stay, and questions of reads wait on.

    Source: thesis section 9.6.
    """
    assert state.role != LEADER
    state.role = PRE_CANDIDATE
    state.leader = 0
    state.votes = {}
    state.election_elapsed = 0
    state.draw_election_timeout()
    state.slow_down()


def become_candidate(state: RaftState) -> None:
    """Begin a new term and vote for this member.

    Source: thesis section 3.4.
    """
    assert state.role != LEADER
    _reset(state, state.term + 1)
    state.role = CANDIDATE
    state.votes = {}
    state.vote = state.member


def become_leader(state: RaftState) -> None:
    """Lead this term, beginning it with an empty entry that commits all before it.

    Source: thesis sections 3.4, 3.6.2 and 6.4 (the no-op).
    """
    assert state.role == CANDIDATE
    assert state.is_hard_state_durable()
    _reset(state, state.term)
    state.asked = 0
    state.askers = ()
    state.role = LEADER
    state.leader = state.member
    state.create_peers()
    state.noop_index = state.append_own(ENTRY_NOOP, [b""])


def _reset(state: RaftState, term: i64) -> None:
    assert term >= state.term, "terms never decrease"
    if term != state.term or state.role == LEADER:
        lose_all(state)
    if term != state.term:
        state.term = term
        state.vote = 0
    state.leader = 0
    state.votes = NO_VOTES
    state.election_elapsed = 0
    state.heartbeat_elapsed = 0
    state.idle_elapsed = 0
    state.quiesced = False
    state.heard_index = 0
    state.draw_election_timeout()
    state.send_dirty = False
    state.noop_index = 0
    state.uncommitted = NOT_UNCOMMITTED
    state.uncommitted_bytes = 0
    state.queue = None
    state.transferee = 0
    state.offer = None
    state.drop_peers()
