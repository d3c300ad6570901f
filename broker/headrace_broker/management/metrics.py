"""/metrics: this node's flow control for Prometheus.

The number of series does not grow with clients: what connections, channels and accounts have is
added up. /metrics/per-object has series for each of the METRIC_QUEUES_MAX largest queues led here;
which ones they are changes with time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace_broker.management.access import monitor
from headrace_broker.management.route import MONITORING, Route, got
from headrace_broker.management.status_source import StatusSource
from headrace_broker.model.flow_status import QueueFlow
from headrace_broker.model.limits import METRIC_QUEUES_MAX
from headrace_broker.runtime.flow_report import FlowReport
from headrace_broker.runtime.flow_totals import FlowTotals, flow_totals

PREFIX: Final = "headrace_flow"
TEXT: Final = "text/plain"


class MetricEndpoints:
    """Answers scrapes.

    Args:
        report: knows the node's flow control.
        status: of the node.
    """

    def __init__(self, report: FlowReport, status: StatusSource) -> None:
        self._report = report
        self._status = status

    def routes(self) -> list[Route]:
        """Return what is answered."""
        return [
            got(
                "/metrics",
                self._node,
                "The node's metrics for Prometheus.",
                str,
                MONITORING,
                tag="metrics",
                media=TEXT,
            ),
            got(
                "/metrics/per-object",
                self._per_object,
                "Metrics of its largest queues.",
                str,
                MONITORING,
                tag="metrics",
                media=TEXT,
            ),
        ]

    async def _node(self, request: web.Request) -> web.Response:
        monitor()
        totals = flow_totals(self._report.facts)
        return _answer([*_flow(totals), *_traffic(self._status)])

    async def _per_object(self, request: web.Request) -> web.Response:
        monitor()
        return _answer(_queues(self._report.facts.largest_queues(METRIC_QUEUES_MAX)))


class _Once(Collector):
    """Metrics that were made for one scrape."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """Return them."""
        return self._metrics


def _answer(metrics: Iterable[Metric]) -> web.Response:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(list(metrics)))
    headers = {"Content-Type": CONTENT_TYPE_LATEST}
    return web.Response(body=generate_latest(registry), headers=headers)


def _gauge(name: str, text: str, label: str, values: dict[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _plain(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)


def _flow(totals: FlowTotals) -> Iterator[Metric]:
    yield _gauge("connections", "Client connections by state.", "state", totals.connections)
    yield _gauge(
        "stopped_connections", "Connections that a limit stops now.", "limit", totals.stopped
    )
    stopped = CounterMetricFamily(
        f"{PREFIX}_stopped_seconds",
        "For how long connections were stopped, all added up, by limit.",
        labels=["limit"],
    )
    for limit, seconds in totals.stopped_seconds.items():
        stopped.add_metric([limit], seconds)
    yield stopped
    yield _gauge("debt_messages", "What accounts owe, in messages.", "kind", totals.debt_messages)
    yield _gauge("debt_octets", "What accounts owe, in octets.", "kind", totals.debt_octets)
    yield _plain("accounts_in_debt", "Accounts that owe more than they may.", totals.in_debt)
    yield _gauge("intake", "What the node's intake holds and may hold.", "figure", totals.figures)
    yield _gauge("limit", "The limits in force, as they hold now.", "name", totals.limits)
    yield _gauge("alarm", "1 while the node's own alarm is on.", "kind", totals.alarms)
    yield _plain("saturated_queues", "Queues led here above their watermark.", totals.saturated)
    yield _plain("withheld_confirms", "Messages whose confirms are withheld.", totals.withheld)
    dropped = CounterMetricFamily(
        f"{PREFIX}_dropped_messages", "Held publishes of lost connections that had no room."
    )
    dropped.add_metric([], totals.dropped)
    yield dropped


def _traffic(status: StatusSource) -> Iterator[Metric]:
    overview = status.overview()
    counters = overview.counters
    family = CounterMetricFamily(
        "headrace_messages", "Messages through this node's client connections.", labels=["what"]
    )
    for what in ("publish", "confirm", "deliver", "redeliver", "ack"):
        family.add_metric([what], getattr(counters, what))
    yield family
    messages = GaugeMetricFamily(
        "headrace_queue_messages", "Messages in the queues that this node leads.", labels=["state"]
    )
    messages.add_metric(["ready"], overview.messages_ready)
    messages.add_metric(["unacknowledged"], overview.messages_unacknowledged)
    yield messages


def _queues(rows: Iterable[QueueFlow]) -> Iterator[Metric]:
    rows = list(rows)
    figures: tuple[tuple[str, str, list[float]], ...] = (
        ("messages_ready", "Messages that wait.", [row.ready for row in rows]),
        ("messages_unacknowledged", "Messages at consumers.", [row.unsettled for row in rows]),
        ("octets", "Octets of bodies in it.", [row.octets for row in rows]),
        ("consumers", "Consumers.", [row.consumers for row in rows]),
        ("busy_consumers", "Consumers whose prefetch is full.", [row.busy for row in rows]),
        ("saturated", "1 while it withholds confirms.", [int(row.saturated) for row in rows]),
        ("withheld_confirms", "Messages whose confirms wait.", [row.withheld for row in rows]),
        ("arrival_rate", "Messages per second in, over 10 s.", [row.arrived[1] for row in rows]),
        (
            "settle_rate",
            "Messages per second settled, over 10 s.",
            [row.settled[1] for row in rows],
        ),
    )
    for name, text, values in figures:
        family = GaugeMetricFamily(f"{PREFIX}_queue_{name}", text, labels=["vhost", "queue"])
        for row, value in zip(rows, values, strict=True):
            family.add_metric([row.vhost, row.name], value)
        yield family
