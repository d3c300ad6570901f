"""Searches for regular expressions in time that is bounded whatever the expression and the name.

Python's `re` goes back and tries again, which takes for ever with some expressions (`(a+)+$`) and
some names; who may write a policy could stop every node by it. An expression for which `re` could
need more than PATTERN_RE_STEPS_MAX (`pattern_cost`) is therefore made a program of parts. A part
is given the places of the name at which it may begin, all at once, and tells those at which it
then may end; nothing is tried twice. What a program does for the longest name is known when it is
made, and one of more than PATTERN_WORK_MAX is refused.

Source: R. Cameron and others, "Bitwise Data Parallelism in Regular Expression Matching" (sets of
places in parallel, MatchStar); the tree is that of Python's own parser.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any, Final, Protocol, final

from headrace_broker.catalog.pattern_cost import REPEATS
from headrace_broker.catalog.pattern_text import LETTERS, Letters, Text, letters
from headrace_broker.model.limits import NAME_BYTES_MAX, PATTERN_PARTS_MAX, PATTERN_WORK_MAX

_parser: Any = importlib.import_module("re._parser")

_FLAGS: Final = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE | re.UNICODE
_COPY_WORK: Final = 2  # operations of a repeat of several parts beside them
_LOOP_WORK: Final = 4  # operations of a round of a loop beside its body


class UnboundedError(ValueError):
    """The expression could take too long, and has something that a program cannot."""


def parse(pattern: str) -> Any:
    """Return the tree of an expression; re.error where it is none."""
    return _parser.parse(pattern)


class Part(Protocol):
    """A part of a program."""

    def ends(self, text: Text, places: int) -> int:
        """Return at which places of a text it may end if it begins at one of these."""


@final
class _Letter:
    def __init__(self, wanted: Letters) -> None:
        self.wanted = wanted

    def ends(self, text: Text, places: int) -> int:
        return (places & text.letters(self.wanted)) << 1


@final
class _Repeat:
    """A letter at least `low` and at most `high` times, None for any number."""

    def __init__(self, wanted: Letters, low: int, high: int | None) -> None:
        self._wanted = wanted
        self._low = low
        self._high = high

    def ends(self, text: Text, places: int) -> int:
        found = text.letters(self._wanted)
        if self._low:
            places = (places & _in_row(found, self._low)) << self._low
        if self._high is None:
            # The sum carries each place through all letters behind it that fit.
            return (((places & found) + found) ^ found) | places
        return _up_to(places, found, self._high - self._low)


def _in_row(found: int, count: int) -> int:
    """Return where as many letters in a row are found."""
    done = 1
    while done < count and found:
        step = min(done, count - done)
        found &= found >> step
        done += step
    return found


def _up_to(places: int, found: int, count: int) -> int:
    """Return these places, and those behind up to as many found letters from there."""
    row, size, done = found, 1, 0
    while done + size <= count and row:
        places |= (places & row) << size
        done += size
        row &= row >> size
        size *= 2
    if done < count:
        rest = count - done
        places |= (places & _in_row(found, rest)) << rest
    return places


@final
class _Sequence:
    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def ends(self, text: Text, places: int) -> int:
        for part in self._parts:
            if not places:
                break
            places = part.ends(text, places)
        return places


@final
class _Choice:
    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def ends(self, text: Text, places: int) -> int:
        found = 0
        for part in self._parts:
            found |= part.ends(text, places)
        return found


@final
class _Copies:
    """Copies of a part in a row, all required or some optional: each begins where one ended."""

    def __init__(self, parts: Sequence[Part], optional: bool) -> None:
        self._parts = parts  # the same one many times, or such as mean the same
        self._optional = optional  # the last ones, or all, may be missing

    def ends(self, text: Text, places: int) -> int:
        found = places
        for part in self._parts:
            ends = part.ends(text, places)
            if self._optional:
                ends &= ~found  # what fewer led to has more of them left
                found |= ends
            if not ends or ends == places:
                return found if self._optional else ends
            places = ends
        return found if self._optional else places


@final
class _Loop:
    """A part any number of times.

    It goes on from each place once for a text. When it is entered again, in a round of a loop
    around it, what it led to from there has been passed on before.
    """

    def __init__(self, number: int, body: Part) -> None:
        self._number = number
        self._body = body

    def ends(self, text: Text, places: int) -> int:
        seen = text.states.get(self._number, 0)
        found = places
        new = places & ~seen
        while new:
            seen |= new
            new = self._body.ends(text, new) & ~seen
            found |= new
        text.states[self._number] = seen
        return found


@final
class _Condition:
    def __init__(self, number: int, name: str, backward: bool) -> None:
        self._number = number
        self._name = name
        self._backward = backward

    def ends(self, text: Text, places: int) -> int:
        held = text.states.get(self._number)
        if held is None:
            held = text.mirrored.held(self._name) if self._backward else text.held(self._name)
            held = text.flipped(held) if self._backward else held
            text.states[self._number] = held
        return places & held


@final
class _Look:
    """An expression that is, or is not, found before a place or behind it."""

    def __init__(self, number: int, body: Part, turned: bool, wanted: bool) -> None:
        self._number = number
        self._body = body
        self._turned = turned
        self._wanted = wanted

    def ends(self, text: Text, places: int) -> int:
        found = text.states.get(self._number)
        if found is None:
            searched = text.mirrored if self._turned else text
            found = self._body.ends(searched, text.places)
            found = text.flipped(found) if self._turned else found
            text.states[self._number] = found
        return places & (found if self._wanted else ~found)


def _is_plain_group(item: Any) -> bool:
    code, value = item
    return str(code) == "SUBPATTERN" and not value[1] and not value[2]


@final
class Program:
    """An expression as parts.

    Raises UnboundedError when made of what has back references, atomic groups, conditions on
    groups, or flags that change what a letter is, or takes more than PATTERN_WORK_MAX operations
    or PATTERN_PARTS_MAX parts.
    """

    def __init__(self, tree: Any, flags: int) -> None:
        self.work = 0  # operations on sets that a search in the longest name takes at most
        self._count = 0  # of parts
        self._numbers = 0
        self._loops = 0
        self._rounds = 1  # how often what is being made may be entered
        self._made_letters: dict[tuple[int, str, bool, bool], Letters] = {}
        self._known: set[tuple[Letters, bool]] = set()
        self._whole = _Sequence(self._parts(tree, flags, backward=False))

    def search(self, text: str) -> bool:
        """Return whether the expression is found anywhere in a text of at most NAME_BYTES_MAX."""
        searched = Text(text)
        return self._whole.ends(searched, searched.places) != 0

    def _spend(self, work: int) -> None:
        self.work += work * self._rounds
        if self.work > PATTERN_WORK_MAX:
            raise UnboundedError(f"more than {PATTERN_WORK_MAX} steps")

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _parts(self, tree: Any, flags: int, backward: bool) -> list[Part]:
        if flags & ~_FLAGS:
            raise UnboundedError("flags other than i, m, s and x")
        parts: list[Part] = []
        for code, value in reversed(tree) if backward else tree:
            parts += self._made(str(code), value, flags, backward)
        self._count += len(parts)
        if self._count > PATTERN_PARTS_MAX:
            raise UnboundedError(f"more than {PATTERN_PARTS_MAX} parts")
        return parts

    def _made(self, name: str, value: Any, flags: int, backward: bool) -> list[Part]:
        wanted = self._letters(name, value, flags, backward)
        if wanted is not None:
            self._spend(1)
            return [_Letter(wanted)]
        if name == "SUBPATTERN":
            _, added, removed, body = value
            return self._parts(body, (flags | added) & ~removed, backward)
        if name in REPEATS:
            least, most, body = value
            return self._repeat((int(least), int(most)), body, flags, backward)
        self._spend(1)
        if name == "BRANCH":
            branches = [_Sequence(self._parts(each, flags, backward)) for each in value[1]]
            return [_Choice(branches)]
        if name == "AT":
            condition = str(value)
            if flags & re.MULTILINE and condition in ("AT_BEGINNING", "AT_END"):
                condition += "_LINE"
            return [_Condition(self._number(), condition, backward)]
        if name in ("ASSERT", "ASSERT_NOT"):
            direction, body = value
            return [self._look(direction > 0, body, name == "ASSERT", flags, backward)]
        raise UnboundedError(name)

    def _letters(self, name: str, value: Any, flags: int, backward: bool) -> Letters | None:
        if name not in LETTERS:
            return None
        fold, every = bool(flags & re.IGNORECASE), bool(flags & re.DOTALL)
        key = (id(value), name, fold, every)
        wanted = self._made_letters.get(key)
        if wanted is None:
            wanted = letters(name, value, fold, every)
            if name == "IN":
                self._made_letters[key] = wanted  # its content stays where it is, in the tree
        if (wanted, backward) not in self._known:
            self._known.add((wanted, backward))
            rounds, self._rounds = self._rounds, 1
            self._spend(wanted.work)
            self._rounds = rounds
        return wanted

    def _look(self, ahead: bool, body: Any, wanted: bool, flags: int, backward: bool) -> Part:
        rounds, self._rounds = self._rounds, 1  # it is looked for once, from everywhere
        part = _Sequence(self._parts(body, flags, backward=ahead))
        self._rounds = rounds
        return _Look(self._number(), part, ahead != backward, wanted)

    def _repeat(self, bounds: tuple[int, int], body: Any, flags: int, backward: bool) -> list[Part]:
        width = int(body.getwidth()[0])
        # A name has no more of them; and nothing, more often than it has places, is nothing new.
        times = NAME_BYTES_MAX // width if width else NAME_BYTES_MAX + 1
        low, high = bounds[0], None if bounds[1] > times else bounds[1]
        if low > times and width:
            self._spend(1)
            return [_Choice([])]
        while len(body) == 1 and _is_plain_group(body[0]):
            body = body[0][1][-1]
        if len(body) == 1:
            wanted = self._letters(str(body[0][0]), body[0][1], flags, backward)
            if wanted is not None:
                most_more = 0 if high is None else high - low
                self._spend(1 + 2 * (low.bit_length() + most_more.bit_length()))
                return [_Repeat(wanted, low, high)]
        parts = self._copies(min(low, times), body, flags, backward, optional=False)
        if high is not None:
            return parts + self._copies(high - low, body, flags, backward, optional=True)
        rounds = self._rounds
        self._rounds = min(NAME_BYTES_MAX + 2, rounds * (times + 2))
        self._loops += 1
        number = self._number()
        looped = self._parts(body, flags, backward)
        if looped:
            self._spend(_LOOP_WORK)
            parts.append(_Loop(number, _Sequence(looped)))
        self._rounds = rounds
        return parts

    def _copies(
        self, count: int, body: Any, flags: int, backward: bool, *, optional: bool
    ) -> list[Part]:
        """Return a body so many times; of one with loops, which remember places, make each anew."""
        copies: list[Part] = []
        while len(copies) < count:
            work, loops = self.work, self._loops
            made = self._parts(body, flags, backward)
            if not made:
                return []  # nothing, so many times
            copies.append(_Sequence(made) if len(made) > 1 else made[0])
            self._spend(_COPY_WORK)
            if self._loops == loops:
                rest = count - len(copies)
                self.work += (self.work - work) * rest
                self._spend(0)
                copies += copies[-1:] * rest
        return [_Copies(copies, optional)] if copies else []
