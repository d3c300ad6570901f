"""What a metric is, and a value of one."""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace_raftlog.model.histogram import Histogram

COUNTER: Final = "counter"  # only grows while the node runs; its name ends in _total
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"  # of seconds

PREFIX: Final = "headrace_"


class Metric(NamedTuple):
    """A row of the catalogue."""

    name: str  # without PREFIX
    kind: str  # COUNTER, GAUGE or HISTOGRAM
    text: str  # one sentence
    labels: tuple[str, ...] = ()  # names of what its series are told apart by


class Sample(NamedTuple):
    """A value."""

    name: str  # of its metric
    value: float | Histogram  # a figure, or durations
    labels: tuple[str, ...] = ()  # values of the metric's labels
