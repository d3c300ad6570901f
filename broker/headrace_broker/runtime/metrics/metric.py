"""Definition of a metric, and one value of it."""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace_raftlog.model.histogram import Histogram

COUNTER: Final = "counter"  # only grows while the node runs; its name ends in _total
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"  # of seconds

PREFIX: Final = "headrace_"


class Metric(NamedTuple):
    """A row of the catalogue.

    Attributes:
        name: without PREFIX.
        kind: COUNTER, GAUGE or HISTOGRAM.
        text: one sentence.
        labels: names of what its series are told apart by.
    """

    name: str
    kind: str
    text: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """A value.

    Attributes:
        name: of its metric.
        value: a figure, or durations.
        labels: values of the metric's labels.
    """

    name: str
    value: float | Histogram
    labels: tuple[str, ...] = ()
