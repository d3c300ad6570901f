"""Log replication: what followers accept, what leaders send and commit.

Source: thesis sections 3.5, 3.6.2, 10.2.1 (a leader sends before its own disk is done, and
pipelines).
"""

from __future__ import annotations

from mypy_extensions import i64

from headrace_raftlog.core.progress import PROBE, REPLICATE, SNAPSHOT_OFFERED, Progress
from headrace_raftlog.core.proposals import release
from headrace_raftlog.core.reads import waiting_round
from headrace_raftlog.core.state import RaftState
from headrace_raftlog.core.transfer import hand_over
from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.errors import ContradictedError
from headrace_raftlog.model.limits import PROBE_BYTES_MAX
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.message import APPEND, APPEND_REPLY, HEARTBEAT, SNAPSHOT, Message
from headrace_raftlog.model.snapshot import SnapshotOffer


def follow_append(state: RaftState, message: Message) -> None:
    """Accept or refuse a leader's APPEND of this term.

    Entries are replaced only where one contradicts the leader's, so that a delayed or repeated
    APPEND never removes what came after it.
    """
    log = state.log
    check_agrees(state, message)
    if message.index < state.commit_index:
        _acknowledge(state, message.source, state.commit_index)
        return
    if log.term_at(message.index) != message.log_term:
        _refuse(state, message)
        return
    entries = message.entries
    last_new: i64 = message.index + len(entries)
    fresh = log.first_fresh(entries)
    if fresh < len(entries):
        first: i64 = entries[fresh].index
        if first <= state.commit_index:
            raise contradicted(state, first, entries[fresh].term)
        state.append(entries[fresh:] if fresh > 0 else entries)
    state.commit_to(min(message.commit, last_new))
    _acknowledge(state, message.source, last_new)


def check_agrees(state: RaftState, message: Message) -> None:
    """Compare the entry that a leader's message names with the committed ones here.

    They differ only if members that made a majority with this one have forgotten it: they were
    given an older copy of their data, and elected a leader among those who never heard of it.

    Raises ContradictedError: they do.
    """
    index: i64 = message.index
    term: i64 = state.log.term_at(index)
    if index <= state.commit_index and term >= 0 and term != message.log_term:
        raise contradicted(state, index, message.log_term)


def contradicted(state: RaftState, index: i64, term: i64) -> ContradictedError:
    """Return the error that says what a leader has in the place of a committed entry."""
    return ContradictedError(
        f"group {state.group}: entry {index} is committed here in term {state.log.term_at(index)}, "
        f"and the leader, member {state.leader}, has one of term {term} in its place"
    )


def follow_snapshot(state: RaftState, message: Message) -> None:
    """Take a leader's word that this member lacks what only the leader's snapshot has."""
    index: i64 = message.index
    if index > state.commit_index and state.log.term_at(index) == message.log_term:
        state.commit_to(index)  # the log has it all, and what a snapshot holds is committed
    if index <= state.commit_index:
        check_agrees(state, message)
        _acknowledge(state, message.source, state.commit_index)
        return
    state.offer = SnapshotOffer(message.source, index, message.log_term)


def restore(state: RaftState, index: i64, term: i64, membership: Membership) -> None:
    """Let a snapshot take the place of everything up to `index`; acknowledge it.

    Entries behind it stay only if the log agrees with the snapshot at `index`.

    Source: thesis section 5.1.
    """
    keep = state.log.term_at(index) == term
    if not keep:
        state.durability.truncated(index + 1)
    state.durability.restored(index)
    state.log.restored(index, keep)
    state.commit_index = index
    state.handed_index = index
    state.applied_index = index
    state.restore_memberships(index, membership, keep)
    state.offer = None
    state.restored = True
    if state.leader != 0:
        _acknowledge(state, state.leader, index)


def take_committed(state: RaftState) -> list[Entry]:
    """Hand out committed entries, as many as are at hand; none while the first is being read."""
    low: i64 = state.handed_index + 1
    bound: i64 = state.options.committed_bytes_max
    stop: i64 = state.log.at_hand(low, state.applicable_index() + 1, bound)
    if stop <= low:
        state.reading_index = low
        return []
    committed = state.log.entries(low, stop, bound)
    state.handed_index = committed[-1].index
    return committed


def take_append_reply(state: RaftState, reply: Message) -> None:
    """Learn from a follower's answer to an APPEND of this term."""
    progress = state.peer_of.get(reply.source)
    if progress is None or reply.index > state.log.last_index:
        return
    progress.recent_active = True
    if reply.reject:
        agree_index: i64 = state.log.agree_before(reply.hint_index, reply.hint_term)
        if progress.rejected(reply.index, agree_index):
            state.send_dirty = True
        return
    grew = progress.acknowledged(reply.index)
    state.send_dirty = True
    if grew:
        state.idle_elapsed = 0
        if state.membership.learners:
            progress.follow_round(state.log.last_index, state.options.election_ticks)
        advance_commit(state)
        if state.transferee == reply.source:
            hand_over(state, progress)


