"""Memory that a node gets back: garbage is collected, and bodies leave it while it is scarce."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from headrace_broker.flow.alarm import STAGE_ALARM
from headrace_broker.model import limits

NEVER: Final = 1 << 30  # passes over young objects: the interpreter begins no search by itself


class _LastSearch(NamedTuple):
    over_us: int  # when it was over
    took_us: int
    used: int  # bytes of memory before it


def _search(whole: bool) -> None:
    if whole:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


def _young_passes() -> int:
    return gc.get_count()[2]


def _clock_us() -> int:
    return time.monotonic_ns() // 1000


class Memory(Protocol):
    """See `runtime.alarm.memory_watch.MemoryWatch`."""

    @property
    def used(self) -> int:
        """Bytes, 0 where that is not known."""

    @property
    def stage(self) -> int:
        """0 while nothing is scarce."""


class Garbage:
    """Searches the heap for garbage, for a bounded part of the time.

    A search puts aside what it has passed, and the next one passes what has come since: with 10,000
    queues a search of everything takes more than a second, in which the node sends nothing, and its
    peers take it for down. All is searched when memory becomes scarce or has doubled, which bounds
    what old objects can leave behind; and each time where memory is not known.

    The interpreter would search everything whenever a quarter more objects have come to stay. One
    client that opens thousands of channels made it do so several times a second. It goes on to
    search among young objects by itself.
    """

    def __init__(
        self,
        memory: Memory,
        search: Callable[[bool], None] = _search,
        young_passes: Callable[[], int] = _young_passes,
        clock_us: Callable[[], int] = _clock_us,
    ) -> None:
        self._memory = memory  # of the process
        self._search = search  # of everything, or of what has come since the last one
        self._young_passes = young_passes  # returns searches among young objects since then
        self._clock_us = clock_us  # microseconds of a clock that never goes back
        self._last = _LastSearch(clock_us(), 0, 0)
        self._last_whole = _LastSearch(clock_us(), 0, memory.used)
        self._stage = 0  # of memory, at the last look
        self._is_scarce = False  # whether it became scarce since everything was searched
        self._before: tuple[int, int, int] | None = None
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Take over from the interpreter, and look from then on."""
        if self._before is None:
            self._before = gc.get_threshold()
            gc.set_threshold(*self._before[:2], NEVER)
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(limits.GARBAGE_LOOK_SECONDS, self.start)
        self.poll()

    def stop(self) -> None:
        """Leave it to the interpreter again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._before is not None:
            gc.set_threshold(*self._before)
            self._before = None
            gc.unfreeze()

    def caught_up(self) -> None:
        """Count memory from now on: a node that starts fills it with what it has on disk."""
        self._last_whole = self._last_whole._replace(used=self._memory.used)

    def poll(self) -> None:
        """Search if it is time to."""
        used, stage = self._memory.used, self._memory.stage
        self._is_scarce = self._is_scarce or stage > self._stage
        self._stage = stage
        now_us = self._clock_us()
        if self._is_whole_due(used, now_us):
            self._is_scarce = False
            self._last = self._last_whole = self._look(True, used, now_us)
        elif self._is_due(used, now_us):
            self._last = self._look(used == 0, used, now_us)

    def _is_whole_due(self, used: int, now_us: int) -> bool:
        last = self._last_whole
        grown = used - last.used >= max(limits.GARBAGE_GROWN_BYTES, last.used)
        if not grown and not self._is_scarce:
            return False
        return now_us - last.over_us >= limits.GARBAGE_GROWN_PARTS * last.took_us

    def _is_due(self, used: int, now_us: int) -> bool:
        last = self._last
        grown = self._stage > 0 or used - last.used >= limits.GARBAGE_GROWN_BYTES
        parts = limits.GARBAGE_GROWN_PARTS if grown else limits.GARBAGE_PARTS
        if now_us - last.over_us < parts * last.took_us:
            return False
        return self._young_passes() >= limits.GARBAGE_YOUNG_PASSES

    def _look(self, whole: bool, used: int, began_us: int) -> _LastSearch:
        self._search(whole)
        over_us = self._clock_us()
        return _LastSearch(over_us, over_us - began_us, used)


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
