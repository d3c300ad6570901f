"""What a node does when memory is scarce: bodies leave it."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import Protocol

from headrace_broker.flow.alarm import STAGE_ALARM
from headrace_broker.model.limits import ALARM_CACHE_BYTES, RELIEF_CACHE_PERCENT, TRIM_EVERY_MS


class BodyCache(Protocol):
    """What holds bodies that are on disk as well: `headrace_raftlog.node.RaftNode`."""

    def set_cache_bytes(self, count: int) -> None:
        """Keep no more than so many bytes of log entries in memory."""


class Trimmer:
    """Has the C library give memory that is free within the process back to the system.

    glibc keeps what is freed below something that lives, and RSS stays up. Measured after 200 MiB
    of bodies left the cache: of 1 KiB, 196 MiB stayed until they were trimmed, and 40 after.
    It takes up to 100 ms for that much, therefore in a thread: only large allocations wait for it.
    """

    def __init__(self) -> None:
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other libraries lack it
        self._running: asyncio.Future[object] | None = None

    def start(self) -> None:
        """Begin, unless the last one is under way."""
        if self._trim is None or (self._running is not None and not self._running.done()):
            return
        self._running = asyncio.get_running_loop().run_in_executor(None, self._trim, 0)


class Relief:
    """Lets bodies leave memory while it is scarce, and come back after.

    Args:
        cache: entries of the log.
        cache_bytes: of them that may be in memory when nothing is scarce.
        trim: gives memory that is free within the process back to the system.
    """

    def __init__(self, cache: BodyCache, cache_bytes: int, trim: Callable[[], None]) -> None:
        self._cache = cache
        self._cache_bytes = cache_bytes
        self._trim = trim
        self._stage = 0
        self._trimmed_ms = 0

    def apply(self, stage: int, now_ms: int) -> None:
        """Do what a stage of memory asks for; called again and again while it lasts.

        Args:
            stage: as in `MemoryWatch`.
            now_ms: of a clock that never goes back.
        """
        risen = stage > self._stage
        if stage != self._stage:
            self._stage = stage
            self._cache.set_cache_bytes(self._cache_bytes_now())
        if risen or (stage and now_ms - self._trimmed_ms >= TRIM_EVERY_MS):
            self._trimmed_ms = now_ms
            self._trim()

    def _cache_bytes_now(self) -> int:
        if self._stage >= STAGE_ALARM:
            return min(ALARM_CACHE_BYTES, self._cache_bytes)
        if self._stage:
            return self._cache_bytes * RELIEF_CACHE_PERCENT // 100
        return self._cache_bytes
