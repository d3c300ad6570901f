"""Regular expressions in policies and permissions, made ready once."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import lru_cache

from headrace_broker.catalog.pattern_program import Program, UnboundedError, parse, ways
from headrace_broker.model.limits import (
    PATTERN_GROUPS_MAX,
    PATTERN_OCTETS_MAX,
    PATTERN_WAYS_MAX,
    PATTERNS_CACHED_MAX,
)


def pattern_problem(field: str, pattern: str) -> str:
    """Return why something is not a regular expression that can be used, "" when it is one."""
    octets = len(pattern.encode("utf-8", "surrogatepass"))
    if octets > PATTERN_OCTETS_MAX:
        return f"{field}: the expression has {octets} octets, more than {PATTERN_OCTETS_MAX}"
    groups = pattern.count("(")
    if groups > PATTERN_GROUPS_MAX:
        return f"{field}: the expression has {groups} parentheses, more than {PATTERN_GROUPS_MAX}"
    try:
        _search(pattern)
    except UnboundedError as error:
        return f"{field}: the expression could take too long, and has {error}"
    except (re.error, RecursionError, OverflowError) as error:
        return f"{field}: not a regular expression: {error}"
    return ""


@lru_cache(maxsize=PATTERNS_CACHED_MAX)
def _search(pattern: str) -> Callable[[str], object]:
    """Return what finds an expression in a name; what it returns is true when it was found.

    Raises:
        re.error: it is not an expression.
        UnboundedError: nothing finds it in bounded time.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what a later Python may read otherwise
        tree = parse(pattern)
        if ways(tree) <= PATTERN_WAYS_MAX:
            return re.compile(pattern).search
        return Program(tree, tree.state.flags).search


@lru_cache(maxsize=PATTERNS_CACHED_MAX)
def _tolerant(pattern: str) -> Callable[[str], object]:
    """Return `_search` of an expression, or what finds nothing for one that cannot be used."""
    return _nothing if pattern_problem("pattern", pattern) else _search(pattern)


def _nothing(_name: str) -> object:
    return None


def matches(pattern: str, name: str) -> bool:
    """Return whether an expression is found anywhere in a name, as RabbitMQ looks for it.

    What another version took for an expression and this one does not is found nowhere.
    """
    return bool(_tolerant(pattern)(name))
