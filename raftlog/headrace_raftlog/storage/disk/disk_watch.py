"""Judges by the steps of writes whether the disk hangs."""

from __future__ import annotations

from typing import final

from headrace_raftlog.model.limits import DISK_STEADY_FRACTION


@final
class DiskWatch:
    """Counts for how long the step of a write has been under way.

    Time is what the event loop has seen pass, so that a process that stood still does not take its
    own absence for the disk's. A disk that hung counts as answering again after `stall_s` in which
    no step took longer than a fraction of that: one that hangs every few seconds leads nothing.
    """

    def __init__(self, stall_s: float) -> None:
        self.stalled = False  # whether the disk hangs
        self.stalled_s = 0.0  # seconds since the write began for which it does, or did last
        self._stall_s = stall_s
        self._step: tuple[int, int] | None = None
        self._held_s = 0.0
        self._steady_s = 0.0

    def tick(self, passed_s: float, step: tuple[int, int] | None) -> bool:
        """Account for time that passed; return True if `stalled` has changed.

        Args:
            passed_s: seconds since the call before.
            step: see `LogWriter.under_way`.
        """
        if step is None or step != self._step:
            self._held_s = 0.0
        else:
            self._held_s += passed_s
        self._step = step
        if not self.stalled:
            self.stalled_s = self._held_s
            self.stalled = self._held_s >= self._stall_s
            self._steady_s = 0.0
            return self.stalled
        self.stalled_s += passed_s
        if self._held_s > self._stall_s / DISK_STEADY_FRACTION:
            self._steady_s = 0.0
        else:
            self._steady_s += passed_s
        self.stalled = self._steady_s < self._stall_s
        return not self.stalled
