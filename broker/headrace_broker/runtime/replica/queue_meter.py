"""Measurements by the leader of a queue: its commands, and its consumers' time.

One command is timed at a time, as in `headrace_raftlog.node.commit_meter`, so that measuring costs
next to nothing however many there are.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from mypy_extensions import i64

from headrace_broker.model.limits import COMMANDS_TIMED_MAX
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.contract.queue_log import COMMAND_OVERHEAD_BYTES

SMOOTHING: Final = 8  # durations over which the average is taken


class Metered(NamedTuple):
    """Measurements of a meter since the previous query."""

    commands: int  # under way now: proposed and not applied
    byte_count: int  # of these, each with what it is reckoned beside
    durations_us: list[int]  # from proposal to application, of commands that were timed; ascending
    busy_us: int  # for how long consumers had all that they may have, summed over consumers

    def percentile_ms(self, percent: int) -> float | None:
        """Return the duration that so many of 100 do not exceed; None where none was timed."""
        count = len(self.durations_us)
        if count == 0:
            return None
        return self.durations_us[max(-(-count * percent // 100), 1) - 1] / 1000


@final
class QueueMeter:
    """Measures from the moment at which a replica leads; another leadership has another one."""

    def __init__(self, clock: Clock) -> None:
        self.commands: i64 = 0  # as `Metered`; so is bytes
        self.byte_count: i64 = 0
        self.command_us: i64 = 0  # from proposal to application, on average; 0 before the first
        self.now_us: i64 = clock.monotonic_us()  # when a command was applied last
        self._clock = clock  # of the replica
        self._timed: bytes | None = None
        self._timed_us: i64 = 0
        self._durations: list[int] = []
        self._next: i64 = 0  # place of the next duration, once there are as many as are kept
        self.busy: i64 = 0  # consumers that have all that they may
        self._busy_us: i64 = 0
        self._since_us = self.now_us  # until when that is reckoned

    def proposed(self, data: bytes) -> None:
        """A command was taken by the log."""
        self.commands += 1
        self.byte_count += len(data) + COMMAND_OVERHEAD_BYTES
        if self._timed is None:
            self._timed = data
            self._timed_us = self._clock.monotonic_us()

    def applied(self, data: bytes, busy: i64) -> None:
        """A command was applied; so many consumers have all that they may now."""
        now = self._clock.monotonic_us()
        self._reckon(now)
        self.now_us = now
        self.busy = busy
        if self.commands > 0:
            self.commands -= 1
            self.byte_count -= len(data) + COMMAND_OVERHEAD_BYTES
        if self._timed is not None and data == self._timed:
            self._timed = None
            self._keep(max(now - self._timed_us, 0))

    def take(self) -> Metered:
        """Return the measurements since the last call."""
        self._reckon(self._clock.monotonic_us())
        found = Metered(
            int(self.commands), int(self.byte_count), sorted(self._durations), int(self._busy_us)
        )
        self._durations = []
        self._next = 0
        self._busy_us = 0
        return found

    def _reckon(self, now: i64) -> None:
        if self.busy > 0:
            self._busy_us += self.busy * max(now - self._since_us, 0)
        self._since_us = now

    def _keep(self, duration: i64) -> None:
        """Keep the newest durations, and their average."""
        before = self.command_us
        self.command_us = before + (duration - before) // SMOOTHING if before > 0 else duration
        if len(self._durations) < COMMANDS_TIMED_MAX:
            self._durations.append(int(duration))
        else:
            self._durations[self._next] = int(duration)
            self._next = (self._next + 1) % COMMANDS_TIMED_MAX
