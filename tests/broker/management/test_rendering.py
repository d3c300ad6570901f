"""Listings of queues as JSON."""

from __future__ import annotations

from headrace_broker.management.rendering import render_queue
from headrace_broker.model.status import QueueStatus


def queue(**more: int) -> QueueStatus:
    return QueueStatus("/", "q", "quorum", True, False, False, {}, "n1", ("n1",), **more)  # type: ignore[arg-type]


def test_the_age_of_the_oldest_message_is_shown() -> None:
    shown = render_queue(queue(oldest_ms=1_000, head_timestamp=5), 4_500)
    assert (shown["oldest_message_age_ms"], shown["head_message_timestamp"]) == (3_500, 5)
    ahead = render_queue(queue(oldest_ms=5_000), 4_500)
    assert ahead["oldest_message_age_ms"] == 0


def test_an_empty_queue_has_no_oldest_message() -> None:
    shown = render_queue(queue(), 4_500)
    assert (shown["oldest_message_age_ms"], shown["head_message_timestamp"]) == (None, None)
