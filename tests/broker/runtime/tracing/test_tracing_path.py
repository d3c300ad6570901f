"""Sessions and replicas report messages to the tracer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp.encode import field_table

from headrace_broker.codecs.header_edit import Death, dead_letter
from headrace_broker.config.configuration import Config, ConfigError, load_config
from headrace_broker.gateways.grpc.values.properties import decode_properties, encode_properties
from headrace_broker.model.message import Publish
from headrace_broker.runtime.contract.port import ACCEPT, RELEASE, Attachment
from headrace_broker.runtime.contract.trace_port import TRACING
from headrace_broker.runtime.tracing.context import ContextReader, TraceContext
from headrace_broker.runtime.tracing.tracing import SpanTracer
from headrace_protos.broker.v1.message_pb2 import Properties

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
BLOCK = b"\x20\x00" + field_table({"traceparent": PARENT, "tracestate": "k=v"})
BOTH = pytest.mark.parametrize("gateway", [2, 3])  # a node with a replica, and one without


class Sink:
    """Keeps spans: kinds with their fields."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, dict[str, Any]]] = []

    def emit(
        self, kind: str, context: TraceContext, start: int, end: int, attributes: dict[str, Any]
    ) -> None:
        assert context == TraceContext(PARENT, "k=v")
        assert start <= end
        self.spans.append((kind, attributes))

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.spans]


@pytest.fixture
def sink() -> Iterator[Sink]:
    sink = Sink()
    TRACING.tracer = SpanTracer(sink, ContextReader(1.0))
    yield sink
    TRACING.tracer = None


def traced(count: int = 1) -> list[Publish]:
    return [Publish(1, b"\x00\x04work", False, False, BLOCK, b"x") for _ in range(count)]


