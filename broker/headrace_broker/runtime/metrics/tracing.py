"""Spans of messages; all figures are 0 while tracing is off."""

from __future__ import annotations

from collections.abc import Iterator

from headrace_broker.runtime.contract.trace_port import TRACING
from headrace_broker.runtime.metrics.metric import Sample
from headrace_broker.runtime.tracing.tracing import KINDS, SpanTracer


def tracing_samples() -> Iterator[Sample]:
    """Return what became of spans in this process."""
    tracer = TRACING.tracer
    on = tracer if isinstance(tracer, SpanTracer) else None
    for kind in KINDS:
        yield Sample("trace_spans_total", on.counts[kind] if on else 0, (kind,))
    yield Sample("trace_spans_dropped_total", on.dropped if on else 0)
    yield Sample("trace_spans_pending", on.pending if on else 0)
