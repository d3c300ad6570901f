"""Topic patterns that are matched side by side, one bit for each place in a pattern.

Source: the Shift-And algorithm (Baeza-Yates and Gonnet, "A new approach to text searching", 1992),
over words instead of dead letters, with repeating states for `#`.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.routing.matcher import Destination, Subject
from headrace_broker.core.routing.topic_pattern import ONE_WORD, TopicPattern
from headrace_broker.model.limits import TOPIC_BLOCK_PLACES

# A pattern has at most one place more than a routing key has words, and that has 255 bytes.
PATTERN_PLACES_MAX: Final = 257

BLOCK_STEPS: Final = 10  # of `Subject.work` for a word: four operations on TOPIC_BLOCK_PLACES bits


@final
class TopicRow:
    """A pattern in its block, and how many bindings with it lead where."""

    def __init__(self, pattern: TopicPattern) -> None:
        self.pattern = pattern  # in its normal form
        self.first: i64 = 0  # its first place: first + i means that i words are taken
        self.counts: dict[Destination, int] = {}  # bindings per destination

    @property
    def places(self) -> int:
        """Number of its places."""
        return len(self.pattern.words) + 1


@final
class TopicBlock:
    """Up to TOPIC_BLOCK_PLACES places of patterns.

    A word of a routing key costs four operations on numbers of so many bits, however many of the
    patterns are still possible. What is removed leaves a gap, until half of the block is gaps or
    their room is needed.
    """

    def __init__(self) -> None:
        self._used: i64 = 0
        self._gaps: i64 = 0
        self._rows: dict[int, TopicRow] = {}  # by their last place
        self._starts = 0
        self._ends = 0
        self._repeats = 0
        self._stars = 0
        self._by_word: dict[str, int] = {}

    @property
    def has_room(self) -> bool:
        """Return True if any pattern fits."""
        return self._used - self._gaps + PATTERN_PLACES_MAX <= TOPIC_BLOCK_PLACES

    @property
    def is_empty(self) -> bool:
        """True while there is no pattern."""
        return not self._rows

    def add(self, row: TopicRow) -> None:
        """Add a pattern; there is room."""
        if self._used + row.places > TOPIC_BLOCK_PLACES:
            self._close_gaps()
        words = row.pattern.words
        first = self._used
        last = int(first + len(words))
        row.first = first
        self._used = first + row.places
        self._rows[last] = row
        self._starts |= 1 << int(first)
        self._ends |= 1 << last
        bit = 1 << int(first)
        for position, word in enumerate(words):
            if row.pattern.open_after[position]:
                self._repeats |= bit
            if word == ONE_WORD:
                self._stars |= bit
            else:
                self._by_word[word] = self._by_word.get(word, 0) | bit
            bit <<= 1
        if row.pattern.open_after[-1]:
            self._repeats |= bit

    def remove(self, row: TopicRow) -> None:
        """Remove a pattern."""
        places = row.places
        del self._rows[int(row.first) + places - 1]
        self._gaps += places
        if 2 * self._gaps >= self._used:
            self._close_gaps()
            return
        keep = ~(((1 << places) - 1) << int(row.first))
        self._starts &= keep
        self._ends &= keep
        self._repeats &= keep
        self._stars &= keep
        for word in dict.fromkeys(row.pattern.words):
            if word != ONE_WORD:
                left = self._by_word[word] & keep
                if left:
                    self._by_word[word] = left
                else:
                    del self._by_word[word]

    def _close_gaps(self) -> None:
        rows = list(self._rows.values())
        self._used = 0
        self._gaps = 0
        self._rows = {}
        self._starts = self._ends = self._repeats = self._stars = 0
        self._by_word = {}
        for row in rows:
            self.add(row)

    def match(self, words: list[str], subject: Subject, found: dict[Destination, None]) -> None:
        """Find the destinations of the patterns that take all words of a routing key."""
        live = self._starts
        by_word = self._by_word
        stars = self._stars
        repeats = self._repeats
        subject.work += BLOCK_STEPS * (len(words) + 1)
        for word in words:
            live = ((live & (stars | by_word.get(word, 0))) << 1) | (live & repeats)
            if not live:
                return
        live &= self._ends
        while live:
            lowest = live & -live
            live ^= lowest
            counts = self._rows[lowest.bit_length() - 1].counts
            subject.work += BLOCK_STEPS + len(counts)
            for destination in counts:
                found[destination] = None
