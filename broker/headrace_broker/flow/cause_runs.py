"""Causes of the messages that one session publishes on behalf of several."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64


@final
class CauseRuns:
    """Causes of numbered messages, from the first that is not answered to the newest.

    Messages in a row with one cause cost one pair of numbers.
    """

    def __init__(self) -> None:
        self._next: i64 = 1
        self._answered: i64 = 0
        self._runs: deque[tuple[int, int]] = deque()  # number of the last message, cause

    def add(self, cause: i64) -> None:
        """Note who caused the next message."""
        number = self._next
        self._next += 1
        if self._runs and self._runs[-1][1] == cause:
            self._runs[-1] = (int(number), int(cause))
        else:
            self._runs.append((int(number), int(cause)))

    def answered(self, count: i64) -> None:
        """Drop that many of the oldest: they are answered."""
        self._answered += count
        runs = self._runs
        while runs and runs[0][0] <= self._answered:
            runs.popleft()

    def of(self, first: i64, count: i64) -> list[int]:
        """Return the causes of unanswered messages, `count` from `first` on: number, cause, ..."""
        found: list[int] = []
        start = first
        last = first + count - 1
        for end, cause in self._runs:
            if start > last:
                break
            if end < start:
                continue
            until = min(i64(end), last)
            found.append(int(until - start + 1))
            found.append(cause)
            start = until + 1
        return found
