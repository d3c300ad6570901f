"""The time of day and the time that passes."""

from __future__ import annotations

import time

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """This machine's clocks."""

    def unix_ms(self) -> i64:
        """Return the Unix time, which may be set."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> i64:
        """Return a time that only goes forward, from an unknown beginning."""
        return time.monotonic_ns() // 1_000_000

    def monotonic_us(self) -> i64:
        """Return the same in microseconds, for short durations."""
        return time.monotonic_ns() // 1000

    def boottime_us(self) -> i64:
        """Return the microseconds since the machine was started, time asleep included."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000

    def queue_ms(self) -> i64:
        """Return the Unix time by which queues go; here it follows the wall clock wherever it goes.

        See `SteadyClock`, by which nodes go.
        """
        return self.unix_ms()

    def queue_ms_at(self, boot_ms: i64) -> i64:
        """Return the same from a given reading of the boottime clock, in milliseconds."""
        return self.queue_ms()

    def witness(self, stamp_ms: i64) -> None:
        """Take note of the newest stamp in the log of a queue that this node begins to lead."""
