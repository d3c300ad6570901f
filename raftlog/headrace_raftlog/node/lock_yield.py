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


class LockYield:
    """Sleeps for a moment on the loop, without the lock, as long as threads have work.

    While no step ends it does so more and more rarely: the threads then wait for the disk.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        step: Callable[[], tuple[int, ...] | None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._loop = loop
        # returns numbers that change with each step of the threads that ends, None without work
        self._step = step
        self._sleep = sleep
        self._armed = False
        self._last: tuple[int, ...] | None = None
        self._yields = 0
        self._after_s = YIELD_AFTER_S

    def begin(self) -> None:
        """Watch over work that was handed to a thread; to be called at each handover."""
        if not self._armed:
            self._armed = True
            self._loop.call_later(YIELD_AFTER_S, self._poll)

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
        self._sleep(YIELD_S)
        self._loop.call_later(self._after_s, self._poll)
