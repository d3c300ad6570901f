"""One timer for all queues of a node: a queue with nothing due costs nothing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from headrace_broker.model.limits import TIMER_STEP_MS, TIMER_WAKES_MAX

SLEEP_SECONDS_MAX: Final = 10.0  # the clock may be set meanwhile; it is read again by then


class QueueTimer:
    """Wakes each queue once, at its time or less than TIMER_STEP_MS later.

    Times are gathered into steps, so that ten thousand queues that are due within a step cost one
    look at the clock; no more than TIMER_WAKES_MAX of them are woken within one turn of the loop.
    """

    def __init__(self, wake: Callable[[int, int], None], clock: Callable[[], int]) -> None:
        self._wake = wake  # called with a group and its due time; it is armed no more
        self._clock = clock  # gives the time in milliseconds
        self._steps: list[int] = []  # a heap of the keys of `_queues`, and of some that are gone
        self._queues: dict[int, dict[int, None]] = {}  # step -> groups
        self._armed: dict[int, int] = {}  # group -> step
        self._late: deque[int] = deque()
        self._handle: asyncio.Handle | None = None
        self._handle_step = 0
        self._stopped = False

    def arm(self, group: int, due_ms: int) -> None:
        """Wake a queue at `due_ms`, unless it is woken before that anyway."""
        if self._stopped:
            return
        step = -(-due_ms // TIMER_STEP_MS) * TIMER_STEP_MS
        known = self._armed.get(group)
        if known is not None:
            if known <= step:
                return
            self._leave(group, known)
        self._armed[group] = step
        queues = self._queues.get(step)
        if queues is None:
            self._queues[step] = queues = {}
            heappush(self._steps, step)
            self._compact()
        queues[group] = None
        if self._handle is None or (step < self._handle_step and not self._late):
            self._schedule()

    def forget(self, group: int) -> None:
        """Cancel the timer of a queue."""
        step = self._armed.pop(group, None)
        if step is not None:
            self._leave(group, step)

    def stop(self) -> None:
        """Cancel all timers, also those that are set from now on."""
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._steps.clear()
        self._queues.clear()
        self._armed.clear()
        self._late.clear()

    def _leave(self, group: int, step: int) -> None:
        queues = self._queues.get(step)
        if queues is not None:
            queues.pop(group, None)
            if not queues:
                del self._queues[step]

    def _compact(self) -> None:
        """Drop cancelled steps from the heap once they are the majority."""
        if len(self._steps) > 2 * len(self._queues) + 64:
            self._steps = list(self._queues)
            heapify(self._steps)

    def _schedule(self) -> None:
        """Sleep until the next step that is armed."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        loop = asyncio.get_running_loop()
        if self._late:
            self._handle = loop.call_soon(self._run)
            return
        while self._steps and self._steps[0] not in self._queues:
            heappop(self._steps)
        if self._steps:
            self._handle_step = self._steps[0]
            seconds = max(self._handle_step - self._clock(), 0) / 1000
            self._handle = loop.call_later(min(seconds, SLEEP_SECONDS_MAX), self._run)

    def _run(self) -> None:
        self._handle = None
        now = self._clock()
        while self._steps and self._steps[0] <= now:
            # A step may stand in the heap twice; the second time it is empty.
            self._late.extend(self._queues.pop(heappop(self._steps), ()))
        for _ in range(min(len(self._late), TIMER_WAKES_MAX)):
            group = self._late.popleft()
            step = self._armed.get(group)
            if step is not None and step <= now and group not in self._queues.get(step, ()):
                del self._armed[group]
                self._wake(group, now)
        self._schedule()
