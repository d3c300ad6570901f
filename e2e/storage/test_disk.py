"""Disks that fill up or rot: nothing confirmed is lost, and the node names the fault."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.consumer import Consumer
from e2e.harness.publisher import Publisher

SMALL_MIB = 24
LARGE_MIB = 400
MESSAGES = 30_000  # of 1 KiB: more than the small disks hold


@pytest.fixture
def small_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster whose stores are file systems of SMALL_MIB each."""
    monkeypatch.setenv("HEADRACE_LOG_SEGMENT_BYTES", str(2 << 20))
    monkeypatch.setenv("HEADRACE_LIMITS_MESSAGE_BYTES_MAX", str(512 << 10))
    monkeypatch.setenv("HEADRACE_LIMITS_DISK_FREE_BYTES_MIN", "0")
    cluster = Cluster(tmp_path / "data")
    stores = [node.directory / "store" for node in cluster.local.nodes]
    for store in stores:
        store.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_MIB}m", "headrace-test", str(store)]
        subprocess.run(mount, check=True)
    try:
        with cluster:
            yield cluster
            cluster.close_connections()
    finally:
        for store in stores:
            subprocess.run(["umount", str(store)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")
def test_full_disk_blocks_publishers_and_resumes_with_everything(small_disks: Cluster) -> None:
    channel = small_disks.connect("n1").channel()
    channel.queue_declare("work", durable=True)
    blocked: list[str] = []
    unblocked = threading.Event()

    def watch() -> None:
        parameters = pika.ConnectionParameters("127.0.0.1", small_disks.port("n1"), heartbeat=30)
        connection = pika.BlockingConnection(parameters)
        connection.add_on_connection_blocked_callback(
            lambda _, frame: blocked.append(frame.method.reason)
        )
        connection.add_on_connection_unblocked_callback(lambda *_: unblocked.set())
        connection.channel().basic_publish("", "nowhere", b"")  # only publishers are told
        while not unblocked.is_set():
            connection.process_data_events(0.2)
        connection.close()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    with Publisher([small_disks.port("n1")], "work", MESSAGES, 1024) as publisher:
        wait_for("publishers to be blocked", lambda: blocked)
        assert re.search("disk", blocked[0]), blocked
        assert len(publisher.confirmed) < MESSAGES
        for node in small_disks.local.nodes:
            remount = ["mount", "-o", f"remount,size={LARGE_MIB}m", str(node.directory / "store")]
            subprocess.run(remount, check=True)
        assert publisher.wait_confirmed(MESSAGES, 300), publisher.failure
        assert unblocked.wait(60)
        watcher.join(60)
    assert publisher.failure is None
    assert publisher.reconnects == 0
    with Consumer([small_disks.port("n2")], "work") as consumer:
        missing = consumer.wait_all(publisher.confirmed, 120)
    assert not missing


def flip_byte(path: Path, marker: bytes) -> int:
    """Flip one bit in the first occurrence of `marker`; return its offset."""
    data = path.read_bytes()
    offset = data.index(marker)
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(bytes([data[offset] ^ 1]))
    return offset


def test_damaged_message_is_put_back_and_its_replica_stays(cluster: Cluster) -> None:
    channel = cluster.connect("n1").channel()
    for name in ("work", "other"):
        channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    for number in range(20):
        channel.basic_publish("", "work", b"precious-%d" % number)
        channel.basic_publish("", "other", b"plain-%d" % number)
    cluster.kill("n2")
    store = cluster.node("n2").directory / "store"
    files = [p for p in sorted(store.rglob("*")) if p.is_file() and p.stat().st_size > 1 << 20]
    damaged = next(path for path in files if b"precious-3" in path.read_bytes())
    flip_byte(damaged, b"precious-3")
    verify = [sys.executable, "-P", "-m", "headrace_broker.cli", "log", "verify", str(store)]
    verified = subprocess.run(verify, capture_output=True, text=True, timeout=60)
    assert verified.returncode != 0
    assert damaged.name in verified.stdout + verified.stderr
    cluster.start()
    assert re.search(rf"{re.escape(damaged.name)}.*byte \d+", cluster.log("n2")), "not told where"
    wait_for("n2 to be mended", lambda: "log repaired" in cluster.log("n2"))
    assert member(cluster, "work", "n2") == member(cluster, "other", "n2") == "voter 2"
    cluster.kill("n3")  # n1 alone is no majority: what comes now is held by the mended replica
    channel.basic_publish("", "work", b"two of three go on")
    cluster.close_connections()
    cluster.kill("n1")
    cluster.start()
    bodies = read_all(cluster, "n2", "work")
    assert sorted(bodies) == sorted(
        [*(b"precious-%d" % n for n in range(20)), b"two of three go on"]
    )


def member(cluster: Cluster, queue: str, name: str) -> str:
    """Role and id of the only member that a node has in a queue, the generation left out."""
    found = [
        each["role"] + " " + re.sub(r"\..*", ".", each["member"])
        for each in (cluster.queue(queue, name) or {}).get("replicas", [])
        if each["node"] == name
    ]
    return found[0] if len(found) == 1 else ""


def read_all(cluster: Cluster, name: str, queue: str) -> list[bytes]:
    """Take all messages of a queue through one node."""
    channel = cluster.connect(name).channel()
    bodies: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(body)
