"""Spans on their way to a collector, by OpenTelemetry's SDK: needs the extra [otel]."""

from __future__ import annotations

import threading

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headrace_broker.config.configuration import Config
from headrace_broker.model import build_info
from headrace_broker.model.limits import (
    TRACE_EXPORT_SPANS_MAX,
    TRACE_QUEUE_SPANS_MAX,
    TRACE_STOP_SECONDS_MAX,
)
from headrace_broker.runtime.tracing.context import TraceContext
from headrace_broker.runtime.tracing.tracing import Value


class Exporter:
    """Hands spans to the SDK."""

    def __init__(self, config: Config, processor: SpanProcessor | None = None) -> None:
        resource = Resource.create(
            {
                "service.name": "headrace",
                "service.namespace": config.cluster.name,
                "service.instance.id": config.node.name,
                "service.version": build_info.VERSION,
            }
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor or _batches(config.tracing.endpoint))
        self._tracer = self._provider.get_tracer("headrace", build_info.VERSION)
        self._propagator = TraceContextTextMapPropagator()

    def emit(
        self,
        kind: str,
        context: TraceContext,
        start_ns: int,
        end_ns: int,
        attributes: dict[str, Value],
    ) -> None:
        """Take a span that is over; see `tracing.SpanSink`."""
        carrier = {"traceparent": context.parent}
        if context.state:
            carrier["tracestate"] = context.state
        place = attributes["messaging.destination.name"] or "amq.default"
        span = self._tracer.start_span(
            f"{kind} {place}",
            context=self._propagator.extract(carrier),
            kind=SpanKind.INTERNAL,
            attributes={
                **attributes,
                "messaging.system": "headrace",
                "messaging.operation.name": kind,
            },
            start_time=start_ns,
        )
        span.end(end_time=end_ns)

    def close(self) -> None:
        """Send what waits, and end; blocks for TRACE_STOP_SECONDS_MAX at most.

        What a collector that does not answer has not got by then is lost.
        """
        ending = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(TRACE_STOP_SECONDS_MAX)


def _batches(endpoint: str) -> SpanProcessor:
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=not endpoint.startswith("https://"))
    return BatchSpanProcessor(
        exporter, max_queue_size=TRACE_QUEUE_SPANS_MAX, max_export_batch_size=TRACE_EXPORT_SPANS_MAX
    )
