"""A node and its place in the cluster."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace_broker.model import build_info
from headrace_broker.model.shard import node_name
from headrace_broker.runtime.metrics.metric import Sample
from headrace_broker.runtime.rpc.protocol import OUTCOMES
from headrace_broker.runtime.security.certificate_end import CertificateEnd
from headrace_raftlog.model.group import CATALOG_GROUP

if TYPE_CHECKING:
    from headrace_broker.runtime.metrics.stats import StatsBook
    from headrace_broker.runtime.node.node import BrokerNode


class NodeSamples:
    """Metrics of a node that always exist."""

    def __init__(self, node: BrokerNode, stats: StatsBook) -> None:
        self._node = node
        self._stats = stats  # knows how late its loop is
        self._started = time.monotonic()
        self._compiled = str(build_info.compiled()).lower()
        files = {
            "listeners": node.config.tls.certificate_file,
            "cluster": node.config.cluster_tls.certificate_file,
        }
        self._certificates = {name: CertificateEnd(path) for name, path in files.items() if path}

    def samples(self) -> Iterator[Sample]:
        """Return the figures as they are now."""
        node = self._node
        build = (build_info.VERSION, self._compiled, platform.python_version())
        yield Sample("build_info", 1, build)
        yield Sample("identity_info", 1, (node.config.node.name, node.config.cluster.name))
        yield Sample("uptime_seconds", time.monotonic() - self._started)
        yield Sample("maintenance", node.maintenance.on)
        yield Sample("loop_lag_seconds", self._stats.lag_ms / 1000)
        yield from self._resources()
        for name, certificate in self._certificates.items():
            end_s = certificate.read()
            if end_s is not None:
                yield Sample("certificate_expiry_timestamp_seconds", end_s, (name,))
        yield from self._cluster()

    def _resources(self) -> Iterator[Sample]:
        own = self._node.alarms.own
        yield Sample("memory_used_bytes", own.memory_used)
        yield Sample("memory_limit_bytes", own.memory_limit)
        yield Sample("memory_total_bytes", own.memory_total)
        yield Sample("disk_free_bytes", own.disk_free)
        yield Sample("disk_free_limit_bytes", own.disk_limit)

    def _cluster(self) -> Iterator[Sample]:
        node = self._node
        own = node.config.node.id
        yield Sample("cluster_nodes", len({node_name(each) for each in node.names.values()}))
        for peer, name in node.names.items():
            if peer != own:
                yield Sample("peer_up", node.peers_up.get(peer, 0) > 0, (name,))
        for each, name in node.names.items():
            clock = node.clocks.status(each)
            if clock is not None:
                yield Sample("clock_skew_seconds", clock.skew_ms / 1000, (name,))
                yield Sample("queue_clock_lead_seconds", clock.lead_ms / 1000, (name,))
                yield Sample("clock_warning", bool(clock.warning), (name,))
        leader = node.raft.leader(CATALOG_GROUP)
        yield Sample("catalog_has_leader", leader != 0)
        yield Sample("catalog_leader", leader == own)
        for outcome in OUTCOMES:
            yield Sample("rpc_questions_total", node.rpc.counts[outcome], (outcome,))
        yield Sample("rpc_questions_pending", node.rpc.outstanding)
