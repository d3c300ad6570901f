"""Refusals that are logged once, however often they come."""

from __future__ import annotations

from headrace_raftlog.model.limits import REFUSALS_TOLD_MAX


class Refusals:
    """Logged refusals, up to `REFUSALS_TOLD_MAX` of them; then all are forgotten."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def is_new(self, text: str) -> bool:
        """Return whether to log a refusal; from now on it is known."""
        if text in self._told:
            return False
        if len(self._told) >= REFUSALS_TOLD_MAX:
            self._told.clear()
        self._told.add(text)
        return True
