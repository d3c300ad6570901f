"""Searches for regular expressions in time that is bounded whatever the expression is.

Python's `re` goes back and tries again, which takes for ever with some expressions (`(a+)+$`) and
some names; who may write a policy could stop every node by it. An expression with more ways to
match than PATTERN_WAYS_MAX is therefore made a program for a machine that is never twice in the
same place of program and name, and that gives up after PATTERN_WORK_MAX instructions, as RabbitMQ
does after a number of steps of its own: then nothing was found.

Source: R. Cox, "Regular Expression Matching: the Virtual Machine Approach" (backtracking with
memory); the tree is that of Python's own parser.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, final

from headrace_broker.model.limits import (
    NAME_OCTETS_MAX,
    PATTERN_STEPS_MAX,
    PATTERN_WAYS_MAX,
    PATTERN_WORK_MAX,
    PATTERNS_CACHED_MAX,
)

_parser: Any = importlib.import_module("re._parser")

CHAR: Final = 0  # a letter: which ASCII ones, and a test of the others
SPLIT: Final = 1  # go on at either of two places
AT: Final = 2  # a condition on the place in the name
LOOK: Final = 3  # whether another program finds something from here, or up to here
MATCH: Final = 4

Test = Callable[[str], bool]

_CATEGORIES: Final[dict[str, Test]] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_WORD": lambda letter: letter.isalnum() or letter == "_",
}
_ASCII: Final = tuple(chr(code) for code in range(128))
_REPEATS: Final = ("MAX_REPEAT", "MIN_REPEAT")
_FLAGS: Final = re.IGNORECASE | re.UNICODE  # others change what a letter or an end is


class UnboundedError(ValueError):
    """The expression could take too long, and has something that a program cannot."""


def parse(pattern: str) -> Any:
    """Return the tree of an expression.

    Raises:
        re.error: it is not one.
    """
    return _parser.parse(pattern)


def ways(tree: Any) -> int:
    """Return in how many ways an expression could match a name, at most PATTERN_WAYS_MAX + 1."""
    parts = list(tree)
    anchored = bool(parts) and str(parts[0][0]) == "AT" and "BEGINNING" in str(parts[0][1])
    if parts and str(parts[-1][0]) in _REPEATS and parts[-1][1][0] <= 1:
        # However often the last part is found, nothing follows that could fail.
        parts[-1] = ("SUBPATTERN", (None, 0, 0, parts[-1][1][2]))
    return min(_ways(parts) * (1 if anchored else NAME_OCTETS_MAX), PATTERN_WAYS_MAX + 1)


def _ways(tree: Any) -> int:
    total = 1
    for code, value in tree:
        name = str(code)
        if name in (*_REPEATS, "POSSESSIVE_REPEAT"):
            low, high, body = value
            times = min(int(high), NAME_OCTETS_MAX)
            inner = _ways(body)
            if times > 1 and body.getwidth()[0] == 0:
                return PATTERN_WAYS_MAX + 1  # nothing can be found any number of times
            if inner > 1:
                inner = inner**times if times <= 8 else PATTERN_WAYS_MAX + 1
            total *= inner * (max(times - int(low), 0) + 1)
        elif name == "BRANCH":
            total *= sum(_ways(each) for each in value[1])
        elif name in ("SUBPATTERN", "ATOMIC_GROUP", "ASSERT", "ASSERT_NOT"):
            total *= _ways(value[-1] if isinstance(value, tuple) else value)
        elif name == "GROUPREF_EXISTS":
            total = PATTERN_WAYS_MAX + 1
        if total > PATTERN_WAYS_MAX:
            return PATTERN_WAYS_MAX + 1
    return total


@final
class Program:
    """An expression as instructions.

    Raises UnboundedError when made of what has back references, atomic groups, or flags other than
    IGNORECASE, or becomes longer than PATTERN_STEPS_MAX.
    """

    def __init__(self, tree: Any, flags: int) -> None:
        if flags & ~_FLAGS:
            raise UnboundedError("flags")
        self._fold = bool(flags & re.IGNORECASE)
        self._flags = flags
        self._steps: list[tuple[int, Any, Any]] = []
        self._emit(tree)
        self._add(MATCH)

    def _add(self, code: int, first: Any = None, second: Any = None) -> int:
        if len(self._steps) >= PATTERN_STEPS_MAX:
            raise UnboundedError(f"more than {PATTERN_STEPS_MAX} steps")
        self._steps.append((code, first, second))
        return len(self._steps) - 1

    # Making it

    def _emit(self, tree: Any) -> None:
        for code, value in tree:
            name = str(code)
            if name in _REPEATS:
                self._emit_repeat(*value)
            elif name == "BRANCH":
                self._emit_branch(value[1])
            elif name == "SUBPATTERN":
                _, added, removed, body = value
                if added or removed:
                    raise UnboundedError("flags of a group")
                self._emit(body)
            elif name in ("ASSERT", "ASSERT_NOT"):
                direction, body = value
                width = body.getwidth()[1] if direction < 0 else 0
                inner = Program(body, self._flags)
                self._add(LOOK, (inner, name == "ASSERT"), int(width))
            elif name == "AT":
                self._add(AT, str(value))
            else:
                content = tuple(value) if isinstance(value, list) else value
                self._add(CHAR, *_letter_test(name, content, self._fold))

    def _emit_repeat(self, low: Any, high: Any, body: Any) -> None:
        for _ in range(int(low)):
            before = len(self._steps)
            self._emit(body)
            if len(self._steps) == before:
                return  # nothing, so many times
        if high is _parser.MAXREPEAT:
            start = self._add(SPLIT)
            self._emit(body)
            # Both ways lead back: a step that only goes on is a split with equal ways.
            self._add(SPLIT, start, start)
            self._steps[start] = (SPLIT, start + 1, len(self._steps))
            return
        starts = []
        for _ in range(int(high) - int(low)):
            starts.append(self._add(SPLIT))
            self._emit(body)
        for start in starts:
            self._steps[start] = (SPLIT, start + 1, len(self._steps))

    def _emit_branch(self, branches: Sequence[Any]) -> None:
        ends = []
        for branch in branches[:-1]:
            start = self._add(SPLIT)
            self._emit(branch)
            ends.append(self._add(SPLIT))
            self._steps[start] = (SPLIT, start + 1, len(self._steps))
        self._emit(branches[-1])
        for end in ends:
            self._steps[end] = (SPLIT, len(self._steps), len(self._steps))

    # Running it

    def search(self, text: str) -> bool:
        """Return whether the expression is found anywhere in a text, as far as the work allows."""
        run = Run(text)
        seen: set[tuple[int, int]] = set()
        return any(self.found(run, start, -1, seen) for start in range(len(text) + 1))

    def found(self, run: Run, start: int, goal: int, seen: set[tuple[int, int]]) -> bool:
        """Return whether it matches from `start`, up to `goal` if that is not negative.

        Args:
            run: the text, and the work that is left.
            start: where to begin.
            goal: where to end, -1 for anywhere.
            seen: places of program and text from which it did not match.
        """
        text = run.text
        waiting = [(0, start)]
        while waiting and run.left > 0:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            run.left -= 1
            step, at = place
            code, first, second = self._steps[step]
            if code == MATCH:
                if goal < 0 or at == goal:
                    return True
            elif code == SPLIT:
                waiting.append((second, at))
                waiting.append((first, at))
            elif code == CHAR:
                if at < len(text):
                    letter = text[at]
                    if letter in first if letter < "\x80" else second(letter):
                        waiting.append((step + 1, at + 1))
            elif _looks(first, second, run, at) if code == LOOK else _stands(first, text, at):
                waiting.append((step + 1, at))
        return False


@final
class Run:
    """A search that is under way.

    Attributes:
        text: what is searched.
        left: instructions that may still be done; past them nothing is found.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.left = PATTERN_WORK_MAX


