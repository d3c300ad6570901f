"""Commit meter: latency from a leader's log to its application.

One entry of a node is timed at a time: the first that is proposed after the last one timed was
applied. So measuring costs next to nothing however many are proposed, and a node under load has
some hundred measurements a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.histogram import Histogram
from headrace_raftlog.node.hosted_group import HostedGroup


def monotonic_us() -> int:
    """Return a time that only goes forward."""
    return time.monotonic_ns() // 1000


@final
class CommitMeter:
    """Counts a node's commits and elections, and times some commits."""

    def __init__(self, clock_us: Callable[[], int] = monotonic_us) -> None:
        self.latency = Histogram()  # of the entries that were timed
        self.entries: i64 = 0  # applied here, all groups and kinds together
        # how often a group turned out to have a leader that it did not have before
        self.leader_changes: i64 = 0
        self.elections: i64 = 0  # terms that began, as this node's replicas saw it
        self.installed: i64 = 0  # snapshots that were fetched from other nodes and taken over
        self.timing = False  # whether an entry is being timed
        self._clock_us = clock_us  # a time that only goes forward
        self._hosted: HostedGroup | None = None
        self._term: i64 = 0
        self._index: i64 = 0
        self._since_us: i64 = 0

    def begin(self, hosted: HostedGroup, index: i64) -> None:
        """Time an entry that was just proposed to a group led here; none must be timed yet."""
        self.timing = True
        self._hosted = hosted
        self._term = hosted.core.term
        self._index = index
        self._since_us = self._clock_us()

    def applied(self, hosted: HostedGroup, count: i64, index: i64) -> None:
        """Count entries that were applied, of which `index` is the last one's."""
        self.entries += count
        if self.timing and hosted is self._hosted and index >= self._index:
            if self._leads(hosted):
                self.latency.observe(self._clock_us() - self._since_us)
            self._end()

    def tick(self) -> None:
        """Give up an entry that may have been lost: its group is gone or is led elsewhere."""
        hosted = self._hosted
        if hosted is not None and (hosted.removed or not self._leads(hosted)):
            self._end()

    def led_anew(self, hosted: HostedGroup, changed: bool) -> None:
        """Note what a group's term is now, and whether another member leads it."""
        if changed and hosted.told_leader != 0:
            self.leader_changes += 1
        term: i64 = hosted.core.term
        self.elections += term - hosted.counted_term
        hosted.counted_term = term

    def _leads(self, hosted: HostedGroup) -> bool:
        return hosted.core.role == LEADER and hosted.core.term == self._term

    def _end(self) -> None:
        self.timing = False
        self._hosted = None
