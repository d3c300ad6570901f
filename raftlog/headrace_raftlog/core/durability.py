"""Durable part of a member's log and hard state, while Readies are being written."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(acyclic=True)
@final
class Writing:
    """One Ready handed out and not yet reported durable."""

    def __init__(self, number: i64, last_index: i64, term: i64, vote: i64) -> None:
        self.number = number
        # the log is durable up to here once it is; lowered by later truncations
        self.last_index = last_index
        self.term = term  # durable term then
        self.vote = vote  # durable vote then

    def same(self, other: Writing) -> bool:
        """Return whether it proves the same."""
        return (
            self.last_index == other.last_index
            and self.term == other.term
            and self.vote == other.vote
        )


NO_WRITES: Final[list[Writing]] = []  # one for all members; never changed


@final
class Durability:
    """Follows the writes of numbered Readies, which finish in order.

    A write that finishes after its entries were replaced proves nothing about the entries that
    replaced them, whatever their indexes and terms: each truncation therefore lowers what the
    writes under way will prove.
    """

    def __init__(self, last_index: i64, term: i64, vote: i64) -> None:
        self.last_index = last_index  # the current log is durable up to here
        self.term = term  # durable term
        self.vote = vote  # durable vote
        self.writing = NO_WRITES  # Readies under way, oldest first

    def began(self, number: i64, last_index: i64, term: i64, vote: i64) -> None:
        """Note that Ready `number` is being written: the whole log and hard state then.

        Of those in a row that write nothing the newest is kept: a disk that hangs must not make
        the list grow with every message that waits for it.
        """
        added = Writing(number, last_index, term, vote)
        writing = self.writing or []
        if len(writing) >= 2 and writing[-2].same(added) and writing[-1].same(added):
            writing.pop()
        writing.append(added)
        self.writing = writing

    def finished(self, number: i64) -> bool:
        """Note that everything up to Ready `number` is durable; return whether that is news."""
        writing = self.writing
        count: i64 = 0
        while count < len(writing) and writing[count].number <= number:
            count += 1
        if count == 0:
            return False
        done = writing[count - 1]
        self.writing = writing[count:] or NO_WRITES
        self.last_index = done.last_index
        self.term = done.term
        self.vote = done.vote
        return True

    def truncated(self, first: i64) -> None:
        """Note that entries from index `first` on were replaced."""
        self.last_index = min(self.last_index, first - 1)
        for writing in self.writing:
            writing.last_index = min(writing.last_index, first - 1)

    def restored(self, index: i64) -> None:
        """Note that a snapshot took the place of everything up to `index`.

        It is not on disk yet, but it is written before anything that follows, and the
        acknowledgement waits for it. So nothing needs to tell it from what is durable.
        """
        self.last_index = max(self.last_index, index)
        for writing in self.writing:
            writing.last_index = max(writing.last_index, index)
