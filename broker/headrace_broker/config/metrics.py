"""The parts of the configuration about watching a node from outside."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class MetricsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Listener for Prometheus.

    Attributes:
        anonymous: on the listener `metrics`, without a log-in; the HTTP API always asks for one.
        per_object: metrics of single queues and connections too, as many series as there are of
            these, within a bound.
    """

    anonymous: bool = False
    per_object: bool = False


class TracingSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Spans of messages, for OpenTelemetry; needs the extra [otel].

    Attributes:
        endpoint: of a collector that takes OTLP over gRPC, empty for none.
        ratio: share of the traces that publishers sample of which the broker makes spans.
    """

    endpoint: Annotated[
        str,
        Meta(
            pattern=r"^$|^https?://[A-Za-z0-9.:_\[\]-]{1,253}/?$",
            description="http://HOST:PORT, https://HOST:PORT, or empty for none",
        ),
    ] = ""
    ratio: Annotated[float, Meta(ge=0.0, le=1.0)] = 1.0
