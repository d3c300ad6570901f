"""Changes of a status: conditions, and the patch from the old one to the new one."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from headrace_operator.specs.status import DEGRADED, PROGRESSING, READY, Condition, with_condition

MESSAGE_MAX: Final = 1024  # letters; errors of others may be long


def timestamp(time: datetime) -> str:
    """Return a time as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def merge_patch(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch that makes one object of another; empty when they are alike."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            inner = merge_patch(before, value)
            if inner:
                patch[key] = inner
        elif value != before:
            patch[key] = value
    return patch


def conditions_of(
    before: list[Condition],
    now: datetime,
    generation: int,
    ready: tuple[bool, str, str],
    progressing: tuple[bool, str, str],
    degraded: tuple[bool, str, str],
) -> list[Condition]:
    """Return the three conditions, each given by whether it holds, a reason and a sentence."""
    found = before
    rows = ((READY, ready), (PROGRESSING, progressing), (DEGRADED, degraded))
    for name, (holds, reason, message) in rows:
        condition = Condition(
            type=name,
            status="True" if holds else "False",
            reason=reason,
            message=message[:MESSAGE_MAX],
            last_transition_time=timestamp(now),
            observed_generation=generation,
        )
        found = with_condition(found, condition)
    return found
