"""Result of a check of an environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

State = Literal["ok", "warn", "fail"]


class Check(NamedTuple):
    """One check."""

    name: str  # of what was looked at, in a word or two
    # ok; warn where jobs run but something is amiss or unknown; fail where they cannot
    state: State
    says: str  # what was found
    advice: str = ""  # what to do about it; "" for nothing


def ok(name: str, says: str) -> Check:
    """Return that something is as it should be."""
    return Check(name, "ok", says)


def warn(name: str, says: str, advice: str) -> Check:
    """Return that something is amiss, or cannot be known."""
    return Check(name, "warn", says, advice)


def fail(name: str, says: str, advice: str) -> Check:
    """Return that jobs cannot run."""
    return Check(name, "fail", says, advice)


def render(checks: Sequence[Check]) -> list[str]:
    """Return a line for each check, and one below it where there is something to do."""
    width = max((len(each.name) for each in checks), default=0)
    lines = []
    for each in checks:
        lines.append(f"{each.state:4}  {each.name:{width}}  {each.says}")
        if each.advice:
            lines.append(f"{'':{width + 6}}  -> {each.advice}")
    return lines
