"""Figures of the answering node, over its processes."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_broker.model.stats import NODE_FIGURES, NodeStats
from headrace_broker.model.status import MessageCounters, NodeStatus, ObjectTotals, Overview


def told(number: int, name: str, times: int) -> NodeStats:
    """Figures of a process, each `times` as large as that of a node that has little."""
    rows = [(ms, *[times * moved] * len(NODE_FIGURES)) for ms, moved in ((1000, 0), (6000, 5))]
    return NodeStats(
        number,
        name,
        *("1", 0, number, 1),
        ObjectTotals(times, 2 * times, 3 * times, 7, 5),
        MessageCounters(publish=10 * times, ack=times),
        (),
        rows,
        messages_ready=100 * times,
        messages_unacknowledged=10 * times,
        messages_later=5 * times,
        messages_dlx=2 * times,
    )


@pytest.fixture
def shards(node: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A node of three shards, of which one is down, that is answered by them and another node."""
    names = {1: "n1", 2: "n10", 65: "n1:1", 129: "n1:2"}
    known = [NodeStatus(each, name, "h:1", each != 129, 1) for each, name in names.items()]
    overview = Overview("test", "n1", "n10", tuple(known))
    monkeypatch.setattr(node, "overview", lambda: overview)
    node.stats.rows = [told(1, "n1", 1), told(2, "n10", 50), told(65, "n1:1", 2)]
    return node


def test_figures_of_the_node_are_those_of_its_shards_that_run(api: Any, shards: Any) -> None:
    local = api("GET", "/api/overview")[1]["local"]
    assert local["object_totals"] == {
        "connections": 3,
        "channels": 6,
        "consumers": 9,
        "exchanges": 7,
        "queues": 5,
    }
    assert local["queue_totals"] == {
        "messages": 345,
        "messages_ready": 300,
        "messages_unacknowledged": 30,
        "messages_delayed": 9,
        "messages_dlx": 6,
    }
    stats = local["message_stats"]
    assert (stats["publish"], stats["publish_details"]) == (30, {"rate": 3.0})
    assert (stats["ack"], stats["deliver"]) == (3, 0)


def test_figures_are_unknown_where_a_shard_that_runs_does_not_tell(api: Any, shards: Any) -> None:
    shards.stats.rows = [told(1, "n1", 1), told(2, "n10", 50)]
    assert api("GET", "/api/overview")[1]["local"] is None
