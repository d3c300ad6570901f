"""What of a member's log and hard state is on its disk, while Readies are being written."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64


@final
class Writing:
    """One Ready handed out and not yet reported durable.

    Attributes:
        number: its number.
        last_index: the log is durable up to here once it is; lowered by later truncations.
        term: durable term then.
        vote: durable vote then.
    """

    def __init__(self, number: i64, last_index: i64, term: i64, vote: i64) -> None:
        self.number = number
        self.last_index = last_index
        self.term = term
        self.vote = vote


@final
class Durability:
    """Follows the writes of numbered Readies, which finish in order.

    A write that finishes after its entries were replaced proves nothing about the entries that
    replaced them, whatever their indexes and terms: each truncation therefore lowers what the
    writes under way will prove.

    Attributes:
        last_index: the current log is durable up to here.
        term: durable term.
        vote: durable vote.
        writing: Readies under way, oldest first.
    """

    def __init__(self, last_index: i64, term: i64, vote: i64) -> None:
        self.last_index = last_index
        self.term = term
        self.vote = vote
        self.writing: deque[Writing] = deque()

    def began(self, number: i64, last_index: i64, term: i64, vote: i64) -> None:
        """Note that Ready `number` is being written: the whole log and hard state then."""
        self.writing.append(Writing(number, last_index, term, vote))

    def finished(self, number: i64) -> bool:
        """Note that everything up to Ready `number` is durable; return whether that is news."""
        news = False
        while self.writing and self.writing[0].number <= number:
            done = self.writing.popleft()
            self.last_index = done.last_index
            self.term = done.term
            self.vote = done.vote
            news = True
        return news

    def truncated(self, first: i64) -> None:
        """Note that entries from index `first` on were replaced."""
        self.last_index = min(self.last_index, first - 1)
        for writing in self.writing:
            writing.last_index = min(writing.last_index, first - 1)
