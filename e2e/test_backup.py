"""Backups beside publishers and consumers, clients and nodes that die, and what comes back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.command import run_command
from e2e.harness.consumer import Consumer
from e2e.harness.publisher import Publisher

from headrace_broker.cli.backup.manifest import QueueBackup, folder_of, read_manifest
from headrace_broker.cli.backup.store import DirectoryStore
from headrace_broker.cli.backup.verifying import read_file
from headrace_broker.codecs.batch import message_body

HEADRACE = [sys.executable, "-m", "headrace_broker.cli"]
SIZE = 1_000
SLOWLY = ["--rate", "1M", "--file-size", "200k"]


@pytest.fixture
def small_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three nodes that compact their logs all the time: dead entries are gone soon."""
    monkeypatch.setenv("HEADRACE_LOG_SEGMENT_BYTES", str(4 << 20))
    monkeypatch.setenv("HEADRACE_LOG_SNAPSHOT_EVERY_BYTES", str(64 << 10))
    monkeypatch.setenv("HEADRACE_LIMITS_MESSAGE_BYTES_MAX", str(1 << 20))
    with Cluster(tmp_path / "data") as started:
        yield started
        started.close_connections()


def begin(cluster: Cluster, *arguments: str, node: str = "n1") -> subprocess.Popen[bytes]:
    """Start a command that is to be killed."""
    environment = {**os.environ, "HEADRACE_API": cluster.node(node).http}
    return subprocess.Popen([*HEADRACE, *arguments], env=environment)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    assert process.wait() != 0, "it was done before it was killed"


def saved_bodies(path: Path, saved: QueueBackup) -> list[bytes]:
    store = DirectoryStore(path)
    return [
        message_body(block.batch, 0, position)
        for file in saved.files
        for block in read_file(store, file)
        for position in range(block.messages)
    ]


def number_of(body: bytes) -> int:
    """Return the number that a `Publisher` has written."""
    return int(body.partition(b".")[0])


def state_of(path: Path) -> QueueBackup:
    """Return how far the backup of a queue has come, by its own account."""
    return msgspec.json.decode(path.read_bytes(), type=QueueBackup)


def drain(cluster: Cluster, queue: str, count: int) -> list[tuple[Any, Any, bytes]]:
    """Consume so many messages, after which the queue has to be empty."""
    channel = cluster.connect().channel()
    found: list[tuple[Any, Any, bytes]] = []
    for method, properties, body in channel.consume(queue):
        found.append((method, properties, body))
        if len(found) == count:
            break
    channel.basic_ack(found[-1][0].delivery_tag, multiple=True)
    assert channel.basic_get(queue)[0] is None
    channel.connection.close()
    return found


def test_backup_under_load_is_one_range_though_client_and_leader_are_killed(
    small_logs: Cluster, tmp_path: Path
) -> None:
    cluster, path = small_logs, tmp_path / "backup"
    channel = cluster.connect().channel()
    channel.queue_declare("work", durable=True, arguments={"x-queue-type": "quorum"})
    channel.connection.close()
    folder = path / folder_of("/", "work")
    with Publisher(cluster.ports, "work", 1 << 40, SIZE) as publisher:
        assert publisher.wait_confirmed(3_000, 60)
        leader = cluster.leader("work")
        other = next(node.name for node in cluster.local.nodes if node.name != leader)
        with Consumer(cluster.ports, "work") as consumer:
            backing = begin(cluster, "backup", str(path), *SLOWLY, "-q", "work", node=other)
            state = folder / "state.json"
            wait_for("two files", lambda: state.exists() and len(state_of(state).files) >= 2)
            kill(backing)
            begun = state_of(state)
            assert not consumer.wait_all(set(publisher.confirmed), 60)  # all of the point has left
            cluster.kill(leader)
            assert publisher.wait_confirmed(len(publisher.confirmed) + 500, 60)
            wait_for("another leader", lambda: cluster.leader("work") != leader)
            command = [*HEADRACE, "backup", str(path), "-q", "work"]
            run_command(cluster, command, other)
    cluster.start()
    manifest = read_manifest(DirectoryStore(path))
    [saved] = manifest.queues
    assert saved.point == begun.point, "the point of a follower outlives the leader"
    assert saved.files[:2] == begun.files[:2]
    numbers = [number_of(body) for body in saved_bodies(path, saved)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len(numbers) == saved.point.messages > 1_000
    assert "the backup is whole" in run_command(cluster, [*HEADRACE, "backup", "verify", str(path)])

    channel = cluster.connect(other).channel()
    channel.queue_delete("work")
    channel.connection.close()
    run_command(cluster, [*HEADRACE, "restore", str(path)])
    restored = [number_of(body) for _, _, body in drain(cluster, "work", len(numbers))]
    assert restored == numbers


def test_messages_come_back_once_with_all_they_had_though_their_restore_is_killed(
    shared_cluster: Cluster, queue_name, tmp_path: Path
) -> None:
    path, name = tmp_path / "backup", queue_name("work")
    arguments = {"x-queue-type": "quorum", "x-high-watermark-bytes": 100_000}
    channel = shared_cluster.connect().channel()
    channel.exchange_declare(name, "topic", durable=True)
    channel.queue_declare(name, durable=True, arguments=arguments)
    channel.queue_bind(name, name, "#")
    channel.tx_select()
    sent = []
    for number in range(1_500):
        properties = pika.BasicProperties(
            content_type="text/plain",
            headers={"n": number, "deep": {"list": [1, "two", None, True]}},
            delivery_mode=2,
            priority=number % 3,
            correlation_id=f"c{number}",
            reply_to="somewhere",
            expiration="86400000",
            message_id=f"m{number}",
            timestamp=1_700_000_000 + number,
            type="kind",
            app_id="e2e",
        )
        key, body = f"a.{number}", b"%d " % number * 100
        channel.basic_publish(name, key, body, properties)
        sent.append((key, properties, body))
    channel.basic_publish("", name, b"later", pika.BasicProperties(headers={"x-delay": 3_600_000}))
    channel.tx_commit()
    run_command(shared_cluster, [*HEADRACE, "backup", str(path), "-q", f"/=^{name}$"])
    [saved] = read_manifest(DirectoryStore(path)).queues
    assert saved.messages == len(sent) + 1
    channel.queue_delete(name)
    channel.exchange_delete(name)

    restoring = begin(shared_cluster, "restore", str(path), "--rate", "300k")
    wait_for("messages to come back", lambda: (shared_cluster.queue(name) or {}).get("messages"))
    kill(restoring)
    answer = run_command(shared_cluster, [*HEADRACE, "restore", str(path), "-o", "json"])
    [row] = msgspec.json.decode(answer)
    assert row["messages"] == len(sent) + 1
    assert 0 < row["before"] < row["messages"]
    assert row["refused"] == 0
    answer = run_command(shared_cluster, [*HEADRACE, "restore", str(path), "-o", "json"])
    assert msgspec.json.decode(answer)[0]["before"] == len(sent) + 1

    found = drain(shared_cluster, name, len(sent))
    wanted = sorted(sent, key=lambda each: -(each[1].priority or 0))
    for (method, properties, body), (key, given, text) in zip(found, wanted, strict=True):
        assert (method.exchange, method.routing_key, body) == (name, key, text)
        assert properties == given
        assert not method.redelivered
    entry = shared_cluster.queue(name)
    assert entry is not None
    assert entry["messages_ready"] == 0
    channel.queue_delete(name)
