"""One row for all processes of a node."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace_broker.management.view.node_rendering import render_node
from headrace_broker.management.view.shard_rows import merge_nodes
from headrace_broker.model.stats import NODE_FIGURES, NodeStats
from headrace_broker.model.status import (
    DamageStatus,
    MessageCounters,
    NodeStatus,
    ObjectTotals,
    ReplicaStatus,
)


def row(
    number: int, name: str, figure: int | None = None, damages: tuple[DamageStatus, ...] = ()
) -> dict[str, Any]:
    catalog = (ReplicaStatus(name, str(number), "voter" if number < 64 else "learner"),)
    status = NodeStatus(number, name, f"h:{number}", figure is not None, 1, catalog)
    if figure is None:
        return render_node(status, None, 0)
    last = [(ms, *[figure + at] * len(NODE_FIGURES)) for ms, at in ((1000, -5), (2000, 0))]
    counters = (ObjectTotals(), MessageCounters(), ())
    stats = NodeStats(number, name, "1", 0, number, 2, *counters, last, fd_total=100, lag_ms=figure)
    return render_node(status, msgspec.structs.replace(stats, quarantined=damages), 0)


def test_figures_of_processes_are_summed_and_those_of_the_machine_are_not() -> None:
    damage = (DamageStatus("queue", "why"),)
    rows = [row(1, "n1", 10), row(2, "n2", 40), row(65, "n1:1", 7, damages=damage)]
    first, second = merge_nodes(rows)
    assert (first["name"], second["name"]) == ("n1", "n2")
    assert first["fd_used"] == 17
    assert first["fd_total"] == 200
    assert first["connection_created_details"] == {"rate": 10.0}
    assert first["mem_used"] == 10
    assert first["loop_lag_ms"] == 10
    assert [each["node"] for each in first["catalog"]] == ["n1", "n1:1"]
    assert first["quarantined"] == [{"what": "queue", "reason": "why"}]
    assert [(each["name"], each["os_pid"]) for each in first["shards"]] == [
        ("n1", "1"),
        ("n1:1", "65"),
    ]
    single = {key: value for key, value in second.items() if key != "shards"}
    assert msgspec.json.encode(single) == msgspec.json.encode(rows[1])


def test_a_process_that_is_away_adds_nothing() -> None:
    [away] = merge_nodes([row(1, "n1"), row(65, "n1:1", 7)])
    assert away["running"]
    assert (away["id"], away["os_pid"], away["fd_used"]) == (1, "65", 7)
    assert [each["running"] for each in away["shards"]] == [False, True]
    [gone] = merge_nodes([row(1, "n1"), row(65, "n1:1")])
    assert not gone["running"]
    assert "fd_used" not in gone
