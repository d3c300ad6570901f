"""The catalogue of metrics, a real node's samples and the documentation say the same."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from e2e.harness.authority import Authority

from headrace_broker.config.configuration import Config
from headrace_broker.runtime.metrics.catalogue import METRICS
from headrace_broker.runtime.metrics.detailed import (
    CHANNEL_DETAILS,
    CONNECTION_DETAILS,
    LEFT_OUT,
    QUEUE_DETAILS,
)
from headrace_broker.runtime.metrics.metric import PREFIX, Metric, Sample
from headrace_broker.runtime.metrics.source import NodeMetrics
from headrace_broker.runtime.metrics.stats import StatsBook
from headrace_broker.runtime.node.node import BrokerNode
from headrace_broker.runtime.security.certificate_end import CertificateEnd
from headrace_raftlog.model.histogram import Histogram

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "metrics.md"
# Told by the HTTP server, which knows whether the node is ready.
OF_STATUS = {"ready", "queues_leaderless", "queues_quorum_critical"}
# There only once something has happened, or with other nodes.
SOMETIMES = {
    "certificate_expiry_timestamp_seconds",
    "peer_up",
    "raft_replication_lag_entries",
    "http_requests_total",
    "http_request_duration_seconds",
    "grpc_calls_started_total",
    "grpc_calls_total",
    "grpc_call_duration_seconds",
}


def test_a_node_has_all_metrics_of_the_catalogue(config: Config) -> None:
    async def work() -> list[Sample]:
        node = BrokerNode(config, lambda error: None)
        await node.start()
        try:
            await node.join()
            metrics = NodeMetrics(node, StatsBook(node))
            metrics.http.answered("metrics", "GET", 200, 0.001)
            metrics.grpc.started("s", "m")
            metrics.grpc.ended("s", "m", "OK", 0.001)
            assert len(list(metrics.objects(["queue_metrics"]))) == 2
            return list(metrics.samples())
        finally:
            await node.stop()

    samples = asyncio.run(work())
    names = {sample.name for sample in samples}
    assert names - METRICS.keys() == set()
    assert METRICS.keys() - names - OF_STATUS <= SOMETIMES
    for sample in samples:
        metric = METRICS[sample.name]
        assert len(sample.labels) == len(metric.labels), sample
        assert isinstance(sample.value, Histogram) == (metric.kind == "histogram"), sample
    assert len({sample[::2] for sample in samples}) == len(samples)
    values = {sample.name: sample.value for sample in samples if not sample.labels}
    assert values["raft_groups_led"] == 1
    assert values["raft_elections_total"] == 1
    assert int(str(values["raft_entries_committed_total"])) > 1
    assert isinstance(values["log_sync_duration_seconds"], Histogram)
    assert sum(values["log_sync_duration_seconds"].counts) > 0


def test_a_certificate_s_end_is_read_anew_when_its_file_changes(tmp_path: Path) -> None:
    pair = Authority(tmp_path).sign("/CN=n1", "n1")
    path = tmp_path / "c.pem"
    end = CertificateEnd(str(path))
    assert end.read() is None
    path.write_bytes(Path(pair.certificate).read_bytes())
    first = end.read()
    assert first is not None
    assert first > 1_700_000_000
    path.write_text("no certificate")
    assert end.read() is None


def row_of(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{PREFIX}{metric.name}` | {metric.kind} | {labels} | {metric.text} |"


def test_the_documentation_has_a_row_for_each_metric() -> None:
    details = [each.metric for each in (*QUEUE_DETAILS, *CONNECTION_DETAILS, *CHANNEL_DETAILS)]
    rows = [row_of(each) for each in (*METRICS.values(), *details, LEFT_OUT)]
    found = re.findall(r"^\| `headrace_.*\|$", DOCUMENT.read_text(), re.MULTILINE)
    assert found == rows
