"""Timers of a leader, heartbeats, and groups that fall silent.

A quiesced group sends nothing and its timers stand still. What ends the silence: a proposal, any
message that is not merely a late answer, and the host's `wake`, which it calls when the liveness
of a node with a member changes. Losing any of these would leave a group without a leader.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from headrace_raftlog.core import transfer
from headrace_raftlog.core.prng import Prng
from headrace_raftlog.core.proposals import release
from headrace_raftlog.core.reads import are_waiting, lose_all
from headrace_raftlog.core.reconfiguration import is_changing
from headrace_raftlog.core.replication import check_agrees, send_heartbeat
from headrace_raftlog.core.roles import become_follower
from headrace_raftlog.core.state import RaftState
from headrace_raftlog.model.group import CANDIDATE, FOLLOWER, LEADER, PRE_CANDIDATE
from headrace_raftlog.model.limits import DOUBTS_MAX, GREETINGS_MAX, SPREAD_TIMEOUTS
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.model.message import (
    APPEND,
    APPEND_REPLY,
    FORCED,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    SNAPSHOT,
    VOTE,
    VOTE_REPLY,
    Message,
)

PARTS: Final = 1 << 16  # into which a time is divided to draw from


def tick_leader(state: RaftState) -> None:
    """Advance a leader's timers by one tick.

    A leader that did not hear a majority for an election timeout steps down.

    Source: thesis section 6.2 (check of the quorum).
    """
    state.election_elapsed += 1
    if state.election_elapsed >= state.options.election_ticks:
        state.election_elapsed = 0
        if not state.electorate.is_active(state.peer_of):
            become_follower(state, state.term, 0)
            return
        for progress in state.peers:
            progress.recent_active = False
    for learner in state.membership.learners:
        catching_up = state.peer_of.get(learner)
        if catching_up is not None:
            catching_up.round_ticks += 1
    if state.transferee != 0:
        transfer.tick(state)
        release(state)
    state.heartbeat_elapsed += 1
    state.idle_elapsed += 1
    if _may_quiesce(state):
        broadcast(state, True)
        state.quiesced = True
    elif state.heartbeat_elapsed >= state.options.heartbeat_ticks:
        broadcast(state, False)


def follow_heartbeat(state: RaftState, message: Message) -> None:
    """Take a leader's HEARTBEAT of this term; fall silent with it where nothing is missing.

    A call for silence that was overtaken counts no more: the leader has spoken since.
    """
    check_agrees(state, message)
    state.commit_to(message.commit)
    if message.index > state.heard_index:
        state.heard_index = message.index
    log = state.log
    if (
        message.quiesce
        and state.heard_index == message.index
        and log.last_index == message.index
        and log.last_term() == message.log_term
        and state.commit_index == message.index
    ):
        state.quiesced = True
        lose_all(state)  # a leader that owed an answer would not fall silent
        return
    state.send(
        Message(
            HEARTBEAT_REPLY,
            state.group,
            state.member,
            message.source,
            state.term,
            index=message.index,
            context=message.context,
        )
    )


def wake(state: RaftState) -> None:
    """End the silence: timers start anew, a leader speaks at once."""
    state.hurry()
    if not state.quiesced:
        return
    wake_silently(state)
    if state.role == LEADER:
        broadcast(state, False)


def doubt_leader(state: RaftState) -> None:
    """End the silence of a follower, and ask its leader for a sign of life.

    Without it the follower would count its leader, which is silent, as gone.
    """
    if not state.quiesced:
        return
    wake(state)
    if state.role == FOLLOWER and state.leader != 0:
        state.send(
            Message(
                HEARTBEAT_REPLY, state.group, state.member, state.leader, state.term, reject=True
            )
        )


def passes_over(state: RaftState, message: Message) -> bool:
    """Return whether a silent member stays silent at a question for votes, but for a greeting."""
    return trusts_leader(state, message) or is_greeted(state, message)


def trusts_leader(state: RaftState, message: Message) -> bool:
    """Return whether a silent follower passes over a question for votes.

    A leader's node that can be reached leads still: it would have woken its group otherwise. Who
    asks does not hear it, and wakes it by the question itself if only its last words were lost.
    """
    if (
        message.kind not in (PRE_VOTE, VOTE)
        or message.context == FORCED
        or message.term <= state.term
        or state.role != FOLLOWER
        or state.leader in (0, message.source)
    ):
        return False
    if not state.is_node_up(state.leader) or state.doubts >= DOUBTS_MAX:
        doubt_leader(state)
        return False
    state.doubts += 1
    return True


def greet(state: RaftState, peer: i64) -> bool:
    """Let a silent leader tell one member that it leads, without waking the others.

    Thousands of groups that all spoke up for a link that healed would drown what their nodes have
    to say to each other.

    Returns:
        False, and nothing is sent, where the member lacks something, or the majority is in doubt.
    """
    progress = state.peer_of.get(peer)
    if (
        not state.quiesced
        or state.role != LEADER
        or progress is None
        or progress.match < state.log.last_index
        or state.nodes_up is None
        or not _is_in_touch(state)
    ):
        return False
    progress.probe_sent = False  # it lacks nothing: the next entry goes to it at once
    send_heartbeat(state, progress, True)
    return True


def is_greeted(state: RaftState, message: Message) -> bool:
    """Return whether a silent leader answered a question for votes with its call for silence.

    Who asks has missed that. A member that goes on asking wakes the group.
    """
    if (
        message.kind != PRE_VOTE
        or message.term != state.term + 1
        or state.doubts >= GREETINGS_MAX
        or not greet(state, message.source)
    ):
        return False
    state.doubts += 1
    return True


def peer_down(state: RaftState) -> None:
    """End the silence of a leader that may have lost its majority: it has to find out."""
    if not state.quiesced or state.role != LEADER:
        return
    if state.nodes_up is None or not _is_in_touch(state):
        wake(state)


def lose_leader(state: RaftState, spread: i64) -> None:
    """Stop following, and let the election timer run out soon.

    Members ask for votes in turn, so that they do not split them: the first within half of the
    shortest timeout, or within `spread` ticks where the group was silent, and each next one about
    an election timeout later. One that would be the last whose vote is needed, and refuses a
    shorter log, does not wait for its turn (`election.answer_request`); nor does one that has
    heard another ask, in vain, while it did not know of the loss.
    """
    half: i64 = max(state.options.election_ticks // 2, 1)
    most: i64 = min(spread, SPREAD_TIMEOUTS * state.options.election_ticks)
    first: i64 = max(half, most) if state.quiesced else half
    has_heard = state.doubts > 0 or len(state.askers) > 0
    wake_silently(state)
    state.leader = 0
    lose_all(state)
    state.asked = 0
    state.askers = ()
    if has_heard or state.nodes_up is None:
        state.election_timeout = 1 + state.prng.below(half)
    else:
        _draw_turn(state, first)


def _draw_turn(state: RaftState, first: i64) -> None:
    """Set the election timer by this member's turn.

    All members draw the same numbers, so that only their turns differ: the part of `first`, which
    differs somewhat between nodes, and whose turn is the first one, so that nodes share the work.
    """
    prng = Prng(state.group)
    begin: i64 = first * prng.below(PARTS) // PARTS
    start: i64 = prng.below(PARTS)
    voters = [
        voter
        for voter in state.electorate.voters
        if voter == state.member or state.is_node_up(voter)
    ]
    count: i64 = len(voters)
    turn: i64 = count  # of a learner, which asks to be woken
    if state.member in voters:
        turn = (voters.index(state.member) + start) % count
    state.election_timeout = 1 + begin + turn * state.options.election_ticks


def withhold(state: RaftState) -> None:
    """Give up an election that is under way: its vote would not become durable."""
    state.withheld = True
    if state.role in (PRE_CANDIDATE, CANDIDATE):
        become_follower(state, state.term, 0)


def resign(state: RaftState) -> None:
    """Stop leading without a successor.

    The heartbeat before it ends the silence of members that would not notice.
    """
    wake(state)
    become_follower(state, state.term, 0)


def wake_silently(state: RaftState) -> None:
    """End the silence of a member that is about to send, or to follow a message."""
    state.quiesced = False
    state.doubts = 0
    state.election_elapsed = 0
    state.heartbeat_elapsed = 0
    state.idle_elapsed = 0
    for progress in state.peers:
        progress.recent_active = False


def is_late(state: RaftState, message: Message) -> bool:
    """Return whether `message` belongs to the time before the group became quiescent.

    That is an answer, whoever leads now; and what a deposed leader sent to a follower, which
    answers it without a word to others. A leader speaks up for such a message itself.
    """
    kind: i64 = message.kind
    if kind in (APPEND, HEARTBEAT, SNAPSHOT):
        return state.role == FOLLOWER and message.term < state.term
    if message.reject or kind not in (HEARTBEAT_REPLY, APPEND_REPLY, PRE_VOTE_REPLY, VOTE_REPLY):
        return False
    return message.term <= state.term or kind == PRE_VOTE_REPLY


def wake_for(state: RaftState, message: Message) -> None:
    """End the silence for a message.

    A follower that was woken by another than its leader has it speak up as well: the leader may
    be silent still, and the follower's timer would run out.
    """
    if message.term <= state.term and message.source != state.leader:
        doubt_leader(state)
    else:
        wake(state)


def is_repeated_quiesce(state: RaftState, message: Message) -> bool:
    """Return whether `message` is the leader's call for silence once more."""
    return (
        message.kind == HEARTBEAT
        and message.quiesce
        and message.term == state.term
        and message.source == state.leader
    )


