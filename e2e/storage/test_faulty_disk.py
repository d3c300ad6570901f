"""Real nodes on disks that fail a sync, lie, or lose what was not synced."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.consumer import Consumer
from e2e.harness.faulty_disk import FaultyDisk, build_library
from e2e.harness.publisher import Publisher

LED_WHERE_DECLARED = {"x-queue-type": "quorum", "x-queue-leader-locator": "client-local"}
WAIT_SECONDS = 120.0
MANY = 1_000_000
WRITER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.pwritev(fd, [b"synced."], 0, os.RWF_DSYNC)
os.pwrite(fd, b"also..", 7)
os.fdatasync(fd)
os.pwrite(fd, b"LOST", 0)
os.pwrite(fd, b"AND THIS", 20)
"""
FAILING = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for call in (lambda: os.pwritev(fd, [b"x"], 0, os.RWF_DSYNC), lambda: os.fdatasync(fd)):
    for _ in range(2):
        try:
            call()
        except OSError as error:
            print(error.errno, end=" ")
        else:
            print("fine", end=" ")
"""


@pytest.fixture
def disk(tmp_path: Path) -> FaultyDisk:
    """The disk of a node that is a small program."""
    (tmp_path / "node" / "store").mkdir(parents=True)
    return FaultyDisk(tmp_path / "node")


def run_writer(tmp_path: Path, program: str, file: str = "file") -> tuple[str, Path]:
    """Run a program on a file of the node's store; return what it printed, and the file."""
    path = tmp_path / "node" / "store" / file
    environment = {**os.environ, **build_library(tmp_path / "library", tmp_path)}
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout, path


def test_what_was_not_synced_is_lost_and_nothing_else(disk: FaultyDisk, tmp_path: Path) -> None:
    _, file = run_writer(tmp_path, WRITER)
    assert file.read_bytes().startswith(b"LOSTed.")
    assert disk.lose_unsynced() == 2
    assert file.read_bytes() == b"synced.also.."


def test_a_lying_disk_loses_what_was_synced(disk: FaultyDisk, tmp_path: Path) -> None:
    disk.lie()
    _, file = run_writer(tmp_path, WRITER)
    assert disk.lose_unsynced() == 4
    assert file.read_bytes() == b""


def test_a_sync_fails_as_often_as_told_whichever_call_it_is(
    disk: FaultyDisk, tmp_path: Path
) -> None:
    disk.fail_syncs(1)
    assert run_writer(tmp_path, FAILING)[0] == "5 fine fine fine "
    disk.fail_syncs(3)
    assert run_writer(tmp_path, FAILING, "other")[0] == "5 5 5 fine "


@pytest.fixture
def disks(tmp_path: Path) -> dict[str, FaultyDisk]:
    """The disks of all nodes."""
    return {name: FaultyDisk(tmp_path / "data" / name) for name in ("n1", "n2", "n3")}


@pytest.fixture
def faulty(
    tmp_path: Path, disks: dict[str, FaultyDisk], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """Three nodes, each on a disk of its own."""
    assert set(disks) == {"n1", "n2", "n3"}
    for name, value in build_library(tmp_path / "library", tmp_path / "data").items():
        monkeypatch.setenv(name, value)
    with Cluster(tmp_path / "data") as cluster:
        yield cluster
        cluster.close_connections()


def vote_again(cluster: Cluster, name: str, queue: str) -> bool:
    """Return whether a node's member votes in the catalog and in a queue."""
    status, rows = cluster.node(name).api.get("/api/nodes")
    entry = cluster.queue(queue, name)
    if status != 200 or entry is None:
        return False
    own = next(row for row in rows if row["name"] == name)
    replicas = [each for each in entry["replicas"] if each["node"] == name]
    return all(
        len(members) == 1 and members[0]["role"] == "voter"
        for members in (own["catalog"], replicas)
    )


def declare(cluster: Cluster, node: str) -> Any:
    """Declare the queue at a node that is to lead it; return a channel with confirms."""
    channel = cluster.connect(node).channel()
    channel.queue_declare("work", durable=True, arguments=LED_WHERE_DECLARED)
    channel.confirm_delivery()
    return channel


def test_node_whose_sync_failed_once_does_not_go_on_with_what_it_wrote(
    faulty: Cluster, disks: dict[str, FaultyDisk]
) -> None:
    declare(faulty, "n1")
    ports = [faulty.port("n2"), faulty.port("n3")]
    with Publisher(ports, "work", MANY, 100) as publisher:
        assert publisher.wait_confirmed(500, WAIT_SECONDS), publisher.failure
        disks["n1"].fail_syncs(1)
        wait_for("n1 to end", lambda: faulty.node("n1").process() is None)
        confirmed = len(publisher.confirmed)
        assert publisher.wait_confirmed(confirmed + 500, WAIT_SECONDS), publisher.failure
    assert disks["n1"].syncs_to_fail == 0
    assert "Input/output error" in faulty.log("n1")
    disks["n1"].lose_unsynced()
    faulty.start()
    wait_for("n1 to vote", lambda: vote_again(faulty, "n1", "work"), WAIT_SECONDS)
    faulty.kill("n3")
    with Consumer([faulty.port("n1")], "work") as consumer:
        assert not consumer.wait_all(publisher.confirmed, WAIT_SECONDS)


def test_power_lost_on_all_nodes_loses_nothing_confirmed(
    faulty: Cluster, disks: dict[str, FaultyDisk]
) -> None:
    declare(faulty, "n1")
    with Publisher(faulty.ports, "work", MANY, 100) as publisher:
        assert publisher.wait_confirmed(2000, WAIT_SECONDS), publisher.failure
        faulty.kill("n1", "n2", "n3")
    for disk in disks.values():
        disk.lose_unsynced()
    faulty.start()
    with Consumer([faulty.port("n2")], "work") as consumer:
        assert not consumer.wait_all(publisher.confirmed, WAIT_SECONDS)


def test_node_whose_disk_lied_comes_back_without_its_promises_and_nothing_is_lost(
    faulty: Cluster, disks: dict[str, FaultyDisk]
) -> None:
    channel = declare(faulty, "n1")
    for number in range(100):
        channel.basic_publish("", "work", b"%d" % number)
    wait_for("n3 to vote", lambda: vote_again(faulty, "n3", "work"), WAIT_SECONDS)
    disks["n3"].lie()
    faulty.kill("n2")  # what comes now needs n3, and n3 does not keep it
    for number in range(100, 300):
        channel.basic_publish("", "work", b"%d" % number)
    faulty.close_connections()
    faulty.kill("n3")
    assert disks["n3"].lose_unsynced() > 0
    faulty.start()
    wait_for("n3 to be told", lambda: "came back with older data than it had" in faulty.log("n3"))
    wait_for("n3 to vote", lambda: vote_again(faulty, "n3", "work"), WAIT_SECONDS)
    wait_for("n2 to vote", lambda: vote_again(faulty, "n2", "work"), WAIT_SECONDS)
    faulty.kill("n1")
    with Consumer([faulty.port("n3")], "work") as consumer:
        assert not consumer.wait_all(set(range(300)), WAIT_SECONDS)
