"""A disk that gives nothing back for a while: who does not need it goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pika
import pytest
from e2e.chaos.disk import READS, SlowDisk
from e2e.harness.cluster import Cluster, wait_for

BODY = os.urandom(64 << 10)
MESSAGES = 100  # more than the cache that the nodes are told to have
HUNG_MS = 3_600_000


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    """The disk of all nodes that start from now on, which keep little of the log in memory."""
    disk = SlowDisk(tmp_path / "slow", READS)
    for name, value in disk.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HEADRACE_LOG_CACHE_BYTES", str(1 << 20))
    return disk


def test_reads_that_hang_keep_nobody_waiting_who_needs_none(
    disk: SlowDisk, cluster: Cluster
) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", cluster.ports[0], heartbeat=0)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    for queue in ("deep", "healthy"):
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    channel.confirm_delivery()
    for _ in range(MESSAGES):
        channel.basic_publish("", "deep", BODY)
    disk.set_delay(HUNG_MS)
    drained: list[bytes] = []
    channel.basic_qos(prefetch_count=10)
    channel.basic_consume("deep", lambda ch, method, _, body: drained.append(body), auto_ack=True)
    connection.process_data_events(0.1)
    for number in range(200):
        channel.basic_publish("", "healthy", b"%d" % number)
    assert channel.queue_declare("healthy", passive=True).method.message_count == 200
    assert len(drained) < MESSAGES
    disk.set_delay(0)

    def all_drained() -> bool:
        connection.process_data_events(0.1)
        return len(drained) == MESSAGES

    wait_for("the deep queue to drain", all_drained)
    assert set(drained) == {BODY}
    connection.close()
