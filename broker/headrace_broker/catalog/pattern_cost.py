"""Steps that `re` may take for an expression, in the worst case.

Python's `re` goes back and tries again. All that it does is a tree of choices: a part is entered
once for each way in which the parts before it can match, and each entrance costs what the part
takes. `re_steps` multiplies that out for the longest name, before anything is run.
"""

from __future__ import annotations

import re
from typing import Any, Final

from headrace_broker.model.limits import NAME_BYTES_MAX, PATTERN_RE_STEPS_MAX

REPEATS: Final = ("MAX_REPEAT", "MIN_REPEAT")
TOO_MANY: Final = PATTERN_RE_STEPS_MAX + 1

_LETTERS: Final = ("LITERAL", "NOT_LITERAL", "ANY", "AT", "FAILURE")
_POWERS_MAX: Final = 8  # repeats of a part with several ways that are multiplied out
_SPREAD_MAX: Final = 1024  # letters in all ranges: `re` marks each when it makes the expression


def re_steps(tree: Any, flags: int) -> int:
    """Return the tests of letters that `re` makes for a name, at most TOO_MANY."""
    parts = list(tree)
    if not flags & re.MULTILINE and parts and str(parts[0][0]) == "AT":
        anchored = "BEGINNING" in str(parts[0][1])
    else:
        anchored = False
    if _spread(tree) > _SPREAD_MAX:
        return TOO_MANY
    once = NAME_BYTES_MAX  # to begin everywhere
    while parts and _is_greedy_end(parts[-1]):
        # Nothing follows that could fail: it runs through the name once at most.
        low, _, body = parts.pop()[1]
        once += _cost(body)[1] * NAME_BYTES_MAX
        if low:
            parts.append(body[0])
            break
    _, work = _cost(parts)
    return min(work * (1 if anchored else NAME_BYTES_MAX + 1) + once, TOO_MANY)


def _is_greedy_end(part: Any) -> bool:
    """Return whether a part is a letter any number of times, or once at least."""
    name, value = str(part[0]), part[1]
    return name in REPEATS and value[0] <= 1 and len(value[2]) == 1 and _is_letter(value[2][0])


def _is_letter(part: Any) -> bool:
    return str(part[0]) in ("LITERAL", "NOT_LITERAL", "ANY", "IN")


def _cost(parts: Any) -> tuple[int, int]:
    """Return in how many ways parts in sequence match, and what trying all of them takes."""
    ways, work = 1, 1
    for code, value in parts:
        part_ways, part_work = _part_cost(str(code), value)
        work = min(work + ways * part_work, TOO_MANY)
        ways = min(ways * part_ways, TOO_MANY)
    return ways, work


def _part_cost(name: str, value: Any) -> tuple[int, int]:
    if name in _LETTERS:
        return 1, 1
    if name == "IN":
        return 1, 1 + len(value)
    if name == "SUBPATTERN":
        return _cost(value[-1])
    if name in REPEATS:
        return _repeat_cost(*value)
    if name == "BRANCH":
        costs = [_cost(branch) for branch in value[1]]
        return sum(ways for ways, _ in costs), sum(work for _, work in costs)
    if name in ("ASSERT", "ASSERT_NOT"):
        return 1, _cost(value[1])[1]  # never entered again once it was found
    if name == "ATOMIC_GROUP":
        return 1, _cost(value)[1]
    if name == "POSSESSIVE_REPEAT":
        return 1, _repeat_cost(*value)[1]
    if name == "GROUPREF":
        return 1, NAME_BYTES_MAX
    return TOO_MANY, TOO_MANY


def _repeat_cost(low: Any, high: Any, body: Any) -> tuple[int, int]:
    width = int(body.getwidth()[0])
    times = min(int(high), NAME_BYTES_MAX // max(width, 1))
    ways, work = _cost(body)
    if times <= 1 and int(high) <= 1:
        return (1 if low else 1 + ways), 1 + work
    if width == 0:
        return TOO_MANY, TOO_MANY  # nothing can be found any number of times
    if ways == 1:
        return max(times - int(low), 0) + 1, work * (times + 1)
    if times > _POWERS_MAX:
        return TOO_MANY, TOO_MANY
    powers = [ways**power for power in range(times + 1)]
    return min(sum(powers), TOO_MANY), min(work * sum(powers), TOO_MANY)


def _spread(tree: Any) -> int:
    """Return how many letters the ranges of an expression have together."""
    total = 0
    for code, value in tree:
        name = str(code)
        if name == "IN":
            total += sum(item[1] - item[0] for kind, item in value if str(kind) == "RANGE")
        elif name == "BRANCH":
            total += sum(_spread(branch) for branch in value[1])
        elif name == "ATOMIC_GROUP":
            total += _spread(value)
        elif name in (*REPEATS, "POSSESSIVE_REPEAT", "SUBPATTERN", "ASSERT", "ASSERT_NOT"):
            total += _spread(value[-1])
        elif name == "GROUPREF_EXISTS":
            total = _SPREAD_MAX + 1
    return total
