"""Regular expressions in policies and permissions, compiled once."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

from headrace_broker.model.limits import PATTERN_OCTETS_MAX, PATTERNS_CACHED_MAX


def pattern_problem(field: str, pattern: str) -> str:
    """Return why something is not a regular expression that can be used, "" when it is one."""
    octets = len(pattern.encode("utf-8", "surrogatepass"))
    if octets > PATTERN_OCTETS_MAX:
        return f"{field}: the expression has {octets} octets, more than {PATTERN_OCTETS_MAX}"
    try:
        compiled(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"{field}: not a regular expression: {error}"
    return ""


@lru_cache(maxsize=PATTERNS_CACHED_MAX)
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a compiled expression, from memory where possible.

    Raises:
        re.error: it is not one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what a later Python may read otherwise
        return re.compile(pattern)


def matches(pattern: str, name: str) -> bool:
    """Return whether a valid expression is found anywhere in a name, as RabbitMQ looks for it."""
    return compiled(pattern).search(name) is not None
