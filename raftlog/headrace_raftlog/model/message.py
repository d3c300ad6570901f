"""Messages between the members of a group."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from headrace_raftlog.model.entry import Entry

PRE_VOTE: Final = 1
PRE_VOTE_REPLY: Final = 2
VOTE: Final = 3
VOTE_REPLY: Final = 4
APPEND: Final = 5
APPEND_REPLY: Final = 6
HEARTBEAT: Final = 7
HEARTBEAT_REPLY: Final = 8
TIMEOUT_NOW: Final = 9  # leadership transfer: campaign at once
SNAPSHOT: Final = 10  # the leader has no longer what the receiver lacks: fetch its snapshot
READ_INDEX: Final = 11  # a follower asks its leader how far it must have applied to read
READ_INDEX_REPLY: Final = 12
JOIN: Final = 13  # for the host of the leader: admit the sender in place of its node's old member

QUESTIONS: Final = (PRE_VOTE, PRE_VOTE_REPLY, READ_INDEX, JOIN)  # promise nothing to who gets them

FORCED: Final = 1  # context of a VOTE that the leader asked for: stickiness does not apply

MESSAGE_NAMES: Final = {
    PRE_VOTE: "pre_vote",
    PRE_VOTE_REPLY: "pre_vote_reply",
    VOTE: "vote",
    VOTE_REPLY: "vote_reply",
    APPEND: "append",
    APPEND_REPLY: "append_reply",
    HEARTBEAT: "heartbeat",
    HEARTBEAT_REPLY: "heartbeat_reply",
    TIMEOUT_NOW: "timeout_now",
    SNAPSHOT: "snapshot",
    READ_INDEX: "read_index",
    READ_INDEX_REPLY: "read_index_reply",
    JOIN: "join",
}


@mypyc_attr(acyclic=True)
@final
class Message:
    """One Raft message between two members of one group incarnation."""

    def __init__(
        self,
        kind: i64,
        group: i64,
        source: i64,
        target: i64,
        term: i64,
        index: i64 = 0,
        log_term: i64 = 0,
        commit: i64 = 0,
        entries: list[Entry] | None = None,
        reject: bool = False,
        hint_index: i64 = 0,
        hint_term: i64 = 0,
        quiesce: bool = False,
        context: i64 = 0,
    ) -> None:
        self.kind = kind  # one of the constants of this module
        # incarnation id of the group, never used again after the group is removed
        self.group = group
        self.source = source  # member id of the sender
        self.target = target  # member id of the receiver; JOIN: its node id
        self.term = term  # the sender's term; for PRE_VOTE the term it would campaign in
        # APPEND: index before the first entry; APPEND_REPLY: last matching index, or when rejected
        # the index that did not match; votes: the candidate's last index; SNAPSHOT: the snapshot's
        # index; READ_INDEX_REPLY: what must be applied before the read; JOIN: the revision of the
        # group's nodes that the sender knows, and one more; 0 from earlier releases
        self.index = index
        # APPEND and SNAPSHOT: term at `index`; votes: the candidate's last term
        self.log_term = log_term
        # APPEND and HEARTBEAT: the leader's commit index (for HEARTBEAT never beyond what the
        # receiver is known to hold)
        self.commit = commit
        self.entries: list[Entry] = entries if entries is not None else []  # APPEND only
        self.reject = reject  # replies only
        # rejected APPEND_REPLY: highest index at which the logs may agree
        self.hint_index = hint_index
        self.hint_term = hint_term  # rejected APPEND_REPLY: the receiver's term at `hint_index`
        # HEARTBEAT: the leader is about to fall silent; the receiver may stop its timer
        self.quiesce = quiesce
        # request id echoed by the reply; 0 for none (rounds of heartbeats that confirm reads, reads
        # of followers, forced votes by transfer)
        self.context = context

    def __repr__(self) -> str:
        parts = [
            f"{MESSAGE_NAMES.get(self.kind, str(self.kind))} {self.source}->{self.target}",
            f"t{self.term} i{self.index}/{self.log_term} c{self.commit}",
        ]
        if self.entries:
            parts.append(f"[{self.entries[0].index}..{self.entries[-1].index}]")
        if self.reject:
            parts.append(f"reject hint {self.hint_index}/{self.hint_term}")
        if self.quiesce:
            parts.append("quiesce")
        return " ".join(parts)
