"""Definition of a metric, and one value of it."""

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
    text: str  # one sentence
    labels: tuple[str, ...] = ()  # names of what its series are told apart by

    @property
    def kind(self) -> str:
        """COUNTER, GAUGE or HISTOGRAM: the end of the name says which."""
        if self.name.endswith("_total"):
            return COUNTER
        return HISTOGRAM if self.name.endswith("_duration_seconds") else GAUGE


class Sample(NamedTuple):
    """A value."""

    name: str  # of its metric
    value: float | Histogram  # a figure, or durations
    labels: tuple[str, ...] = ()  # values of the metric's labels
