"""One position of a replicated log."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

ENTRY_NORMAL: Final = 0  # a command of the application
ENTRY_NOOP: Final = 1  # what a new leader appends to commit its predecessors' entries
ENTRY_CONFIG: Final = 2  # a change of membership

# Data of a no-op at which members take the digest of their states. An older release treats it as
# any other no-op.
CHECKPOINT: Final = b"checkpoint"


@mypyc_attr(acyclic=True)
@final
class Entry:
    """An entry of a group's log: one opaque blob, encoded once and never changed.

    Source: Ongaro, Consensus: Bridging Theory and Practice, section 3.5.
    """

    def __init__(self, index: i64, term: i64, kind: i64, data: bytes) -> None:
        self.index = index  # log position, from 1
        self.term = term  # term of the leader that appended it, from 1
        self.kind = kind  # ENTRY_NORMAL, ENTRY_NOOP or ENTRY_CONFIG
        self.data = data  # the blob; of a no-op empty, or CHECKPOINT

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Entry)
            and self.index == other.index
            and self.term == other.term
            and self.kind == other.kind
            and self.data == other.data
        )

    def __hash__(self) -> int:
        return hash((self.index, self.term, self.kind, self.data))

    def __repr__(self) -> str:
        return f"Entry({self.index}, t{self.term}, k{self.kind}, {len(self.data)}B)"


@mypyc_attr(acyclic=True)
@final
class HardState:
    """Term, vote and commit index, which a group remembers across a restart."""

    def __init__(self, term: i64, vote: i64, commit: i64) -> None:
        self.term = term  # newest term seen, from 0
        self.vote = vote  # member id voted for in that term, 0 for none
        # highest index known to be committed; a hint, durable only with the next sync
        self.commit = commit

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, HardState)
            and self.term == other.term
            and self.vote == other.vote
            and self.commit == other.commit
        )

    def __hash__(self) -> int:
        return hash((self.term, self.vote, self.commit))

    def __repr__(self) -> str:
        return f"HardState(t{self.term}, vote {self.vote}, commit {self.commit})"
