"""Simulated time: a heap of events and the run's only source of randomness."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any


class Loop:
    """Runs events in order of time; events at the same time in order of creation.

    Args:
        seed: decides everything that follows.
        tracing: keep one line per event worth telling in `lines`.
    """

    def __init__(self, seed: int, tracing: bool) -> None:
        self.rng = Random(seed)  # noqa: S311 - it must be repeatable
        self.now = 0
        self.events = 0
        self.tracing = tracing
        self.lines: list[str] = []
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._created = 0

    def after(self, delay: int, action: Callable[[Any], None], argument: Any) -> None:
        """Run `action(argument)` `delay` units from now, `delay` being at least 0."""
        self._created += 1
        heapq.heappush(self._heap, (self.now + delay, self._created, action, argument))

    def step(self) -> bool:
        """Run the next event; return False when there is none."""
        if not self._heap:
            return False
        self.now, _, action, argument = heapq.heappop(self._heap)
        self.events += 1
        action(argument)
        return True

    def trace(self, line: str) -> None:
        """Keep `line`; callers ask `tracing` first, so that untold lines cost nothing."""
        self.lines.append(f"{self.now:>6} {line}")
