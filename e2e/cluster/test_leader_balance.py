"""Leaders spread by themselves over a node that was killed and came back."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.command import run_command
from e2e.harness.consumer import Consumer
from e2e.harness.publisher import Publisher

HEADRACE: Final = (sys.executable, "-m", "headrace_broker.cli")
QUEUES: Final = 30
BODY_BYTES: Final = 256
WINDOW: Final = 20  # of the publisher, which is to be there and not to load the machine
SPREAD_SECONDS: Final = 240.0
WAIT_SECONDS: Final = 120.0
BALANCED: Final = {"x-queue-type": "quorum", "x-queue-leader-locator": "balanced"}


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "data") as cluster:
        yield cluster
        cluster.close_connections()


def leads(cluster: Cluster) -> Counter[str]:
    """Return how many of the queues each node leads, as n1 says."""
    answer = cluster.node("n1").api.request("GET", "/api/queues", seconds=WAIT_SECONDS)
    assert answer.status == 200, answer
    return Counter(row.get("leader") or "" for row in answer.body)


def balance(cluster: Cluster, name: str) -> dict[str, Any]:
    answer = cluster.node(name).api.request("GET", "/api/rebalance/queues", seconds=WAIT_SECONDS)
    assert answer.status == 200, answer
    return dict(answer.body)


def test_leaders_come_back_to_a_node_that_was_killed(three: Cluster) -> None:
    cluster = three
    channel = cluster.connect("n1").channel()
    for number in range(QUEUES):
        channel.queue_declare(f"q{number}", durable=True, arguments=BALANCED)
    cluster.close_connections()
    assert leads(cluster) == {"n1": 10, "n2": 10, "n3": 10}
    ports = cluster.ports
    with (
        Publisher(ports, "q0", 10**9, BODY_BYTES, window=WINDOW) as publisher,
        Consumer(ports, "q0") as consumer,
    ):
        cluster.kill("n3")
        wait_for("others to lead", lambda: leads(cluster).keys() == {"n1", "n2"}, WAIT_SECONDS)
        cluster.start()
        wait_for(
            "leaders to spread",
            lambda: sorted(leads(cluster).values()) == [10, 10, 10],
            SPREAD_SECONDS,
        )
        confirmed = len(publisher.confirmed)
        assert publisher.wait_confirmed(confirmed + 100, WAIT_SECONDS), publisher.failure
        publisher.halt()
        publisher.join(WAIT_SECONDS)
        missing = consumer.wait_all(publisher.confirmed, WAIT_SECONDS)
    assert publisher.failure is None
    assert not missing, f"{len(missing)} confirmed messages did not arrive"
    decides = balance(cluster, "n1")["automatic"]["decides"]
    found = balance(cluster, decides)
    assert found["total"] == 0  # nobody asked for it
    assert found["automatic"]["handed_over"] >= QUEUES // 3 - 1
    assert "leaders unbalanced (n" in cluster.log(decides)
    shown = json.loads(
        run_command(cluster, (*HEADRACE, "queue", "rebalance", "--status", "-o", "json"), decides)
    )
    assert shown["automatic"]["state"] in ("even", "moving")
    assert "n3" in run_command(cluster, (*HEADRACE, "queue", "rebalance", "--status"), decides)
