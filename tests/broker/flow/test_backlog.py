"""Origins of what stands in a queue, out of what nodes remember."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_broker.flow.backlog import UNKNOWN, backlog_causes, is_backlog
from headrace_broker.model.flow import CONNECTION
from headrace_broker.model.flow_status import BroughtStatus, QueueFlow

GROUP = 7


def queue(ready: int, byte_count: int, **more: Any) -> QueueFlow:
    row = QueueFlow("/", "q", GROUP, "n1", ready=ready, ready_bytes=byte_count)
    return msgspec.structs.replace(row, **more)


def row(name: str, *slices: tuple[int, int, int], **more: Any) -> BroughtStatus:
    found = BroughtStatus(name, CONNECTION, name, "n1", "u", GROUP, slices=slices)
    return msgspec.structs.replace(found, **more)


def parts(found: QueueFlow, *rows: BroughtStatus) -> dict[str, tuple[int, int, float]]:
    causes = backlog_causes(found, list(rows), {})
    assert [each.share for each in causes] == sorted((c.share for c in causes), reverse=True)
    assert {(each.vhost, each.queue) for each in causes} <= {("/", "q")}
    return {
        each.account or each.kind: (each.queued_messages, each.queued_bytes, each.share)
        for each in causes
    }


def test_what_came_last_stands_in_the_queue() -> None:
    gone = row("gone", (90_000, 1000, 10_000), gone=True)
    here = row("here", (1_000, 30, 300), (8_000, 10, 100))
    assert parts(queue(40, 400), gone, here) == {"here": (40, 400, 1.0)}
    assert parts(queue(35, 350), gone, here)["here"] == (35, 350, 1.0)
    assert parts(queue(100, 1000), gone, here) == {"gone": (60, 600, 0.6), "here": (40, 400, 0.4)}


def test_what_came_at_once_counts_in_proportion() -> None:
    found = parts(queue(50, 500), row("a", (500, 75, 750)), row("b", (900, 25, 250)))
    assert {name: each[0] for name, each in found.items()} == {"a": 38, "b": 12}
    assert sum(each[1] for each in found.values()) == 500


def test_bytes_count_and_not_messages_unless_their_mark_alone_is_passed() -> None:
    rows = (row("many", (0, 900, 900)), row("large", (0, 100, 9_100)))
    assert parts(queue(1000, 10_000), *rows)["large"] == (100, 9_100, 0.91)
    by_count = queue(1000, 10_000, high_messages=500, low_messages=400, held_messages=1000)
    assert parts(by_count, *rows)["many"] == (900, 900, 0.9)
    both = msgspec.structs.replace(by_count, high_bytes=9, low_bytes=5, held_bytes=10_000)
    assert parts(both, *rows)["large"][2] == 0.91


def test_what_nobody_remembers_is_unknown_and_not_nothing() -> None:
    found = parts(queue(100, 1000), row("a", (0, 1, 10)))
    assert found == {UNKNOWN: (99, 990, 0.99), "a": (1, 10, 0.01)}
    assert parts(queue(100, 0), row("a", (0, 1, 0)))[UNKNOWN] == (99, 0, 0.99)
    assert parts(queue(100, 1000)) == {UNKNOWN: (100, 1000, 1.0)}


@pytest.mark.parametrize("size", [1, 7, 11, 5000])
def test_bytes_add_up_to_what_the_queue_counts(size: int) -> None:
    """A publisher's node counts a message's headers too."""
    found = parts(queue(10, 1000), row("a", (0, 5, 5 * size)), row("b", (5000, 5, 5 * size)))
    assert found == {"a": (5, 500, 0.5), "b": (5, 500, 0.5)}


def test_who_brings_now_has_a_row_though_all_of_it_has_left_the_queue() -> None:
    slow = row("slow", (9_000, 5, 50), byte_rate=4.0)
    assert parts(queue(5, 50), row("fast", (0, 50, 500)), slow)["slow"] == (0, 0, 0.0)


def test_only_limits_that_come_of_the_backlog_are_explained_by_it() -> None:
    assert is_backlog("watermark", queue(1, 1))
    assert is_backlog("queue-outflow", queue(0, 0, unsettled=1))
    assert not is_backlog("queue-pending-bytes", queue(1, 1))
    assert not is_backlog("watermark", queue(0, 0))
    assert not is_backlog("watermark", None)
