"""The violation of an invariant."""

from __future__ import annotations


class InvariantError(Exception):
    """An invariant does not hold.

    Args:
        invariant: its number, 0 for an exception in the core.
        text: what was seen.
    """

    def __init__(self, invariant: int, text: str) -> None:
        super().__init__(f"invariant {invariant}: {text}")
        self.invariant = invariant