def _looks(inner: tuple[Program, bool], width: int, run: Run, at: int) -> bool:
    program, wanted = inner
    goal = at if width else -1
    found = at >= width and program.found(run, at - width, goal, set())
    return found == wanted and run.left > 0


def _stands(condition: str, text: str, at: int) -> bool:
    if condition in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
        return at == 0
    if condition == "AT_END":
        return at == len(text) or (at == len(text) - 1 and text[at] == "\n")
    if condition == "AT_END_STRING":
        return at == len(text)
    word = _CATEGORIES["CATEGORY_WORD"]
    before = at > 0 and word(text[at - 1])
    after = at < len(text) and word(text[at])
    return (before != after) == (condition == "AT_BOUNDARY")


@lru_cache(maxsize=PATTERNS_CACHED_MAX)
def _letter_test(name: str, value: Any, fold: bool) -> tuple[frozenset[str], Test]:
    """Return the ASCII letters that fit a part of the tree, and a test for all letters.

    Args:
        name: of the part, which is for one letter.
        value: its content, a tuple where it is a list.
        fold: small and capital letters are the same.
    """
    if name == "ANY":
        items: list[tuple[str, Any]] = [("LITERAL", ord("\n"))]
        negated = True
    elif name == "FAILURE":
        items, negated = [], False
    elif name in ("LITERAL", "NOT_LITERAL"):
        items = [("LITERAL", value)]
        negated = name == "NOT_LITERAL"
    elif name == "IN":
        items = [(str(code), item) for code, item in value]
        negated = items[0][0] == "NEGATE"
    else:
        raise UnboundedError(name)
    tests = [_item_test(code, item) for code, item in items if code != "NEGATE"]

    def test(letter: str) -> bool:
        shapes = (letter, letter.lower(), letter.upper()) if fold else (letter,)
        return any(each(shape) for each in tests for shape in shapes) != negated

    return frozenset(letter for letter in _ASCII if test(letter)), test


def _item_test(name: str, value: Any) -> Test:
    if name == "LITERAL":
        return chr(value).__eq__
    if name == "RANGE":
        low, high = chr(value[0]), chr(value[1])
        return lambda letter: len(letter) == 1 and low <= letter <= high
    category = str(value)
    test = _CATEGORIES[category.replace("_NOT_", "_")]
    if "_NOT_" in category:
        return lambda letter: not test(letter)
    return test
