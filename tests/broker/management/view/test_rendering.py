"""Listings of queues as JSON."""

from __future__ import annotations

import pytest

from headrace_broker.management.view.rendering import render_queue
from headrace_broker.model.status import QueueCounts, QueueStatus


def queue(oldest_ms: int = 0, head_timestamp: int = -1) -> QueueStatus:
    counts, arguments = QueueCounts(0, 0, 0, oldest_ms), ("/", "q", "quorum", True, False, False)
    return QueueStatus(*arguments, {}, "n1", ("n1",), counts=counts, head_timestamp=head_timestamp)


def test_the_age_of_the_oldest_message_is_shown() -> None:
    shown = render_queue(queue(oldest_ms=1_000, head_timestamp=5), 4_500)
    assert (shown["oldest_message_age_ms"], shown["head_message_timestamp"]) == (3_500, 5)
    ahead = render_queue(queue(oldest_ms=5_000), 4_500)
    assert ahead["oldest_message_age_ms"] == 0


def test_an_empty_queue_has_no_oldest_message() -> None:
    shown = render_queue(queue(), 4_500)
    assert (shown["oldest_message_age_ms"], shown["head_message_timestamp"]) == (None, None)


@pytest.mark.parametrize(
    ("kind", "limit", "shown"),
    [("quorum", 20, 20), ("quorum", 0, 0), ("quorum", -1, "unlimited"), ("classic", -1, None)],
)
def test_delivery_limit_of_a_quorum_queue_is_told(kind, limit, shown):
    arguments = {"x-foo": 1, "x-max-length": 5}
    queue = QueueStatus(
        *("/", "q", kind, True, False, False), arguments, "n1", ("n1",), delivery_limit=limit
    )
    row = render_queue(queue, 0)
    assert row.get("delivery_limit") == shown
    assert row["unknown_arguments"] == ["x-foo"]
