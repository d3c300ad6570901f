"""Memory that a node gets back while it is scarce: bodies leave it."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import Protocol

from headrace_broker.flow.alarm import STAGE_ALARM
from headrace_broker.model import limits


class BodyCache(Protocol):
    """Holder of bodies that are on disk too: `headrace_raftlog.node.node.RaftNode`."""

    def set_cache_bytes(self, count: int) -> None:
        """Keep no more than so many bytes of log entries in memory."""


class Trimmer:
    """Trimmer of the C library's heap: returns free memory of the process to the system.

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


class MemoryPaging:
    """Lets bodies leave memory while it is scarce, and come back after."""

    def __init__(self, cache: BodyCache, cache_bytes: int, trim: Callable[[], None]) -> None:
        self._cache = cache  # entries of the log
        self._cache_bytes = cache_bytes  # of them that may be in memory when nothing is scarce
        self._trim = trim  # gives memory that is free within the process back to the system
        self._stage = 0
        self._trimmed_ms = 0

    def apply(self, stage: int, now_ms: int) -> None:
        """Do what a stage of memory (`MemoryWatch`) asks for, again and again while it lasts."""
        risen = stage > self._stage
        if stage != self._stage:
            self._stage = stage
            self._cache.set_cache_bytes(self._cache_bytes_now())
        if risen or (stage and now_ms - self._trimmed_ms >= limits.TRIM_EVERY_MS):
            self._trimmed_ms = now_ms
            self._trim()

    def _cache_bytes_now(self) -> int:
        if self._stage >= STAGE_ALARM:
            return min(limits.ALARM_CACHE_BYTES, self._cache_bytes)
        if self._stage:
            return self._cache_bytes * limits.PAGING_CACHE_PERCENT // 100
        return self._cache_bytes
