"""A gauge: a measured quantity, its marks, and how many of them it has passed.

It rises at once, and early when it grows so fast that a mark would be passed before anything can
be done about it. It falls only after it was below a lower mark for a whole window, and no growth
points at the mark again: what rises and falls within a window does not make it flap.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.model.limits import (
    GAUGE_LOOK_AHEAD_MS,
    GAUGE_SAMPLES_MAX,
    GAUGE_TREND_MS_MIN,
    GAUGE_WINDOW_MS,
)

MS_US: Final = 1000


@final
class Mark:
    """A level.

    Attributes:
        high: passed at this value and above.
        low: passed no more below this value; at most `high`.
    """

    def __init__(self, high: i64, low: i64) -> None:
        assert low <= high, "a mark is left below where it is passed"
        self.high = high
        self.low = low


@final
class Trend:
    """The values of the last GAUGE_WINDOW_MS, and how fast they grow."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=GAUGE_SAMPLES_MAX)

    def add(self, now_us: i64, value: i64) -> None:
        """Note a value."""
        self._samples.append((now_us, value))
        while now_us - self._samples[0][0] > GAUGE_WINDOW_MS * MS_US:
            self._samples.popleft()

    def peak(self) -> i64:
        """Return the largest value of the window; there is one at least."""
        peak: i64 = self._samples[0][1]
        for _, value in self._samples:
            peak = max(peak, value)
        return peak

    def growth(self, ahead_us: i64) -> i64:
        """Return by how much the value grows within a time at the rate of the window.

        The rate is that of the straight line with the least squares of distances; 0 for one that
        falls, and as long as the samples span less than GAUGE_TREND_MS_MIN.
        """
        samples = self._samples
        first_us, first = samples[0]
        if samples[-1][0] - first_us < GAUGE_TREND_MS_MIN * MS_US:
            return 0
        count = float(len(samples))
        mean_time = 0.0
        mean_value = 0.0
        for time_us, value in samples:
            mean_time += float(time_us - first_us) / count
            mean_value += float(value - first) / count
        together = 0.0
        squares = 0.0
        for time_us, value in samples:
            distance = float(time_us - first_us) - mean_time
            together += distance * (float(value - first) - mean_value)
            squares += distance * distance
        if together <= 0.0:
            return 0
        return int(together / squares * float(ahead_us))


@final
class Gauge:
    """Number of marks that a quantity has passed.

    Attributes:
        stage: 0 for none, n for the first n marks.
        early: the stage was reached by looking ahead; the value was not there yet.
        value: the last one.
    """

    def __init__(self) -> None:
        self.stage: i64 = 0
        self.early = False
        self.value: i64 = 0
        self._marks: list[Mark] = []
        self._trend = Trend()
        self._risen_us: i64 = 0
        self._judged = False  # by these marks

    def set_marks(self, marks: list[Mark]) -> None:
        """Change the marks, the lowest first; the next sample is compared with them alone.

        A changed mark counts at once, up and down: neither what was before nor growth matters.
        """
        for index in range(1, len(marks)):
            assert marks[index - 1].high <= marks[index].high, "marks are in order"
        self._marks = marks
        self._trend = Trend()
        self._judged = False

    def sample(self, now_us: i64, value: i64) -> bool:
        """Take a value; return whether that changes the stage."""
        self.value = value
        self._trend.add(now_us, value)
        before = self.stage
        reached = self._passed(value)
        if not self._judged:
            self._judged = True
            self.stage = reached
            self.early = False
            self._risen_us = now_us
            return self.stage != before
        expected = value + self._trend.growth(GAUGE_LOOK_AHEAD_MS * MS_US)
        rising = max(reached, self._passed(expected))
        if rising > self.stage:
            self.stage = rising
            self.early = rising > reached
            self._risen_us = now_us
        elif now_us - self._risen_us >= GAUGE_WINDOW_MS * MS_US:
            self._fall(max(expected, self._trend.peak()))
        return self.stage != before

    def _passed(self, value: i64) -> i64:
        passed: i64 = 0
        for mark in self._marks:
            if value < mark.high:
                break
            passed += 1
        return passed

    def _fall(self, value: i64) -> None:
        while self.stage > 0 and value < self._marks[self.stage - 1].low:
            self.stage -= 1
