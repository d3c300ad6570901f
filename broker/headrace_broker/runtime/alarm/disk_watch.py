"""Watches the free space of the data directory and says when it is nearly gone."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable

from headrace_broker.flow.gauge import Gauge, Mark
from headrace_broker.model.limits import DISK_LOW_PERCENT, DISK_SAMPLE_MS

log = logging.getLogger("headrace.alarm")


class DiskWatch:
    """Watch on free disk space, sampled each DISK_SAMPLE_MS."""

    def __init__(
        self,
        directory: str,
        log_is_full: Callable[[], bool],
        changed: Callable[[], None],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.alarm = False  # publishers should be blocked
        self.full = False  # the log has met a full disk
        self.free = 0  # bytes, 0 before the first look
        self.total = 0  # bytes, likewise
        self.limit = 0  # bytes below which publishers are blocked; 0: when the log runs full
        self._directory = directory
        self._log_is_full = log_is_full  # whether the log has met a full disk
        self._changed = changed  # called after each look
        self._clock_ns = clock_ns
        self._gauge = Gauge()  # of what is free, below zero: so it rises towards its mark
        self._failed = False
        self._handle: asyncio.TimerHandle | None = None

    def set_limit(self, limit: int) -> None:
        """Change the limit, which counts at once."""
        if limit != self.limit:
            self.limit = limit
            low = limit * DISK_LOW_PERCENT // 100
            self._gauge.set_marks([Mark(1 - limit, 1 - low)] if limit else [])
            if self.total:
                self.poll()

    def start(self) -> None:
        """Take a sample now, and periodically from then on."""
        self.poll()
        self._handle = asyncio.get_running_loop().call_later(DISK_SAMPLE_MS / 1000, self.start)

    def stop(self) -> None:
        """Stop sampling."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def poll(self) -> None:
        """Take one sample."""
        try:
            usage = shutil.disk_usage(self._directory)
        except OSError as error:  # what is written there fails or not, and the log says so
            if not self._failed:
                log.warning("free space of %s cannot be read: %s", self._directory, error)
            self._failed = True
        else:
            self._failed = False
            self.free, self.total = usage.free, usage.total
            self._gauge.sample(self._clock_ns() // 1000, -self.free)
        self.full = self._log_is_full()
        alarm = self.full or self._gauge.stage > 0
        if alarm != self.alarm:
            self.alarm = alarm
            self._tell()
        self._changed()

    def _tell(self) -> None:
        if not self.alarm:
            text = "there is room again"
        elif self.full:
            text = "full, no room for the log: publishers are blocked in the whole cluster"
        else:
            why = " (it shrinks fast)" if self._gauge.early else ""
            text = f"nearly full{why}, publishers are blocked in the whole cluster"
        log.log(
            logging.WARNING if self.alarm else logging.INFO,
            "disk of %s: %s: %d MiB free of %d MiB, the limit is %d MiB",
            *(self._directory, text, self.free >> 20, self.total >> 20, self.limit >> 20),
        )
