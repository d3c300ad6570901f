"""A node whose disk hangs: its queues continue elsewhere, and it names the fault."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from e2e.chaos.disk import SlowDisk
from e2e.harness.cluster import Cluster, wait_for

HANG_MS = 3_600_000  # of a sync, unless the test ends it
STALL_MS = 1000
LED_WHERE_DECLARED = {"x-queue-type": "quorum", "x-queue-leader-locator": "client-local"}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("HEADRACE_RAFT_DISK_STALL_MS", str(STALL_MS))
    return Cluster(tmp_path / "data")


def not_ready_reason(cluster: Cluster, name: str) -> str:
    try:
        url = f"http://{cluster.node(name).http}/api/health/ready"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(json.load(answer).get("reason", ""))
    except urllib.error.HTTPError as error:
        return error.read().decode()


def test_queue_of_a_node_whose_disk_hangs_confirms_elsewhere(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(tmp_path / "disk")
    with cluster:
        cluster.kill("n1")
        for name, value in disk.environment.items():
            monkeypatch.setenv(name, value)
        cluster.start()  # n1 alone, on a disk that can be made to hang
        declaring = cluster.connect("n1").channel()
        declaring.queue_declare("work", durable=True, arguments=LED_WHERE_DECLARED)
        channel = cluster.connect("n2").channel()
        channel.confirm_delivery()
        channel.basic_publish("", "work", b"before")
        disk.set_delay(HANG_MS)
        try:
            channel.basic_publish("", "work", b"reveals it")
            for number in range(20):
                channel.basic_publish("", "work", b"%d" % number)
            wait_for("n1 to say so", lambda: "node hangs" in not_ready_reason(cluster, "n1"))
        finally:
            disk.set_delay(0)
        wait_for("n1 to be well", lambda: "disk" not in not_ready_reason(cluster, "n1"))
        channel.basic_publish("", "work", b"after")
        cluster.close_connections()
