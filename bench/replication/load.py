"""Load on a replicated log, and its results."""

from __future__ import annotations

from typing import NamedTuple

from replication.figures import Latency, latency


class Load(NamedTuple):
    """A closed loop: commands of one size, a fixed number of them in flight.

    Attributes:
        size: bytes of a command.
        window: commands proposed and not yet applied, in each group.
        seconds: measured for so long.
        warmup_seconds: runs for so long beforehand.
    """

    size: int
    window: int
    seconds: float
    warmup_seconds: float = 1.0


class Outcome(NamedTuple):
    """Result of one leader under a load.

    Attributes:
        commits: commands applied by the leader within the measured time.
        seconds: that time.
        latency: from proposing a command to applying it.
    """

    commits: int
    seconds: float
    latency: Latency

    @property
    def commits_s(self) -> float:
        """Commands per second."""
        return self.commits / self.seconds


class Meter:
    """Counts the commands of one load.

    Args:
        load: the load.
        now: seconds on a monotonic clock.
    """

    def __init__(self, load: Load, now: float) -> None:
        self._begin = now + load.warmup_seconds
        self._end = self._begin + load.seconds
        self._took: list[float] = []

    def over(self, now: float) -> bool:
        """Return whether the measured time is over."""
        return now >= self._end

    def count(self, proposed: float, now: float) -> None:
        """Count a command that was proposed then and is applied now."""
        if self._begin <= now < self._end:
            self._took.append(now - proposed)

    def outcome(self) -> Outcome:
        """Return the counts."""
        return Outcome(len(self._took), self._end - self._begin, latency(self._took))
