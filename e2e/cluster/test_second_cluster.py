"""A cluster that grew from one node, whose first node loses its disk: it is not founded again.

The configuration of the first node names it alone, as it was when it founded the cluster.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pika.exceptions
import pytest
from e2e.harness.cluster import Cluster, wait_for

from headrace_broker.cli import local_cluster
from headrace_broker.cli.local_cluster import LocalCluster, LocalNode, render_config

QUEUE: Final = "kept"
MESSAGES: Final = 200
WAIT_SECONDS: Final = 120.0
ANSWER_SECONDS: Final = 60.0
FOUNDED: Final = "was founded by nodes"


def render_as_grown(node: LocalNode, nodes: Any, *more: Any) -> str:
    """Render a configuration that names the first node and its own, as clustering.md has it."""
    return render_config(node, tuple(each for each in nodes if each.id in (1, node.id)), *more)


@pytest.fixture
def grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Node n1, which founded the cluster alone, n2 and n3, and messages that all three have."""
    monkeypatch.setattr(local_cluster, "render_config", render_as_grown)
    monkeypatch.setattr(LocalCluster, "_check_data", lambda self: None)  # it counts nodes there
    with Cluster(tmp_path / "data", count=1) as cluster:
        for _ in range(2):
            cluster.local.add()
            cluster.local.wait_ready(WAIT_SECONDS)
        wait_for("three votes on the catalog", lambda: catalog_voters(cluster), WAIT_SECONDS)
        publish(cluster, "n1", QUEUE)
        yield cluster
        cluster.close_connections()


def catalog_voters(cluster: Cluster) -> dict[str, str]:
    """Return which members vote on the catalog by node, {} while a change is under way."""
    status, nodes = cluster.node("n2").api.get("/api/nodes")
    members = [each for node in nodes for each in node["catalog"]] if status == 200 else []
    if len(members) != 3 or any(each["role"] != "voter" for each in members):
        return {}
    return {each["node"]: each["member"] for each in members}


def publish(cluster: Cluster, name: str, queue: str) -> None:
    """Publish to a queue through a node, and have each message confirmed."""
    connection = cluster.connect(name)
    channel = connection.channel()
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    channel.confirm_delivery()
    for number in range(MESSAGES):
        channel.basic_publish("", queue, b"%d" % number)
    connection.close()


def take_all(cluster: Cluster, name: str, queue: str) -> list[int]:
    """Take everything out of a queue."""
    connection = cluster.connect(name)
    channel = connection.channel()
    found: list[int] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            connection.close()
            return found
        assert body is not None
        found.append(int(body))


def lose_disk(cluster: Cluster, name: str) -> None:
    """Kill a node and remove its data and its log."""
    cluster.kill(name)
    shutil.rmtree(cluster.node(name).directory / "store")
    cluster.node(name).log_file.unlink()


def check_joined(cluster: Cluster) -> None:
    """Wait until n1 is a member as the others are, and see that nothing was lost."""
    cluster.local.wait_ready(WAIT_SECONDS)
    wait_for(
        "a new member of n1", lambda: "." in catalog_voters(cluster).get("n1", ""), WAIT_SECONDS
    )
    _, nodes = cluster.node("n1").api.get("/api/nodes")
    assert sorted(node["name"] for node in nodes) == ["n1", "n2", "n3"]
    assert take_all(cluster, "n1", QUEUE) == list(range(MESSAGES))


def found_again(cluster: Cluster) -> tuple[LocalNode, ...]:
    """Start n1 on an empty disk while no member calls it; return all nodes."""
    everybody = tuple(cluster.local.nodes)
    lose_disk(cluster, "n1")
    cluster.kill("n2", "n3")
    cluster.local.nodes = everybody[:1]
    cluster.start()
    return everybody


def test_first_node_that_loses_its_disk_joins_its_cluster_again(grown: Cluster) -> None:
    lose_disk(grown, "n1")
    grown.local.start()
    check_joined(grown)
    assert FOUNDED not in grown.log("n1")
    assert "joins cluster 'local' as a new member" in grown.log("n1")


def test_cluster_that_was_founded_again_meanwhile_gives_way_while_it_holds_nothing(
    grown: Cluster,
) -> None:
    n1 = grown.node("n1")
    everybody = found_again(grown)
    assert FOUNDED in grown.log("n1")
    grown.local.nodes = everybody
    grown.local.start()
    check_joined(grown)
    assert (n1.directory / "store" / "set-aside").is_dir()


def test_cluster_that_was_founded_again_and_used_serves_nobody_once_the_first_is_back(
    grown: Cluster,
) -> None:
    n1 = grown.node("n1")
    everybody = found_again(grown)
    publish(grown, "n1", "later")
    client = grown.connect("n1")
    grown.local.nodes = everybody
    grown.local.start()
    wait_for("n1 to give way", lambda: "was founded twice" in n1.api.not_ready_reason())
    with pytest.raises(pika.exceptions.AMQPError):
        client.sleep(ANSWER_SECONDS)
    with pytest.raises(pika.exceptions.AMQPError):
        grown.connect("n1")
    others = everybody[1:]
    wait_for("the others to serve", lambda: not any(n.api.not_ready_reason() for n in others))
    assert grown.log("n1").count("ERROR") == 1, "one clear error"
    for name in ("n1", "n2", "n3"):
        said = [line for line in grown.log(name).splitlines() if "data directory" in line]
        assert not any("empty its" in line or "Empty" in line for line in said)
        assert all("Stop node 1" in line for line in said if "founded twice" in line)
    grown.kill("n1")  # as the text says
    (n1.directory / "store").rename(n1.directory / "second")
    grown.local.start()
    check_joined(grown)