@BOTH
def test_a_message_is_followed_from_commit_to_settlement(
    world: Any, listener: Any, publishes: Any, sink: Sink, gateway: int
) -> None:
    session = world.open(gateway, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    session.publish([*publishes(b"plain"), *traced(2)], None)
    session.flush()
    world.settle_down()
    assert sorted(sink.kinds()) == ["commit", "commit", "queue", "queue"]
    session.settle(1, ACCEPT, 1, 2)
    assert sink.kinds()[4:] == ["deliver"]
    session.flush()
    assert sink.kinds()[5:] == []
    world.settle_down()
    assert sink.kinds()[5:] == ["settle"]
    session.settle(1, RELEASE, 3, 3)
    session.flush()
    world.settle_down()
    assert sorted(sink.kinds()[6:]) == ["deliver", "queue", "settle"]  # and delivered once more
    [again] = [found for kind, found in sink.spans if found.get("headrace.acquired_count")]
    assert again["headrace.acquired_count"] == 1
    assert TRACING.tracer.pending == 1  # type: ignore[union-attr]
    session.close()
    world.settle_down()
    assert TRACING.tracer.pending == 0  # type: ignore[union-attr]
    assert sink.spans[-1][1]["headrace.outcome"] == "abandoned"


@BOTH
def test_what_is_got_is_followed_too(world: Any, listener: Any, sink: Sink, gateway: int) -> None:
    session = world.open(gateway, listener)
    session.publish(traced(), None)
    session.flush()
    world.settle_down()
    run, _ = world.run(session.get())
    assert len(run.positions) == 1
    assert sink.kinds() == ["commit", "queue"]
    session.settle(0, ACCEPT, run.first, run.first)
    session.flush()
    world.settle_down()
    assert sink.kinds() == ["commit", "queue", "deliver", "settle"]


def test_a_new_leader_s_repetitions_are_no_new_spans(world: Any, listener: Any, sink: Sink) -> None:
    session = world.open(1, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    session.publish(traced(), None)
    session.flush()
    world.settle_down()
    world.lead(2)
    session.relocate(2)
    world.settle_down()
    assert sorted(sink.kinds()) == ["commit", "queue"]


def test_headers_are_what_the_publisher_sent(world: Any, listener: Any, sink: Sink) -> None:
    session = world.open(3, listener)
    session.publish(traced(), None)
    session.flush()
    world.settle_down()
    run, _ = world.run(session.get())
    assert BLOCK in run.blob


def test_nothing_is_followed_while_nobody_traces(world: Any, listener: Any) -> None:
    assert TRACING.tracer is None
    session = world.open(2, listener)
    world.run(session.attach(1, Attachment("c", 10)))
    session.publish(traced(), None)
    session.flush()
    world.settle_down()
    session.settle(1, ACCEPT, 1, 1)
    session.flush()
    world.settle_down()
    assert world.hosts[1].machine.held_count == 0


@pytest.mark.parametrize("trusted", [False, True])
def test_a_dead_letter_keeps_its_trace(trusted: bool) -> None:
    death = Death(b"work", b"rejected", b"", b"work", 1_700_000_000)
    letter = dead_letter(BLOCK, death, trusted, False)
    again = dead_letter(letter.data, death, True, True)
    for block in (letter.data, again.data):
        assert b"x-death" in block
        assert ContextReader(1.0).read(block) == TraceContext(PARENT, "k=v")


def test_a_trace_comes_in_and_goes_out_over_grpc() -> None:
    sent = Properties()
    sent.headers.fields["traceparent"].string = PARENT
    sent.headers.fields["tracestate"].string = "k=v"
    block = encode_properties(sent)
    assert ContextReader(1.0).read(block) == TraceContext(PARENT, "k=v")
    assert decode_properties(BLOCK).headers.fields["traceparent"].string == PARENT
    assert decode_properties(BLOCK).headers.fields["tracestate"].string == "k=v"


# What is configured


def config_of(directory: Path, tracing: str) -> Config:
    path = directory / "node.toml"
    path.write_text(
        f"""
        [node]
        id = 1
        name = "n1"
        data_dir = "d"
        [cluster]
        nodes = [{{ id = 1, name = "n1", address = "127.0.0.1:7101" }}]
        [tracing]
        {tracing}
        """
    )
    return load_config(path, {})


@pytest.mark.parametrize(
    ("tracing", "rule"),
    [
        ("ratio = 1.5", "tracing.ratio: 1.5 is not allowed; it must be a number from 0.0 to 1.0"),
        ("ratio = -1", "a number from 0.0 to 1.0"),
        ('endpoint = "collector:4317"', "http://HOST:PORT, https://HOST:PORT, or empty"),
        ("rate = 1", "unknown key; allowed are endpoint, ratio"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, tracing: str, rule: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        config_of(tmp_path, tracing)
    assert rule in str(refusal.value)


def test_spans_reach_an_exporter_of_the_sdk(tmp_path: Path) -> None:
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    from headrace_broker.runtime.tracing.export import Exporter

    kept = memory.InMemorySpanExporter()
    config = config_of(tmp_path, "")
    exporter = Exporter(config, export.SimpleSpanProcessor(kept))
    attributes: dict[str, Any] = {"messaging.destination.name": "q", "headrace.vhost": "/"}
    exporter.emit("queue", TraceContext(PARENT, "k=v"), 1_000, 5_000, attributes)
    exporter.close()
    [span] = kept.get_finished_spans()
    assert span.name == "queue q"
    assert f"{span.context.trace_id:032x}" in PARENT
    assert f"{span.parent.span_id:016x}" in PARENT
    assert span.parent.is_remote
    assert span.context.trace_state.get("k") == "v"
    assert (span.start_time, span.end_time) == (1_000, 5_000)
    assert span.attributes["messaging.system"] == "headrace"
    assert span.attributes["messaging.operation.name"] == "queue"
    assert span.attributes["headrace.vhost"] == "/"
    assert span.resource.attributes["service.instance.id"] == "n1"


def test_a_trace_that_is_not_sampled_by_its_parent_makes_no_span_at_the_sdk(tmp_path: Path) -> None:
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    from headrace_broker.runtime.tracing.export import Exporter

    kept = memory.InMemorySpanExporter()
    exporter = Exporter(config_of(tmp_path, ""), export.SimpleSpanProcessor(kept))
    context = TraceContext(PARENT[:-2] + "00")
    exporter.emit("queue", context, 1, 2, {"messaging.destination.name": "q"})
    exporter.close()
    assert kept.get_finished_spans() == ()


def test_without_the_extra_a_node_does_not_start_to_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import contextlib
    import sys

    from headrace_broker.runtime.tracing.start import trace

    monkeypatch.setitem(sys.modules, "headrace_broker.runtime.tracing.export", None)

    async def start() -> None:
        async with contextlib.AsyncExitStack() as stack:
            trace(config_of(tmp_path, 'endpoint = "http://127.0.0.1:4317"'), stack)

    with pytest.raises(ConfigError) as refusal:
        asyncio.run(start())
    assert "needs the extra [otel]" in str(refusal.value)
    assert TRACING.tracer is None
