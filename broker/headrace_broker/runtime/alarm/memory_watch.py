"""Watches the memory of this process and says in which stage it is.

`node.resources` passes the stage on to `AlarmBoard`; publishes wait in
`gateways.publishing.admission_control` while the cluster has an alarm.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

from headrace_broker.flow.alarm import STAGE_ALARM, STAGE_PAGING
from headrace_broker.flow.gauge import Gauge, Mark
from headrace_broker.model import limits
from headrace_broker.model.flow_parameter import Value, in_bytes
from headrace_broker.runtime.alarm.memory_meter import MemoryReading

SHARE_STEP: Final = 5  # percent; smaller changes are not worth telling everybody

log = logging.getLogger("headrace.alarm")


class Meter(Protocol):
    """See `runtime.alarm.memory_meter.MemoryMeter`."""

    def read(self) -> MemoryReading:
        """Take a sample; raises OSError or ValueError."""


def marks_of(paging: Value, high: Value, total: int) -> tuple[int, int]:
    """Return the bytes from which memory is scarce, and from which publishers are blocked.

    A first mark that is not below the second one is moved down to where it is by default.
    """
    second = min(in_bytes(high, total), total)
    first = in_bytes(paging, total)
    if first >= second:
        first = int(
            second * float(limits.MEMORY_PAGING_WATERMARK) / float(limits.MEMORY_HIGH_WATERMARK)
        )
    return first, second


def share_of(used: int, first: int, second: int) -> int:
    """Return the percentage of the limits of flow control that holds between the marks."""
    if used >= second:
        return limits.SHARE_MIN
    if used <= first:
        return 100
    left = limits.SHARE_MIN + (100 - limits.SHARE_MIN) * (second - used) // (second - first)
    return max(left - left % SHARE_STEP, limits.SHARE_MIN)


class MemoryWatch:
    """Watch on memory, sampled each MEMORY_SAMPLE_MS."""

    def __init__(
        self,
        meter: Meter | None,
        changed: Callable[[], None],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.share = 100  # percentage of the limits of flow control that should hold
        self.used = 0  # bytes, 0 before the first look
        self.total = 0  # bytes that may be used, likewise
        self.limit = 0  # bytes at which the alarm is set, likewise
        self._first = 0
        self._paging: Value = limits.MEMORY_PAGING_WATERMARK
        self._high: Value = limits.MEMORY_HIGH_WATERMARK
        self._meter = meter  # says what is used; None if not known: no alarm then
        self._changed = changed  # called after each look
        self._clock_ns = clock_ns
        self._gauge = Gauge()
        self._failed = False
        self._handle: asyncio.TimerHandle | None = None

    @property
    def stage(self) -> int:
        """0, STAGE_PAGING (bodies leave memory) or STAGE_ALARM (publishers are blocked)."""
        return int(self._gauge.stage)

    def set_watermarks(self, paging: Value, high: Value) -> None:
        """Change the marks, which count at once; see `marks_of`."""
        if (paging, high) == (self._paging, self._high):
            return
        self._paging, self._high = paging, high
        if self.total:
            self._set_marks()
            self.poll()

    def start(self) -> None:
        """Take a sample now, and periodically from then on."""
        self.poll()
        if self._meter is not None:
            loop = asyncio.get_running_loop()
            self._handle = loop.call_later(limits.MEMORY_SAMPLE_MS / 1000, self.start)

    def stop(self) -> None:
        """Stop sampling."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def poll(self) -> None:
        """Take one sample."""
        if self._meter is None:
            return
        try:
            reading = self._meter.read()
        except (OSError, ValueError) as error:
            if not self._failed:
                log.warning("memory use cannot be read, the last state is kept: %s", error)
            self._failed = True
            return
        self._failed = False
        self.used = reading.used
        if reading.total != self.total:
            self.total = reading.total
            self._set_marks()
            log.info(
                "memory: %d MiB of %s; paging from %d MiB, publishers blocked from %d MiB",
                *(self.total >> 20, reading.place, self._first >> 20, self.limit >> 20),
            )
        self._judge()

    def _set_marks(self) -> None:
        self._first, self.limit = marks_of(self._paging, self._high, self.total)
        self._gauge.set_marks([_mark(self._first), _mark(self.limit)])

    def _judge(self) -> None:
        before = self.stage
        if self._gauge.sample(self._clock_ns() // 1000, self.used):
            self._tell(before)
        if self.stage == 0:
            self.share = 100
        elif self.stage == STAGE_ALARM:
            self.share = limits.SHARE_MIN
        else:
            self.share = share_of(self.used, self._first, self.limit)
        self._changed()

    def _tell(self, before: int) -> None:
        says = {
            0: "there is enough again",
            STAGE_PAGING: "paging, bodies leave it and limits shrink",
            STAGE_ALARM: "alarm, publishers are blocked in the whole cluster",
        }
        why = " (it grows fast)" if self.stage > before and self._gauge.early else ""
        log.log(
            logging.WARNING if self.stage == STAGE_ALARM else logging.INFO,
            "memory: %s%s: %d MiB of %d MiB used, paging from %d MiB, "
            "publishers blocked from %d MiB",
            *(says[self.stage], why, self.used >> 20, self.total >> 20),
            *(self._first >> 20, self.limit >> 20),
        )


def _mark(high: int) -> Mark:
    return Mark(high, high * limits.MEMORY_LOW_PERCENT // 100)
