"""Settled messages leave the disk, and an unsettled one pins only itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG

import pytest
from e2e.harness.cluster import Cluster, wait_for

BODY_BYTES = 64 << 10
ROUNDS = 60
ROUND_MESSAGES = 64  # so each round is 4 MiB, and all of them 240 MiB on each node
SEGMENT_BYTES = 4 << 20
STORE_BYTES_MAX = 32 << 20


@pytest.fixture
def small_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three nodes with small log files that cut their logs early."""
    monkeypatch.setenv("HEADRACE_LOG_SEGMENT_BYTES", str(SEGMENT_BYTES))
    monkeypatch.setenv("HEADRACE_LOG_SNAPSHOT_EVERY_BYTES", str(1 << 20))
    monkeypatch.setenv("HEADRACE_LIMITS_MESSAGE_BYTES_MAX", str(1 << 20))
    with Cluster(tmp_path / "data") as cluster:
        yield cluster
        cluster.close_connections()


def store_bytes(cluster: Cluster) -> int:
    """The largest data directory."""
    stores = [node.directory / "store" for node in cluster.local.nodes]
    return max(sum(map(_file_bytes, store.rglob("*"))) for store in stores)


def _file_bytes(path: Path) -> int:
    """Space of a file on the disk; 0 for a directory, and for a file removed meanwhile."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0
    return found.st_blocks * 512 if S_ISREG(found.st_mode) else 0


def test_disk_stays_bounded_and_an_old_message_stays_deliverable(small_files: Cluster) -> None:
    cluster = small_files
    channel = cluster.connect("n1").channel()
    channel.queue_declare("work", durable=True)
    channel.basic_publish("", "work", b"old".ljust(BODY_BYTES, b"."))
    holder = cluster.connect("n2").channel()
    wait_for("the old message", lambda: holder.basic_get("work")[0])
    arriving = channel.consume("work", auto_ack=True, inactivity_timeout=60)
    largest = 0
    for _ in range(ROUNDS):
        for number in range(ROUND_MESSAGES):
            channel.basic_publish("", "work", str(number).encode().ljust(BODY_BYTES, b"."))
        for number in range(ROUND_MESSAGES):
            assert int(next(arriving)[2].rstrip(b".")) == number
        largest = max(largest, store_bytes(cluster))
    assert largest < STORE_BYTES_MAX, f"{largest >> 20} MiB on disk"
    cluster.close_connections()
    cluster.kill("n1", "n2", "n3")
    cluster.start()
    channel = cluster.connect("n3").channel()
    method, _, body = wait_for("the old message", lambda: _get(channel))
    assert (method.redelivered, body[:4]) == (True, b"old.")
    assert channel.basic_get("work")[0] is None


def _get(channel: object) -> tuple[object, object, bytes] | None:
    method, properties, body = channel.basic_get("work")  # type: ignore[attr-defined]
    return None if method is None else (method, properties, body)
