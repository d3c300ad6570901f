"""Reads that see everything committed before them, without an entry in the log.

A leader takes its commit index, and the read may be answered at that index once a majority has
answered a round of heartbeats which began after the read was asked for: only then is it sure that
no other leader had committed anything newer. Reads gather between two Readies and share a round.
Followers ask their leader.

Source: thesis section 6.4. Round numbers are never used again within a term, so an answer to an
earlier round confirms nothing that was asked for later.
"""

from __future__ import annotations

from mypy_extensions import i64

from headrace_raftlog.core.read_rounds import Read, Reads, Round
from headrace_raftlog.core.state import RaftState
from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.limits import READ_TIMEOUTS, READS_WAITING_MAX
from headrace_raftlog.model.message import HEARTBEAT_REPLY, READ_INDEX, READ_INDEX_REPLY, Message


def ask(state: RaftState, context: i64) -> bool:
    """Begin a read of this member; return False when it is refused."""
    if state.leader == 0:
        return False
    reads = _reads(state)
    if reads.count >= READS_WAITING_MAX:
        return False
    reads.count += 1
    if state.role == LEADER:
        reads.gathered.append(Read(state.member, context))
        return True
    reads.forwarded[context] = reads.ticks
    reads.asked = state.leader
    state.send(
        Message(READ_INDEX, state.group, state.member, state.leader, state.term, context=context)
    )
    return True


def take_question(state: RaftState, question: Message) -> None:
    """Take a follower's READ_INDEX; one too many is answered with a refusal."""
    reads = _reads(state)
    if reads.count >= READS_WAITING_MAX:
        _answer(state, question.source, question.context, 0, True)
        return
    reads.count += 1
    reads.gathered.append(Read(question.source, question.context))


def take_answer(state: RaftState, answer: Message) -> None:
    """Receive an answer of the term's leader, also while it is lost sight of; ignore all others."""
    reads = state.reads
    if reads is None or answer.source != reads.asked or answer.context not in reads.forwarded:
        return
    del reads.forwarded[answer.context]
    reads.count -= 1
    if answer.reject:
        reads.lost.append(answer.context)
    else:
        reads.states.append((answer.context, answer.index))


def note_round(state: RaftState, reply: Message) -> None:
    """Learn from a HEARTBEAT_REPLY which rounds are confirmed."""
    progress = state.peer_of.get(reply.source)
    if progress is None or reply.kind != HEARTBEAT_REPLY or reply.context <= progress.read_round:
        return
    progress.read_round = reply.context
    confirm(state)


def begin_round(state: RaftState) -> bool:
    """Begin a round with what gathered; return whether heartbeats are due for it.

    A leader knows what is committed only after the first commit of its term; reads wait for it.
    """
    reads = state.reads
    if reads is None or not reads.gathered or state.commit_index < state.noop_index:
        return False
    state.read_round += 1
    reads.rounds.append(Round(state.read_round, state.commit_index, reads.gathered))
    reads.gathered = []
    confirm(state)  # a sole voter has nobody to ask
    return len(reads.rounds) > 0


def confirm(state: RaftState) -> None:
    """Answer the reads of all rounds that a majority has answered."""
    reads = state.reads
    if reads is None or not reads.rounds:
        return
    confirmed: i64 = state.electorate.confirmed_round(state.peer_of, state.read_round)
    while reads.rounds and reads.rounds[0].number <= confirmed:
        done = reads.rounds.pop(0)
        reads.count -= len(done.reads)
        for read in done.reads:
            if read.source == state.member:
                reads.states.append((read.context, done.index))
            else:
                _answer(state, read.source, read.context, done.index, False)


def waiting_round(state: RaftState) -> i64:
    """Return the newest round that waits for answers, 0 for none."""
    reads = state.reads
    if reads is None or not reads.rounds:
        return 0
    return reads.rounds[len(reads.rounds) - 1].number


def expire(state: RaftState) -> None:
    """Count a tick of a member that does not lead; give up questions not answered for too long.

    They, or their answers, got lost; on a slow link answers may take several election timeouts.
    """
    reads = state.reads
    if reads is None or not reads.forwarded:
        return
    reads.ticks += 1
    lost = [
        context
        for context, asked in reads.forwarded.items()
        if reads.ticks - asked >= READ_TIMEOUTS * state.options.election_ticks
    ]
    for context in lost:
        del reads.forwarded[context]
    reads.count -= len(lost)
    reads.lost.extend(lost)


def lose_all(state: RaftState) -> None:
    """Give up every read under way: nobody answers it any more."""
    reads = state.reads
    if reads is None:
        return
    for waiting in reads.rounds:
        _lose(state, reads, waiting.reads)
    _lose(state, reads, reads.gathered)
    reads.lost.extend(reads.forwarded)
    reads.rounds = []
    reads.gathered = []
    reads.forwarded = {}
    reads.count = 0


def has_news(state: RaftState) -> bool:
    """Return whether there is something to hand out, or a round to begin."""
    reads = state.reads
    if reads is None:
        return False
    if reads.states or reads.lost:
        return True
    return len(reads.gathered) > 0 and state.commit_index >= state.noop_index


def are_waiting(state: RaftState) -> bool:
    """Return whether any read is under way."""
    return state.reads is not None and state.reads.count > 0


def _lose(state: RaftState, reads: Reads, some: list[Read]) -> None:
    for read in some:
        if read.source == state.member:
            reads.lost.append(read.context)


def _reads(state: RaftState) -> Reads:
    reads = state.reads
    if reads is None:
        reads = Reads()
        state.reads = reads
    return reads


def _answer(state: RaftState, target: i64, context: i64, index: i64, reject: bool) -> None:
    state.send(
        Message(
            READ_INDEX_REPLY,
            state.group,
            state.member,
            target,
            state.term,
            index=index,
            reject=reject,
            context=context,
        )
    )
