"""Feature flags of RabbitMQ for what this broker has, always enabled.

Clients and tools look here for what they need: NServiceBus, before it starts, for `stream_queue`,
which is not listed as long as there are no streams. A flag for something that is not there
would have it begin and fail later.
"""

from __future__ import annotations

from typing import Final, TypedDict


class FeatureFlagView(TypedDict):
    """A row of GET /api/feature-flags, as RabbitMQ has them."""

    name: str
    desc: str
    doc_url: str
    state: str
    stability: str
    provided_by: str


def _enabled(name: str, what: str) -> FeatureFlagView:
    return FeatureFlagView(
        name=name,
        desc=what,
        doc_url="",
        state="enabled",
        stability="required",  # it cannot be turned off
        provided_by="headrace",
    )


FEATURE_FLAGS: Final = (
    _enabled("drop_unroutable_metric", "Publishes that no queue takes are counted"),
    _enabled("empty_basic_get_metric", "Gets from empty queues are counted"),
    _enabled("implicit_default_bindings", "Bindings of the default exchange are not stored"),
    _enabled("maintenance_mode_status", "Nodes can be drained, and say so"),
    _enabled("quorum_queue", "Queues of type quorum"),
    _enabled("user_limits", "Limits of connections and channels of a user"),
    _enabled("virtual_host_metadata", "Descriptions and tags of virtual hosts"),
)