def take_heartbeat_reply(state: RaftState, reply: Message) -> None:
    """Note that a follower is alive; one that lags is owed an APPEND that finds what got lost.

    It lags when it does not hold what the log had when the heartbeat left (the reply's index):
    what was appended since is on its way, unless it waited for just this sign of life.
    """
    progress = state.peer_of.get(reply.source)
    if progress is None:
        return
    progress.recent_active = True
    progress.probe_sent = False
    if progress.match < reply.index:
        progress.flush = True
        state.send_dirty = True
    elif progress.state == PROBE and progress.match < state.log.last_index:
        state.send_dirty = True


def advance_commit(state: RaftState) -> None:
    """Commit what a majority holds durably, if its newest entry is of this term.

    Source: thesis section 3.6.2: entries of earlier terms are never committed by counting.
    """
    index = state.electorate.committed_index(state.peer_of, state.durability.last_index)
    if index > state.commit_index and state.log.term_at(index) == state.term:
        state.commit_to(index)
        state.send_dirty = True
        release(state)


def send_appends(state: RaftState) -> None:
    """Send every follower the missing entries that it may get now, or a newer commit index."""
    state.send_dirty = False
    for progress in state.peers:
        _replicate(state, progress)


def _replicate(state: RaftState, progress: Progress) -> None:
    if progress.state != REPLICATE and progress.probe_sent:
        return
    if progress.state == SNAPSHOT_OFFERED or progress.next_index < state.log.first_index():
        _offer_snapshot(state, progress)
        return
    if progress.state == PROBE:
        if _send_append(state, progress, state.log.last_index):
            progress.flush = False
        return
    while progress.next_index <= state.log.last_index and not progress.is_full():
        if not _send_append(state, progress, state.log.last_index):
            return
        progress.flush = False
    if progress.flush:
        _send_append(state, progress, progress.next_index - 1)
        progress.flush = False
    elif progress.commit_sent < min(state.commit_index, progress.match):
        send_heartbeat(state, progress, False)


def _send_append(state: RaftState, progress: Progress, last_index: i64) -> bool:
    """Send one APPEND with entries from `next_index` to at most `last_index`.

    A probe carries at most PROBE_BYTES_MAX of entries: it is repeated with each heartbeat that is
    answered, and on a slow link a long one would be under way several times. A longer entry is not
    even read for it, and follows once the match is known.

    Returns:
        False, and nothing is sent, while the first of them is read from the disk.
    """
    options = state.options
    low: i64 = progress.next_index
    high: i64 = min(last_index + 1, low + options.append_entries_max)
    bytes_max: i64 = options.append_bytes_max
    if progress.state == PROBE:
        bytes_max = min(bytes_max, PROBE_BYTES_MAX)
        if low < high and state.log.length_of(low) > bytes_max:
            high = low
    entries: list[Entry] = []
    if low < high:
        high = state.log.at_hand(low, high, bytes_max)
        if high == low:
            return False
        entries = state.log.entries(low, high, bytes_max)
    state.send(
        Message(
            APPEND,
            state.group,
            state.member,
            progress.member,
            state.term,
            index=low - 1,
            log_term=state.log.term_at(low - 1),
            commit=state.commit_index,
            entries=entries,
        )
    )
    last_sent: i64 = low - 1 + len(entries)
    progress.commit_sent = max(progress.commit_sent, min(state.commit_index, last_sent))
    if entries or progress.state == PROBE:
        size: i64 = 0
        for entry in entries:
            size += len(entry.data)
        progress.sent(last_sent, size)
    return True


def _offer_snapshot(state: RaftState, progress: Progress) -> None:
    """Tell a follower to fetch the snapshot: the log no longer has the entries that it lacks.

    It is said again at every sign of life until the follower acknowledges something.
    """
    index: i64 = state.log.first_index() - 1
    progress.become_offered(index)
    state.send(
        Message(
            SNAPSHOT,
            state.group,
            state.member,
            progress.member,
            state.term,
            index=index,
            log_term=state.log.term_at(index),
            commit=min(state.commit_index, progress.match),
        )
    )


def send_heartbeat(state: RaftState, progress: Progress, quiesce: bool) -> None:
    """Send one HEARTBEAT with the commit index, as far as the follower surely holds the log."""
    commit: i64 = min(state.commit_index, progress.match)
    progress.commit_sent = max(progress.commit_sent, commit)
    state.send(
        Message(
            HEARTBEAT,
            state.group,
            state.member,
            progress.member,
            state.term,
            index=state.log.last_index,
            log_term=state.log.last_term(),
            commit=commit,
            quiesce=quiesce,
            context=waiting_round(state),
        )
    )


def _acknowledge(state: RaftState, leader: i64, index: i64) -> None:
    state.send(Message(APPEND_REPLY, state.group, state.member, leader, state.term, index=index))


def _refuse(state: RaftState, message: Message) -> None:
    log = state.log
    hint: i64 = log.agree_before(min(message.index, log.last_index), message.log_term)
    state.send(
        Message(
            APPEND_REPLY,
            state.group,
            state.member,
            message.source,
            state.term,
            index=message.index,
            reject=True,
            hint_index=hint,
            hint_term=log.term_at(hint),
        )
    )
