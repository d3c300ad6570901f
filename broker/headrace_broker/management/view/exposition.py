"""Metrics as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from headrace_broker.model.limits import METRIC_TURN_SERIES
from headrace_broker.runtime.metrics.detailed import ObjectTable
from headrace_broker.runtime.metrics.metric import COUNTER, HISTOGRAM, PREFIX, Metric, Sample
from headrace_raftlog.model.histogram import Histogram

SECOND_US: Final = 1_000_000


class _Once(Collector):
    """Families that were made for one answer."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        """Return them."""
        return self._families


def text_of(families: Iterable[Family]) -> bytes:
    """Return families in the text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(list(families)))
    return generate_latest(registry)


def pieces_of(table: ObjectTable) -> Iterator[str]:
    """Return metrics of many objects in the text format, METRIC_TURN_SERIES lines at a time.

    What names an object is written once for all of its metrics: prometheus_client, which writes it
    anew for each, takes three times as long.
    """
    blocks: list[str] = []
    keys = iter(table.keys)
    while some := list(islice(keys, METRIC_TURN_SERIES)):
        blocks += [_block(table.labels, key) for key in some]
        yield ""
    for metric, values in table.columns:
        name = f"{PREFIX}{metric.name}"
        yield f"# HELP {name} {metric.text}\n# TYPE {name} {metric.kind}\n"
        lines = zip(blocks, values, strict=True)
        while part := list(islice(lines, METRIC_TURN_SERIES)):
            yield "".join([f"{name}{block} {value!r}\n" for block, value in part])


def _block(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    pairs = zip(names, values, strict=True)
    return "{" + ",".join([f'{name}="{_escaped(value)}"' for name, value in pairs]) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def families_of(metrics: dict[str, Metric], samples: Iterable[Sample]) -> list[Family]:
    """Return samples as families in the order of their metrics, without empty ones."""
    grouped: dict[str, list[Sample]] = {}
    for sample in samples:
        grouped.setdefault(sample.name, []).append(sample)
    unknown = grouped.keys() - metrics.keys()
    assert not unknown, f"{sorted(unknown)} are in no catalogue"
    return [family_of(each, grouped[name]) for name, each in metrics.items() if name in grouped]


def family_of(metric: Metric, samples: Iterable[Sample]) -> Family:
    """Return the samples of one metric as a family."""
    name = f"{PREFIX}{metric.name}"
    if metric.kind == HISTOGRAM:
        histogram = HistogramMetricFamily(name, metric.text, labels=metric.labels)
        for sample in samples:
            assert isinstance(sample.value, Histogram)
            seconds = float(sample.value.sum_us) / SECOND_US
            histogram.add_metric(sample.labels, _buckets(sample.value), seconds)
        return histogram
    kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
    family = kind(name, metric.text, labels=metric.labels)
    for sample in samples:
        assert not isinstance(sample.value, Histogram)
        family.add_metric(sample.labels, float(sample.value))
    return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return cumulated counts by upper bound in seconds."""
    total = 0
    found: list[tuple[str, float]] = []
    bounds = [str(bound / SECOND_US) for bound in histogram.bounds_us]
    for bound, count in zip([*bounds, "+Inf"], list(histogram.counts), strict=True):
        total += count
        found.append((bound, total))
    return found


class ProcessMetrics:
    """Metrics of prometheus_client about any process and Python: `process_*`, `python_gc_*`."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return them as they are now."""
        return generate_latest(self._registry)
