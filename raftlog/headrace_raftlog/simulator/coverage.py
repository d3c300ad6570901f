"""States that a run reached: names and counts, so that tests can demand rare states."""

from __future__ import annotations

from typing import final


@final
class Coverage:
    """Counts of what happened, by name."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def note(self, name: str) -> None:
        """Count one more."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def count(self, name: str) -> int:
        """Return how often it happened."""
        return self.counts.get(name, 0)
