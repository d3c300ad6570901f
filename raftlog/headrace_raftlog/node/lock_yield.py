"""Yielding the interpreter lock to the threads of the log while the event loop is busy.

A thread that returns from a system call needs the interpreter lock. CPython makes another thread
give the lock up only after the waiting one has waited a whole switch interval without being woken;
each release wakes it and starts the interval anew. A loop that writes to many sockets releases the
lock at every write and takes it again before the waiting thread runs: a batch of the log that the
disk had synced after a millisecond was reported after 20 to 200.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from headrace_raftlog.model.limits import YIELD_AFTER_S, YIELD_AFTER_S_MAX, YIELD_S

YIELDS_MAX: Final = 3  # for one step; a thread that was waiting for the lock has had it by then


class Clock:
    """Times of the thread that calls, in seconds."""

    def now(self) -> float:
        """Return the time."""
        return time.monotonic()

    def worked(self) -> float:
        """Return the processor time of this thread."""
        return time.thread_time()

    def sleep(self, seconds: float) -> None:
        """Sleep, without the interpreter lock."""
        time.sleep(seconds)


class LockYield:
    """Sleeps for a moment on a busy loop, without the lock, as long as threads have work.

    While no step ends it does so more and more rarely: the threads then wait for the disk. A loop
    that waits for most of the time does not sleep: the lock is free then.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        step: Callable[[], tuple[int, ...] | None],
        clock: Clock | None = None,
    ) -> None:
        self._loop = loop
        # returns numbers that change with each step of the threads that ends, None without work
        self._step = step
        self._clock = clock or Clock()
        self._since = (0.0, 0.0)  # time, and processor time of the loop, when the timer was set
        self._armed = False
        self._last: tuple[int, ...] | None = None
        self._yields = 0
        self._after_s = YIELD_AFTER_S

    def begin(self) -> None:
        """Watch over work that was handed to a thread; to be called at each handover."""
        if not self._armed:
            self._armed = True
            self._arm(YIELD_AFTER_S)

    def _arm(self, seconds: float) -> None:
        self._since = (self._clock.now(), self._clock.worked())
        self._loop.call_later(seconds, self._poll)

    def _is_busy(self) -> bool:
        """Return whether the loop worked for most of the time since the timer was set."""
        now, worked = self._since
        return 2 * (self._clock.worked() - worked) >= self._clock.now() - now

    def _poll(self) -> None:
        step = self._step()
        if step is None:
            self._armed = False
            return
        if step != self._last:
            self._last = step
            self._yields = 0
            self._after_s = YIELD_AFTER_S
        elif self._yields >= YIELDS_MAX:
            self._after_s = min(self._after_s * 2, YIELD_AFTER_S_MAX)
        self._yields += 1
        if self._is_busy():
            self._clock.sleep(YIELD_S)
        self._arm(self._after_s)
