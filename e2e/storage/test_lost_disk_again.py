"""A node loses its disk again and again: nothing that it says is taken for a repetition."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.harness.cluster import Cluster, wait_for

QUEUE = "q"
MESSAGES = 200  # by each life of the node
WAIT_SECONDS = 120.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "data") as made:
        yield made
        made.close_connections()


def lose_disk(cluster: Cluster, name: str) -> None:
    """Kill a node, remove its data, and start it; return when it takes clients."""
    cluster.kill(name)
    shutil.rmtree(cluster.node(name).directory / "store")
    cluster.start()


def restart(cluster: Cluster, name: str) -> None:
    """Kill a node and start it with its data."""
    cluster.kill(name)
    cluster.start()


def publish(cluster: Cluster, name: str, life: str) -> None:
    """Publish through a node, with confirms: what returns is stored."""
    channel = cluster.connect(name).channel()
    channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
    channel.confirm_delivery()
    for number in range(MESSAGES):
        channel.basic_publish("", QUEUE, f"{life}-{number}".encode())
    cluster.close_connections()


def boot(cluster: Cluster, name: str) -> int:
    """Return the boot count by which the other nodes know a node."""
    other = "n1" if name != "n1" else "n2"
    status, nodes = cluster.node(other).api.get("/api/nodes")
    assert status == 200, nodes
    return int(next(node["boot"] for node in nodes if node["name"] == name))


def stored(cluster: Cluster) -> list[str]:
    """Take everything out of the queue, in order."""
    channel = cluster.connect("n1").channel()
    found: list[str] = []
    while True:
        method, _, body = channel.basic_get(QUEUE, auto_ack=True)
        if method is None:
            return found
        found.append(body.decode())


def expected(lives: list[str]) -> list[str]:
    return [f"{life}-{number}" for life in lives for number in range(MESSAGES)]


def test_publishes_of_a_node_that_lost_its_disk_twice_in_a_minute_are_all_stored(
    cluster: Cluster,
) -> None:
    publish(cluster, "n3", "first")
    boots = [boot(cluster, "n3")]
    for life in ("second", "third"):
        lose_disk(cluster, "n3")
        publish(cluster, "n3", life)
        boots.append(boot(cluster, "n3"))
    assert boots == sorted(set(boots)), "a boot count came again"
    assert stored(cluster) == expected(["first", "second", "third"])


def test_boot_count_never_falls_however_disk_losses_and_restarts_follow_each_other(
    cluster: Cluster,
) -> None:
    lives = []
    boots = [boot(cluster, "n3")]
    for turn, change in enumerate((lose_disk, restart, restart, restart, lose_disk, restart)):
        change(cluster, "n3")
        lives.append(f"life {turn}")
        publish(cluster, "n3", lives[-1])
        wait_for("the others to hear of n3", lambda: boot(cluster, "n3") > 0, WAIT_SECONDS)
        boots.append(boot(cluster, "n3"))
    assert boots == sorted(set(boots)), "a boot count came again"
    assert stored(cluster) == expected(lives)
