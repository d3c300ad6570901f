"""The parts of the configuration about watching a node from outside."""

from __future__ import annotations

from msgspec import Struct


class MetricsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Prometheus may read.

    Attributes:
        anonymous: on the listener `metrics`, without a log-in; the HTTP API always asks for one.
        per_object: metrics of single queues and connections too, as many series as there are of
            these, within a bound.
    """

    anonymous: bool = False
    per_object: bool = False
