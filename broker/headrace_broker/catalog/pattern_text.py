"""A name as a pattern program sees it: sets of its letters and of the places between them.

A set of places is an integer: bit `n` is the place before letter `n`, the highest bit the end. A
set of letters has the bits of the places before them. Whatever is asked about a set takes a few
operations on such integers, not one for each letter.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, final

from headrace_broker.model.limits import PATTERNS_CACHED_MAX

Test = Callable[[str], bool]

_CATEGORIES: Final[dict[str, Test]] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_WORD": lambda letter: letter.isalnum() or letter == "_",
}


LETTERS: Final = ("LITERAL", "NOT_LITERAL", "ANY", "IN", "FAILURE")  # parts for one letter


class Letters(NamedTuple):
    """A part of an expression that stands for one letter.

    Attributes:
        single: letters that fit.
        ranges: first and last letters of ranges that fit.
        categories: names of the parser for kinds of letters that fit.
        negated: those fit that otherwise do not.
        fold: small and capital letters are the same.
    """

    single: frozenset[str]
    ranges: frozenset[tuple[str, str]] = frozenset()
    categories: frozenset[str] = frozenset()
    negated: bool = False
    fold: bool = False

    @property
    def work(self) -> int:
        """Operations that finding them in a text takes."""
        items = 1 + len(self.single) + 2 * len(self.ranges) + len(self.categories)
        return items * 3 if self.fold else items


def letters(name: str, value: Any, fold: bool, every: bool) -> Letters:
    """Return the letters that a part of the tree stands for.

    Args:
        name: of the part, one of LETTERS.
        value: its content.
        fold: small and capital letters are the same.
        every: a dot is for the end of a line too.
    """
    if name == "ANY":
        return Letters(frozenset() if every else frozenset("\n"), negated=True)
    if name == "FAILURE":
        return Letters(frozenset())
    if name in ("LITERAL", "NOT_LITERAL"):
        single = _shapes(chr(value)) if fold else frozenset(chr(value))
        return Letters(single, negated=name == "NOT_LITERAL", fold=fold)
    items = [(str(kind), item) for kind, item in value]
    single = frozenset(chr(item) for kind, item in items if kind == "LITERAL")
    return Letters(
        single.union(*map(_shapes, single)) if fold else single,
        frozenset((chr(item[0]), chr(item[1])) for kind, item in items if kind == "RANGE"),
        frozenset(str(item) for kind, item in items if kind == "CATEGORY"),
        items[0][0] == "NEGATE",
        fold,
    )


@final
class Text:
    """A text that is searched.

    Attributes:
        size: letters.
        places: the set of all places.
        states: what parts of a program remember of this text, by their number.
    """

    def __init__(self, text: str, mirrored: Text | None = None) -> None:
        self.size = len(text)
        self.places = (1 << (self.size + 1)) - 1
        self.states: dict[int, int] = {}
        self._text = text
        self._mirrored = mirrored
        self._shapes = [_Shape(text)]
        self._found: dict[Letters, int] = {}

    @property
    def mirrored(self) -> Text:
        """The text from its end to its beginning."""
        if self._mirrored is None:
            self._mirrored = Text(self._text[::-1], self)
        return self._mirrored

    def flipped(self, places: int) -> int:
        """Return places as those of the mirrored text."""
        return int(f"{places:0{self.size + 1}b}"[::-1], 2)

    def letters(self, wanted: Letters) -> int:
        """Return which letters fit."""
        found = self._found.get(wanted)
        if found is None:
            found = self._find(wanted)
            self._found[wanted] = found
        return found

    def _find(self, wanted: Letters) -> int:
        if wanted.fold and len(self._shapes) == 1:
            self._shapes += [_Shape(map(str.lower, self._text)), _Shape(map(str.upper, self._text))]
        found = 0
        for shape in self._shapes if wanted.fold else self._shapes[:1]:
            found |= shape.letters(wanted)
        return found ^ (self.places >> 1) if wanted.negated else found

    def _word_ends(self) -> int:
        """Return the places between a letter of a word and anything else."""
        words = self.letters(_WORD)
        return words ^ (words << 1)

    def held(self, condition: str) -> int:
        """Return the places at which a condition of an expression holds.

        Args:
            condition: the parser's name of it, or AT_BEGINNING_LINE and AT_END_LINE.
        """
        last = 1 << self.size
        lines = self.letters(_LINE)
        if condition in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
            return 1
        if condition == "AT_BEGINNING_LINE":
            return 1 | (lines << 1)
        if condition == "AT_END":
            return last | (lines & (last >> 1))
        if condition == "AT_END_LINE":
            return last | lines
        if condition == "AT_END_STRING":
            return last
        return self._word_ends() ^ (0 if condition == "AT_BOUNDARY" else self.places)


_WORD: Final = Letters(frozenset(), categories=frozenset(["CATEGORY_WORD"]))
_LINE: Final = Letters(frozenset("\n"))


@final
class _Shape:
    """Positions of letters in a text, as it is and in small and capital letters."""

    def __init__(self, text: Any) -> None:
        where: dict[str, int] = {}
        for at, letter in enumerate(text):
            where[letter] = where.get(letter, 0) | 1 << at
        self._where = {letter: found for letter, found in where.items() if len(letter) == 1}
        self._sorted: list[str] = []
        self._before: list[int] = []  # where any of the letters is that stand before one in order
        self._categories: dict[str, int] = {}

    def letters(self, wanted: Letters) -> int:
        found = 0
        where = self._where
        for letter in wanted.single & where.keys():
            found |= where[letter]
        for low, high in wanted.ranges:
            found |= self._range(low, high)
        for category in wanted.categories:
            found |= self._category(category)
        return found

    def _range(self, low: str, high: str) -> int:
        if not self._sorted:
            self._sorted = sorted(self._where)
            self._before = [0]
            for letter in self._sorted:
                self._before.append(self._before[-1] | self._where[letter])
        start, end = bisect_left(self._sorted, low), bisect_right(self._sorted, high)
        return self._before[end] & ~self._before[start] if start < end else 0

    def _category(self, category: str) -> int:
        found = self._categories.get(category)
        if found is None:
            test = _CATEGORIES[category.replace("_NOT_", "_")]
            wanted = "_NOT_" not in category
            found = 0
            for letter, places in self._where.items():
                if test(letter) == wanted:
                    found |= places
            self._categories[category] = found
        return found


@lru_cache(maxsize=PATTERNS_CACHED_MAX)
def _shapes(letter: str) -> frozenset[str]:
    return frozenset(each for each in (letter, letter.lower(), letter.upper()) if len(each) == 1)
