"""Bugs of the consensus: votes, commitment, logs that contradict each other, snapshots."""

from __future__ import annotations

from typing import Any, Final

from headrace_raftlog.core import election, replication
from headrace_raftlog.core.log_view import LogView
from headrace_raftlog.core.quorum import Electorate
from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.message import APPEND_REPLY, VOTE, VOTE_REPLY
from headrace_raftlog.node.host import Host
from headrace_simulation.cluster.bugs.bug import Mutation, put


def _early(kind: int) -> None:
    """Send messages of a kind before what they promise is durable."""

    def made(original: Any) -> Any:
        def write(self: Any, hosted: Any, ready: Any) -> None:
            early = [each for each in ready.messages_after_persist if each.kind == kind]
            late = [each for each in ready.messages_after_persist if each.kind != kind]
            ready.messages_after_persist = late
            self._post_all(hosted, early)
            original(self, hosted, ready)

        return write

    put(Host, "_write", made)


def _counting() -> None:
    def advance_commit(state: Any) -> None:
        index = state.electorate.committed_index(state.peer_of, state.durability.last_index)
        if index > state.commit_index:
            state.commit_to(index)
            state.send_dirty = True
            replication.release(state)  # type: ignore[attr-defined]

    put(replication, "advance_commit", lambda _: advance_commit)


def _restoring() -> None:
    def restore(self: Any, index: int, term: int, membership: Any) -> bool:
        if self.role == LEADER or term > self.written_term:
            return False
        replication.restore(self, index, term, membership)
        return True

    put(RaftCore, "restore", lambda _: restore)


def _alone() -> None:
    put(Electorate, "committed_index", lambda _: lambda self, peers, own_match: own_match)


def _unsticky() -> None:
    put(election, "is_sticky", lambda _: lambda state, request: False)


def _votes_twice() -> None:
    def made(original: Any) -> Any:
        def answer_request(state: Any, request: Any) -> None:
            if request.kind == VOTE:
                state.vote = 0
            original(state, request)

        return answer_request

    put(election, "answer_request", made)


def _short_logs() -> None:
    put(election, "_is_up_to_date", lambda _: lambda state, last_index, last_term: True)


def _state_unwritten() -> None:
    def made(original: Any) -> Any:
        def hand_writes(self: Any, ready: Any) -> None:
            original(self, ready)
            if not ready.entries:
                ready.hard_state = None

        return hand_writes

    put(RaftCore, "_hand_writes", made)


def _kept_conflicts() -> None:
    def first_fresh(self: Any, entries: list[Any]) -> int:
        for position, entry in enumerate(entries):
            if entry.index > self.last_index:
                return position
        return len(entries)

    put(LogView, "first_fresh", lambda _: first_fresh)


def _unmatched() -> None:
    def follow_append(state: Any, message: Any) -> None:
        fresh = state.log.first_fresh(message.entries)
        if fresh < len(message.entries):
            state.append(message.entries[fresh:])
        last_new = message.index + len(message.entries)
        state.commit_to(min(message.commit, last_new))
        replication._acknowledge(state, message.source, last_new)  # noqa: SLF001  (in its place)

    put(replication, "follow_append", lambda _: follow_append)


def _followers_commit() -> None:
    def made(original: Any) -> Any:
        def follow_append(state: Any, message: Any) -> None:
            original(state, message)
            if message.entries and message.entries[-1].index == state.log.last_index:
                state.commit_to(state.log.last_index)

        return follow_append

    put(replication, "follow_append", made)


def _new_voters_only() -> None:
    def made(original: Any) -> Any:
        def init(self: Any, membership: Any) -> None:
            original(self, membership)
            self.voters = membership.voters
            self._outgoing = ()

        return init

    put(Electorate, "__init__", made)


def _serves_early() -> None:
    ready = property(lambda self: self.role == LEADER)
    put(RaftCore, "ready_to_serve", lambda _: ready)


def _old_terms() -> None:
    def made(original: Any) -> Any:
        def step_older_term(self: Any, message: Any) -> None:
            if message.kind in (APPEND_REPLY, VOTE_REPLY):
                self._dispatch(message)
            else:
                original(self, message)

        return step_older_term

    put(RaftCore, "_step_older_term", made)


def _acks_everything() -> None:
    def made(original: Any) -> Any:
        def acknowledge(state: Any, leader: int, index: int) -> None:
            del index
            original(state, leader, state.log.last_index)

        return acknowledge

    put(replication, "_acknowledge", made)


def _logged_is_committed() -> None:
    def made(original: Any) -> Any:
        def init(self: Any, *args: Any) -> None:
            original(self, *args)
            self.commit_index = self.log.last_index

        return init

    put(RaftCore, "__init__", made)


def _nothing_missing() -> None:
    put(Host, "missing", lambda _: lambda self, hosted, snapshot: [])


MUTATIONS: Final = (
    Mutation(
        "votes-before-sync",
        "a vote is sent before it is durable",
        *("unsynced", 20, lambda: _early(VOTE_REPLY)),
    ),
    Mutation(
        "acks-before-sync",
        "entries are acknowledged before they are durable",
        *("unsynced", 20, lambda: _early(APPEND_REPLY)),
    ),
    Mutation(
        "old-term-by-counting",
        "entries of earlier terms are committed by counting",
        *("several", 60, _counting),
        is_found=False,
    ),
    Mutation(
        "snapshot-over-newer-entries",
        "a snapshot replaces what is committed behind it",
        *("loss", 20, _restoring),
        is_found=False,
    ),
    Mutation("commit-without-quorum", "a leader commits what it alone has", "process", 20, _alone),
    Mutation(
        "votes-beside-a-leader",
        "a member that hears its leader votes for another",
        *("network", 30, _unsticky),
    ),
    Mutation("votes-twice", "a member votes twice in a term", "network", 30, _votes_twice),
    Mutation(
        "votes-for-shorter-logs",
        "a member votes for one that lacks what it has",
        *("unsynced", 20, _short_logs),
    ),
    Mutation(
        "votes-unwritten",
        "term and vote are written with the next entry",
        *("unsynced", 10, _state_unwritten),
    ),
    Mutation(
        "contradicting-entries-kept",
        "a follower keeps its entries where the leader has others",
        *("unsynced", 20, _kept_conflicts),
    ),
    Mutation(
        "appends-anywhere",
        "a follower appends without comparing the entry before",
        *("unsynced", 20, _unmatched),
    ),
    Mutation(
        "followers-commit-what-comes",
        "a follower commits what it is sent",
        *("unsynced", 20, _followers_commit),
        is_found=False,
    ),
    Mutation(
        "new-voters-decide-alone",
        "the leaving voters do not count in a joint membership",
        *("moves", 30, _new_voters_only),
        is_found=False,
    ),
    Mutation(
        "serves-before-its-first-commit",
        "a leader serves before it knows what is committed",
        *("process", 20, _serves_early),
        is_found=False,
    ),
    Mutation(
        "acks-what-it-has",
        "a follower acknowledges its whole log, whether it agrees or not",
        *("unsynced", 20, _acks_everything),
        is_found=False,
    ),
    Mutation(
        "answers-of-earlier-terms-count",
        "a leader counts acknowledgements of an earlier term",
        *("network", 30, _old_terms),
        is_found=False,
    ),
    Mutation(
        "restarts-commit-what-is-logged",
        "a member takes all of its log for committed when it starts",
        *("process", 20, _logged_is_committed),
        is_found=False,
    ),
    Mutation(
        "snapshots-fetched-without-entries",
        "a member does not fetch the entries that a snapshot needs",
        *("loss", 20, _nothing_missing),
    ),
)
