"""Regular expressions in policies and permissions, made ready once."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

from headrace_broker.catalog.pattern_cost import re_steps
from headrace_broker.catalog.pattern_program import Program, UnboundedError, parse
from headrace_broker.model.limits import (
    NAME_BYTES_MAX,
    PATTERN_BYTES_MAX,
    PATTERN_GROUPS_MAX,
    PATTERN_PROGRAMS_CACHED_MAX,
    PATTERN_RE_STEPS_MAX,
    PATTERNS_CACHED_MAX,
)

_SUSPECT: Final = re.compile(r"[({+]")


def pattern_problem(field: str, pattern: str) -> str:
    """Return why something is not a regular expression that can be used, "" when it is one."""
    byte_count = len(pattern.encode("utf-8", "surrogatepass"))
    if byte_count > PATTERN_BYTES_MAX:
        return f"{field}: the expression has {byte_count} bytes, more than {PATTERN_BYTES_MAX}"
    groups = pattern.count("(")
    if groups > PATTERN_GROUPS_MAX:
        return f"{field}: the expression has {groups} parentheses, more than {PATTERN_GROUPS_MAX}"
    try:
        _search(pattern)
    except UnboundedError as error:
        return f"{field}: the expression could take too long to find in a name: it has {error}"
    except (re.error, RecursionError, OverflowError) as error:
        return f"{field}: not a regular expression: {error}"
    return ""


@lru_cache(maxsize=PATTERNS_CACHED_MAX)
def _search(pattern: str) -> Callable[[str], object]:
    """Return what finds an expression in a name; re.error or UnboundedError for none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what a later Python may read otherwise
        tree = parse(pattern)
        if re_steps(tree, tree.state.flags) <= PATTERN_RE_STEPS_MAX:
            return re.compile(pattern).search
        _program(pattern)
        return partial(_run, pattern)


@lru_cache(maxsize=PATTERN_PROGRAMS_CACHED_MAX)
def _program(pattern: str) -> Program:
    """Return an expression made ready for the bounded machine; raises `UnboundedError`."""
    tree = parse(pattern)
    return Program(tree, tree.state.flags)


def _run(pattern: str, name: str) -> object:
    return _program(pattern).search(name)


def standing_problem(field: str, pattern: str) -> str:
    """Return why an expression of the catalog is found nowhere, "" when it can be used.

    It may come from another version. One without parentheses, counts and pluses never takes long,
    and is not checked, because there may be many at a start.
    """
    return pattern_problem(field, pattern) if _SUSPECT.search(pattern) else ""


@lru_cache(maxsize=PATTERNS_CACHED_MAX)
def _tolerant(pattern: str) -> Callable[[str], object]:
    """Return `_search` of an expression, or what finds nothing for one that cannot be used."""
    return _nothing if pattern_problem("pattern", pattern) else _search(pattern)


def _nothing(_name: str) -> object:
    return None


def matches(pattern: str, name: str) -> bool:
    """Return whether an expression is found anywhere in a name, as RabbitMQ looks for it.

    What another version took for an expression and this one does not is found nowhere; nothing is
    found in what is too long for a name, for which no bound of the work would hold.
    """
    return len(name) <= NAME_BYTES_MAX and bool(_tolerant(pattern)(name))
