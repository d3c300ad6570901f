"""Spans of the broker, from real nodes to a collector over OTLP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for

collector = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="needs the extra [otel]"
)
collector_grpc = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc", reason="needs the extra [otel]"
)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
UNSAMPLED = "5bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
KINDS = {"route", "commit", "queue", "deliver", "settle"}


class Collector:
    """Takes spans; `found` are (node, span)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: list[tuple[str, Any]] = []

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - its name
        del context
        with self._lock:
            for resource in request.resource_spans:
                told = {each.key: each.value.string_value for each in resource.resource.attributes}
                node = told["service.instance.id"]
                self._found += [
                    (node, span) for scope in resource.scope_spans for span in scope.spans
                ]
        return collector.ExportTraceServiceResponse()

    def of(self, trace: str) -> list[tuple[str, Any]]:
        """Return what has come of a trace."""
        with self._lock:
            return [each for each in self._found if each[1].trace_id.hex() == trace]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    found = Collector()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    collector_grpc.add_TraceServiceServicer_to_server(found, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("HEADRACE_TRACING_ENDPOINT", f"http://127.0.0.1:{port}")
    yield found
    server.stop(None).wait()


def test_a_message_has_a_span_for_each_part_of_its_way_at_the_node_that_did_it(
    spans: Collector, tmp_path: Path
) -> None:
    with Cluster(tmp_path / "data") as cluster:
        channel = cluster.connect("n1").channel()
        channel.queue_declare("q", durable=True)
        leader = cluster.leader("q")
        other = next(name for name in ("n2", "n3") if name != leader)
        channel.confirm_delivery()
        for trace, flags in ((UNSAMPLED, "00"), (TRACE, "01")):
            headers = {"traceparent": f"00-{trace}-{PARENT}-{flags}"}
            channel.basic_publish("", "q", b"x", pika.BasicProperties(headers=headers))
        taker = cluster.connect(other).channel()
        for method, properties, _ in taker.consume("q"):
            taker.basic_ack(method.delivery_tag)
            if properties.headers["traceparent"].endswith("01"):
                break
        wait_for("all spans", lambda: len(spans.of(TRACE)) >= len(KINDS))
        cluster.close_connections()
    found = {span.name.partition(" ")[0]: (node, span) for node, span in spans.of(TRACE)}
    assert found.keys() == KINDS
    assert {name: node for name, (node, _) in found.items()} == {
        **dict.fromkeys(("route", "commit"), "n1"),
        "queue": leader,
        **dict.fromkeys(("deliver", "settle"), other),
    }
    for _, span in found.values():
        assert span.parent_span_id.hex() == PARENT
        assert span.end_time_unix_nano >= span.start_time_unix_nano
    told = {each.key: each.value for each in found["deliver"][1].attributes}
    assert told["headrace.outcome"].string_value == "accept"
    assert spans.of(UNSAMPLED) == []
