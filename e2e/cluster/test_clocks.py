"""Wall clocks of real nodes are set: times in queues continue, and wrong clocks are named."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.wall_clock import WallClock

AHEAD_MS = 600_000
AHEAD_SECONDS = 4.0
DUE_MS = 5000
EARLIEST_SECONDS = 4.5  # a sixteenth of what passes may be gained
LATEST_SECONDS = 60.0  # a busy machine; clocks that have to catch up take ten minutes


@pytest.fixture
def wall_clock(tmp_path: Path) -> WallClock:
    """The wall clock of nodes that a test starts with it."""
    return WallClock(tmp_path / "clock")


@pytest.fixture
def wrong_cluster(
    tmp_path: Path, wall_clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """Three nodes whose clocks are set together."""
    with monkeypatch.context() as patch:
        for name, value in wall_clock.environment.items():
            patch.setenv(name, value)
        cluster = Cluster(tmp_path / "data")
        cluster.start()
    with cluster:
        yield cluster
        cluster.close_connections()


def rows(cluster: Cluster, name: str) -> dict[str, dict[str, Any]]:
    """Return what a node says of all nodes."""
    status, found = cluster.node(name).api.get("/api/nodes")
    assert status == 200, found
    return {row["name"]: row for row in found}


def publish(channel: Any, queue: str, **properties: Any) -> None:
    """Publish a message that is confirmed when this returns."""
    channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=2, **properties))


def fetched(channel: Any, queue: str) -> bool:
    """Take a message, if one is there."""
    return channel.basic_get(queue, auto_ack=True)[0] is not None


def test_clocks_ten_minutes_ahead_for_seconds_neither_hold_nor_hurry_what_is_due(
    wrong_cluster: Cluster, wall_clock: WallClock
) -> None:
    channel = wrong_cluster.connect("n1").channel()
    channel.confirm_delivery()
    channel.queue_declare("dead", durable=True)
    channel.queue_declare("later", durable=True)
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("short", durable=True, arguments={"x-message-ttl": DUE_MS, **letters})
    channel.queue_declare("long", durable=True, arguments={"x-message-ttl": 2 * AHEAD_MS // 3})
    publish(channel, "long")
    publish(channel, "short")
    publish(channel, "later", headers={"x-delay": DUE_MS})
    began = time.monotonic()
    wall_clock.shift(AHEAD_MS)
    publish(channel, "long")
    wait_for("the fault to end", lambda: time.monotonic() - began > AHEAD_SECONDS)
    wall_clock.shift(0)
    for queue in ("later", "dead"):
        wait_for(f"a message in {queue}", functools.partial(fetched, channel, queue))
        assert EARLIEST_SECONDS < time.monotonic() - began < LATEST_SECONDS
    began = time.monotonic()
    publish(channel, "later", headers={"x-delay": DUE_MS})
    wait_for("what came after", functools.partial(fetched, channel, "later"))
    assert EARLIEST_SECONDS < time.monotonic() - began < LATEST_SECONDS
    assert channel.queue_declare("long", passive=True).method.message_count == 2


def test_wrong_clock_of_one_node_is_shown_and_stops_nobody(
    cluster: Cluster, wall_clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.kill("n3")
    with monkeypatch.context() as patch:
        for name, value in wall_clock.environment.items():
            patch.setenv(name, value)
        cluster.start()
    wait_for("clocks to be measured", lambda: "clock_skew_ms" in rows(cluster, "n1")["n3"])
    assert abs(rows(cluster, "n1")["n3"]["clock_skew_ms"]) < 1000
    wall_clock.shift(AHEAD_MS)
    wait_for("a warning", lambda: rows(cluster, "n1")["n3"]["clock_warning"])
    found = rows(cluster, "n1")
    assert abs(found["n3"]["clock_skew_ms"] - AHEAD_MS) < 1000
    assert abs(found["n3"]["queue_clock_lead_ms"]) < 1000
    assert "node n3 is 600." in found["n3"]["clock_warning"]
    assert found["n1"]["clock_warning"] == found["n2"]["clock_warning"] == ""
    status, answer = cluster.node("n1").api.get("/api/health/checks/alarms")
    assert status == 200, answer
    channel = cluster.connect("n3").channel()
    channel.confirm_delivery()
    channel.queue_declare("work", durable=True)
    publish(channel, "work")
    _, members = cluster.node("n1").api.get("/api/cluster/nodes")
    assert {row["name"]: bool(row["clock_warning"]) for row in members} == {
        "n1": False,
        "n2": False,
        "n3": True,
    }
    wall_clock.shift(0)
    wait_for("the warning's end", lambda: not rows(cluster, "n1")["n3"]["clock_warning"])
