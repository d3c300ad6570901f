"""All metrics of a node, read on request.

Nothing is counted for the sake of metrics in the path of a message: counters are those that the
parts keep anyway, or grow once a batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from headrace_broker.runtime.metrics.clients import client_samples, message_samples
from headrace_broker.runtime.metrics.detailed import ObjectSamples, ObjectTable
from headrace_broker.runtime.metrics.flow import flow_samples
from headrace_broker.runtime.metrics.metric import Sample
from headrace_broker.runtime.metrics.node import NodeSamples
from headrace_broker.runtime.metrics.queues import queue_samples
from headrace_broker.runtime.metrics.raft import raft_samples
from headrace_broker.runtime.metrics.requests import GrpcMeter, HttpMeter
from headrace_broker.runtime.metrics.tracing import tracing_samples

if TYPE_CHECKING:
    from headrace_broker.runtime.metrics.stats import StatsBook
    from headrace_broker.runtime.node.node import BrokerNode


class NodeMetrics:
    """Metrics of one node."""

    def __init__(self, node: BrokerNode, stats: StatsBook) -> None:
        self.http = HttpMeter()  # counts its HTTP requests
        self.grpc = GrpcMeter()  # counts calls of clients
        self.per_object = node.config.metrics.per_object  # metrics of single queues too
        self._node = node
        self._own = NodeSamples(node, stats)
        self._objects = ObjectSamples(node.flow_report.facts)

    def samples(self) -> Iterator[Sample]:
        """Return the samples of the metrics in `catalogue`, but for those of `StatusSource`."""
        node = self._node
        hosting = node.hosting
        yield from self._own.samples()
        yield from client_samples(node.broker)
        yield from self.http.samples()
        yield from self.grpc.samples()
        yield from message_samples(hosting.traffic, hosting.intake, node.dead_letters)
        hosts = hosting.hosts.values()
        yield from queue_samples(hosts, node.catalog.catalog, node.broker.churn)
        yield Sample("leases_expired_total", int(hosting.traffic.leases_expired))
        yield from flow_samples(node.flow_report.facts)
        yield from raft_samples(node.raft.figures(), node.raft.counters(), node.names)
        yield from tracing_samples()

    def objects(
        self, families: Collection[str], vhosts: Collection[str] = ()
    ) -> Iterator[ObjectTable]:
        """Return metrics of single objects: see `ObjectSamples.tables`."""
        return self._objects.tables(families, vhosts)
