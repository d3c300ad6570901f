"""Input of a report: tables of the analysis as pandas frames, over one span of time.

Windows of a minute may have been put together to longer ones (`condense`): all that is here goes by
`window_start` and does not mind their length.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

import pandas as pd

from headrace_pipeline.schema.analysis import ANALYSIS, CAPACITY, LONG_S
from headrace_pipeline.schema.column import Table

_MINUTE: Final = 60
_STEPS_S: Final = tuple(minutes * _MINUTE for minutes in (1, 2, 5, 10, 30, 60, 120, 360, 1440))
STEPS_MAX: Final = 180  # of a plot: each is still 2 pixels wide on a telephone


class Span(NamedTuple):
    """A time, in steps of equal length."""

    start: datetime  # of the first step, UTC, a multiple of `step_s` since midnight
    end: datetime  # of the last one
    step_s: int  # length of a step, a multiple of the minutes that windows have

    @property
    def steps(self) -> int:
        """Number of steps."""
        return max(1, round((self.end - self.start).total_seconds() / self.step_s))

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end - self.start).total_seconds()

    def at(self, step: int) -> datetime:
        """Return the start of a step."""
        return self.start + timedelta(seconds=step * self.step_s)

    def numbers(self, at: pd.Series) -> pd.Series:
        """Return the number of the step in which each instant lies."""
        return ((at - pd.Timestamp(self.start)).dt.total_seconds() // self.step_s).astype("int64")


class Frames(NamedTuple):
    """Rows of a span, in columns of the tables of `schema.analysis`; each may be empty."""

    queues: pd.DataFrame  # of QUEUE_WINDOWS
    accounts: pd.DataFrame  # of ACCOUNT_WINDOWS
    nodes: pd.DataFrame  # of NODE_WINDOWS
    blame: pd.DataFrame  # of BLAME
    bottlenecks: pd.DataFrame  # of BOTTLENECKS
    advice: pd.DataFrame  # of CONSUMER_ADVICE
    capacity: pd.DataFrame  # of CAPACITY, over the whole span and what was before it


# The table of each of these frames.
TABLES: Final = (*ANALYSIS.values(), CAPACITY)


def span_of(start: datetime, end: datetime) -> Span:
    """Return a span that holds `start` to `end` in at most STEPS_MAX steps, or days.

    Raises:
        ValueError: `end` is not after `start`.
    """
    if end <= start:
        raise ValueError("the end must be after the start")
    length = (end - start).total_seconds()
    step = next((step for step in _STEPS_S if length <= step * STEPS_MAX), _STEPS_S[-1])
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    before = int((start - midnight).total_seconds() // step)
    first = midnight + timedelta(seconds=before * step)
    steps = -(-(end - first) // timedelta(seconds=step))
    return Span(first, first + timedelta(seconds=steps * step), step)


def empty(table: Table) -> pd.DataFrame:
    """Return a frame without rows."""
    return table.arrow().empty_table().to_pandas()


def nothing() -> Frames:
    """Return frames without rows."""
    return Frames(*(empty(table) for table in TABLES))


def long_windows(frame: pd.DataFrame, span: Span) -> pd.DataFrame:
    """Return the rows of windows of a minute or more that lie in a span."""
    at = frame["window_start"]
    inside = (at >= pd.Timestamp(span.start)) & (at < pd.Timestamp(span.end))
    return frame[inside & (frame["window_s"] >= LONG_S)]