def broadcast(state: RaftState, quiesce: bool) -> None:
    """Send every member a heartbeat."""
    state.heartbeat_elapsed = 0
    for progress in state.peers:
        send_heartbeat(state, progress, quiesce)


def _may_quiesce(state: RaftState) -> bool:
    """Return whether all has been quiet long enough and every member holds everything.

    Members on nodes that are down do not count: they are brought up to date when their node comes
    up, and nothing that is said meanwhile reaches them.
    A leader cut off from its majority must not: silent, it would never find out, and lead for
    ever on its side of the cut.
    """
    after: i64 = state.options.quiesce_ticks
    last_index: i64 = state.log.last_index
    if after <= 0 or state.idle_elapsed < after or state.applied_index < last_index:
        return False
    if not _is_in_touch(state):
        return False
    if state.transferee != 0 or are_waiting(state) or is_changing(state):
        return False
    if _is_learner_out_of_reach(state):
        return False
    return all(progress.match >= last_index or progress.down for progress in state.peers)


def _is_learner_out_of_reach(state: RaftState) -> bool:
    """Return whether a learner whose node is up has yet to answer.

    Its promotion waits for that answer, which a silent learner does not give.
    """
    return any(
        progress.is_out_of_reach() and not progress.down
        for progress in state.peers
        if progress.member in state.membership.learners
    )


def _is_in_touch(state: RaftState) -> bool:
    """Return whether a majority is not known to be out of reach."""
    nodes_up = state.nodes_up
    for progress in state.peers:
        progress.down = nodes_up is not None and member_node(progress.member) not in nodes_up
    return state.electorate.is_in_touch(state.peer_of)
