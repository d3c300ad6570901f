"""Records of the scenario's pods: see `client_program`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

SHOWN_MAX: Final = 10  # intervals that a message shows


class Record(NamedTuple):
    """Record of one pod.

    Attributes:
        numbers: by what became of them: confirmed, refused, moved, seen.
        has_ended: it ended by itself.
        was_blocked: its connection was told that the brokers take no more for now.
    """

    numbers: dict[str, set[int]]
    has_ended: bool
    was_blocked: bool

    def of(self, what: str) -> set[int]:
        """Return the numbers that something became of."""
        return self.numbers.get(what, set())


def read(text: str) -> Record:
    """Return what a pod wrote; other lines are for people."""
    numbers: dict[str, set[int]] = {}
    has_ended = False
    for line in text.splitlines():
        if line.startswith("{"):
            for what, intervals in json.loads(line).items():
                has_ended = has_ended or what == "ended"
                found = numbers.setdefault(what, set())
                for first, last in intervals:
                    found.update(range(first, last + 1))
    return Record(numbers, has_ended, "was blocked by" in text)


def shown(numbers: Iterable[int]) -> str:
    """Return how many numbers these are, and the first of them."""
    rows = sorted(numbers)
    return f"{len(rows)}: {', '.join(map(str, rows[:SHOWN_MAX]))}"
