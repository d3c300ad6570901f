"""Messages per second out of counters that only grow."""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from headrace_broker.model.status import MessageCounters

SAMPLES_MAX: Final = 6  # the rate is the mean over the last five intervals
SAMPLE_INTERVAL_S: Final = 1.0  # between samples: what a person watching notices


class RateMeter:
    """Keeps the last few samples of a node's counters."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, MessageCounters]] = deque(maxlen=SAMPLES_MAX)

    def sample(self, now: float, counters: MessageCounters) -> None:
        """Take a sample at `now`, seconds of a clock that never goes back."""
        self._samples.append((now, counters))

    def rates(self) -> dict[str, float]:
        """Return messages per second for each counter; 0 until there are two samples."""
        names = msgspec.structs.fields(MessageCounters)
        if len(self._samples) < 2:
            return {field.name: 0.0 for field in names}
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        elapsed = end - start
        if elapsed <= 0:
            return {field.name: 0.0 for field in names}
        before, after = msgspec.structs.asdict(first), msgspec.structs.asdict(last)
        return {name: round((after[name] - before[name]) / elapsed, 1) for name in after}
