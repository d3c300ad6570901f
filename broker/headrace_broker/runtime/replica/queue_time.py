"""The time that a queue's leader stamps on its commands.

Jumps of the wall clock are absorbed before, by `runtime.cluster.steady_clock`.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.runtime.contract.clock import Clock


@final
class QueueTime:
    """Time of a queue: the node's `Clock.queue_ms`, or half speed while its log is ahead of that.

    So time never stands still in a queue, and what its log is ahead is made up in twice the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._base_ms: i64 = 0  # a time that the queue had
        self._since_ms: i64 = 0  # boottime when it had it

    def begin(self, newest_ms: i64) -> None:
        """Begin to lead a queue whose log has this newest stamp, 0 for none."""
        self._base_ms = newest_ms
        self._since_ms = self._clock.boottime_us() // 1000
        self._clock.witness(newest_ms)

    def stamp(self) -> i64:
        """Return the queue's Unix time in milliseconds; never less than before."""
        boot = self._clock.boottime_us() // 1000
        now = self._clock.queue_ms_at(boot)
        least = self._base_ms + (boot - self._since_ms) // 2
        if now < least:
            return least
        self._base_ms = now
        self._since_ms = boot
        return now

    def ahead_ms(self) -> i64:
        """Return how far the queue is ahead of its node."""
        return self.stamp() - self._clock.queue_ms()

    def node_ms(self, due_ms: i64) -> i64:
        """Return when it will be by the node's clock what the queue calls `due_ms`; 0 for never.

        What is past is now at the latest.
        """
        if due_ms == 0:
            return 0
        stamp = self.stamp()
        now = self._clock.queue_ms()
        if stamp <= now or due_ms <= stamp:
            return min(due_ms, now) if due_ms <= stamp else due_ms
        return now + min(2 * (due_ms - stamp), due_ms - now)
