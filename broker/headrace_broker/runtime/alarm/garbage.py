"""Searches for garbage, which stop the event loop: when, and of what."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from headrace_broker.model import limits

NEVER: Final = 1 << 30  # passes over young objects: the interpreter begins no search by itself


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


class Heap:
    """Objects of the interpreter that may be in cycles."""

    def search(self) -> None:
        """Free cycles that nothing refers to, but for what was put aside."""
        gc.collect()

    def put_aside(self) -> None:
        """Exclude all present objects from further searches."""
        gc.freeze()

    def take_back(self) -> None:
        """Include in further searches what was put aside."""
        gc.unfreeze()

    def count(self) -> int:
        """Return how many objects a search passes."""
        return len(gc.get_objects())

    def young_passes(self) -> int:
        """Return the interpreter's searches among young objects since the last search here."""
        return gc.get_count()[2]


class _LastSearch(NamedTuple):
    over_us: int  # when it was over
    took_us: int
    used: int  # bytes of memory before it


class Garbage:
    """Searches the heap for garbage, for a bounded part of the time.

    The interpreter would search everything whenever a quarter more objects have come to stay. One
    client that opens thousands of channels made it do so several times a second. It goes on to
    search among young objects by itself.

    With 10,000 queues a search of everything takes more than a second, in which the node sends
    nothing, and its peers take it for down. A heap of more than `GARBAGE_OBJECTS` is therefore put
    aside when it was searched, and further searches pass what has come since, as soon as that is
    worth one. All is searched again when memory has doubled, by `GARBAGE_WHOLE_BYTES` at least,
    when it becomes scarce, and whenever it grows by `GARBAGE_GROWN_BYTES` while it is, which bounds
    what old objects can leave behind.
    """

    def __init__(
        self, memory: Memory, heap: Heap | None = None, clock_us: Callable[[], int] = _clock_us
    ) -> None:
        self._memory = memory  # of the process
        self._heap = heap or Heap()
        self._clock_us = clock_us  # microseconds of a clock that never goes back
        self._last = _LastSearch(clock_us(), 0, 0)
        self._last_whole = _LastSearch(clock_us(), 0, memory.used)
        self._is_large = False  # whether it is put aside, because it is too much to search often
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

    def caught_up(self) -> None:
        """Put aside what the node has read from its disk, unsearched: it is no garbage."""
        self._put_aside_if_large()
        self._last_whole = self._last_whole._replace(used=self._memory.used)

    def poll(self) -> None:
        """Search if it is time to."""
        used, stage = self._memory.used, self._memory.stage
        self._is_scarce = self._is_scarce or stage > self._stage
        self._stage = stage
        now_us = self._clock_us()
        if self._is_whole_due(used, now_us):
            self._search(True, used, now_us)
        elif self._is_due(used, now_us):
            self._search(used == 0 or not self._is_large, used, now_us)

    def _is_whole_due(self, used: int, now_us: int) -> bool:
        last = self._last_whole
        least = max(limits.GARBAGE_GROWN_BYTES, last.used)
        if self._stage > 0:
            least = limits.GARBAGE_GROWN_BYTES
        elif self._is_large:
            least = max(limits.GARBAGE_WHOLE_BYTES, last.used)
        if used - last.used < least and not self._is_scarce:
            return False
        return now_us - last.over_us >= limits.GARBAGE_GROWN_PARTS * last.took_us

    def _is_due(self, used: int, now_us: int) -> bool:
        last = self._last
        if self._is_large and used:
            parts = limits.GARBAGE_NEW_PARTS
        elif self._stage > 0 or used - last.used >= limits.GARBAGE_GROWN_BYTES:
            parts = limits.GARBAGE_GROWN_PARTS
        else:
            parts = limits.GARBAGE_PARTS
        if now_us - last.over_us < parts * last.took_us:
            return False
        return self._heap.young_passes() >= limits.GARBAGE_YOUNG_PASSES

    def _search(self, whole: bool, used: int, began_us: int) -> None:
        if whole and self._is_large:
            self._heap.take_back()
        self._heap.search()
        over_us = self._clock_us()
        self._last = _LastSearch(over_us, over_us - began_us, used)
        if whole:
            self._last_whole = self._last
            self._is_scarce = False
            if self._last.took_us <= limits.GARBAGE_SHORT_SECONDS * 1_000_000:
                self._is_large = False
            self._put_aside_if_large()
        else:
            self._heap.put_aside()

    def _put_aside_if_large(self) -> None:
        self._is_large = self._is_large or self._heap.count() > limits.GARBAGE_OBJECTS
        if self._is_large:
            self._heap.put_aside()
