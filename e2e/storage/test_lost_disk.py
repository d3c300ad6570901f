"""A node loses its disk: it comes back as a new member, and the cluster is as safe as before."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.consumer import Consumer
from e2e.harness.publisher import Publisher

QUEUES = ("first", "second", "third")
MESSAGES = 2_000  # of 1 KiB in each queue
TAKEN = 700  # of them are consumed before the loss
LATER = 100
BUSY_MESSAGES = 10_000  # at least, while disks are lost
BODY_BYTES = 1024
WAIT_SECONDS = 180.0


@pytest.fixture
def cutting_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three nodes that cut their logs early, so that a new member needs snapshots."""
    monkeypatch.setenv("HEADRACE_LOG_SEGMENT_BYTES", str(2 << 20))
    monkeypatch.setenv("HEADRACE_LOG_SNAPSHOT_EVERY_BYTES", str(128 << 10))
    monkeypatch.setenv("HEADRACE_LIMITS_MESSAGE_BYTES_MAX", str(512 << 10))
    with Cluster(tmp_path / "data") as cluster:
        yield cluster
        cluster.close_connections()


def lose_disk(cluster: Cluster, name: str) -> None:
    """Kill a node, remove its data, start it, and wait until it votes everywhere again."""
    cluster.kill(name)
    shutil.rmtree(cluster.node(name).directory / "store")
    cluster.start()
    wait_for(f"{name} to be rebuilt", lambda: is_rebuilt(cluster, name), WAIT_SECONDS)


def is_rebuilt(cluster: Cluster, name: str) -> bool:
    """Return whether a node reports that its new member votes in the catalog and in each queue."""
    status, nodes = cluster.node(name).api.get("/api/nodes")
    assert status == 200, nodes
    groups = [next(node["catalog"] for node in nodes if node["name"] == name)]
    for queue in QUEUES:
        entry = cluster.queue(queue, name)
        groups.append(entry["replicas"] if entry is not None else [])
    own = [[each for each in group if each["node"] == name] for group in groups]
    return all(
        len(members) == 1 and members[0]["role"] == "voter" and "." in members[0]["member"]
        for members in own
    )


def fill(cluster: Cluster) -> dict[str, set[int]]:
    """Declare the queues through different nodes, publish, consume some; return the rest."""
    left: dict[str, set[int]] = {}
    for queue, node in zip(QUEUES, cluster.local.nodes, strict=True):
        channel = cluster.connect(node.name).channel()
        channel.exchange_declare("logs", "topic", durable=True)
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "logs", f"{queue}.#")
        publish(channel, queue, range(MESSAGES))
        left[queue] = set(range(MESSAGES)) - take(channel, queue, TAKEN)
        assert len(left[queue]) == MESSAGES - TAKEN
    return left


def publish(channel: Any, queue: str, numbers: range) -> None:
    """Publish messages through the binding that was made at the beginning, and wait for all."""
    before = channel.queue_declare(queue, passive=True).method.message_count
    for number in numbers:
        body = str(number).encode().ljust(BODY_BYTES, b".")
        channel.basic_publish("logs", f"{queue}.x", body)
    wait_for(
        f"all messages of {queue}",
        lambda: (
            channel.queue_declare(queue, passive=True).method.message_count == before + len(numbers)
        ),
    )


def take(channel: Any, queue: str, count: int) -> set[int]:
    """Consume and acknowledge `count` messages; return their numbers."""
    taken: list[int] = []
    channel.basic_qos(prefetch_count=100)
    for method, _, body in channel.consume(queue, inactivity_timeout=60):
        assert method is not None, f"nothing came after {len(taken)} messages of {queue}"
        taken.append(int(body.rstrip(b".")))
        channel.basic_ack(method.delivery_tag)
        if len(taken) == count:
            break
    channel.cancel()
    assert len(set(taken)) == count, "a message came twice"
    return set(taken)


def publish_later(cluster: Cluster, name: str, left: dict[str, set[int]]) -> None:
    """Publish a few more to each queue."""
    channel = cluster.connect(name).channel()
    for queue in QUEUES:
        numbers = range(MESSAGES, MESSAGES + LATER)
        publish(channel, queue, numbers)
        left[queue] |= set(numbers)


def check_all(cluster: Cluster, name: str, left: dict[str, set[int]]) -> None:
    """Consume everything through one node: the expected rest, each message once."""
    channel = cluster.connect(name).channel()
    for queue, numbers in left.items():
        assert take(channel, queue, len(numbers)) == numbers
        declared = channel.queue_declare(queue, passive=True)
        assert declared.method.message_count == 0


def test_new_member_takes_the_place_of_the_lost_one_and_another_node_may_die(
    cutting_cluster: Cluster,
) -> None:
    cluster = cutting_cluster
    left = fill(cluster)
    lose_disk(cluster, "n3")
    for queue in QUEUES:
        entry = cluster.queue(queue, "n3")
        assert entry is not None
        assert entry["snapshot_index"] > 0, "it was to be brought there by a snapshot"
    cluster.kill("n1")
    publish_later(cluster, "n3", left)
    check_all(cluster, "n3", left)
    cluster.start()


def test_all_disks_may_be_lost_one_after_the_other(cutting_cluster: Cluster) -> None:
    cluster = cutting_cluster
    left = fill(cluster)
    for node in cluster.local.nodes:
        lose_disk(cluster, node.name)
    publish_later(cluster, "n1", left)
    check_all(cluster, "n2", left)


def test_leaders_that_lose_their_disks_in_mid_publish_lose_nothing_confirmed(
    cutting_cluster: Cluster,
) -> None:
    cluster = cutting_cluster
    for queue in QUEUES:
        cluster.connect("n1").channel().queue_declare(queue, durable=True)
    publisher = Publisher(cluster.ports, "first", BUSY_MESSAGES, BODY_BYTES)
    consumer = Consumer(cluster.ports, "first")
    with publisher, consumer:
        for part in (1, 2):
            wanted = part * BUSY_MESSAGES // 4
            assert publisher.wait_confirmed(wanted, WAIT_SECONDS), publisher.failure
            lose_disk(cluster, cluster.leader("first"))
        assert publisher.wait_confirmed(BUSY_MESSAGES, WAIT_SECONDS), publisher.failure
        publisher.join(WAIT_SECONDS)
        missing = consumer.wait_all(publisher.confirmed, WAIT_SECONDS)
    assert consumer.failure is None
    assert not publisher.rejected
    assert not missing, f"{len(missing)} confirmed messages did not arrive"
    first_times = [number for number, redelivered in consumer.seen if not redelivered]
    assert len(first_times) == len(set(first_times)), "one came twice without being flagged"
