"""A node comes back with less than it promised: it must not take part with that."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.harness.cluster import Cluster, wait_for

from headrace_raftlog.storage.writing.mark_file import MarkFile

QUEUE = "q"
MESSAGES = 300  # of each part
WAIT_SECONDS = 120.0


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("HEADRACE_LOG_SEGMENT_BYTES", str(2 << 20))
    monkeypatch.setenv("HEADRACE_LIMITS_MESSAGE_BYTES_MAX", str(512 << 10))
    with Cluster(tmp_path / "data") as made:
        yield made
        made.close_connections()


def store(cluster: Cluster, name: str) -> Path:
    return cluster.node(name).directory / "store"


def publish(cluster: Cluster, name: str, part: str, size: int = 100) -> None:
    """Publish through a node, with confirms: what returns is stored by a majority."""
    channel = cluster.connect(name).channel()
    channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
    channel.confirm_delivery()
    for number in range(MESSAGES):
        channel.basic_publish("", QUEUE, f"{part}-{number}".encode().ljust(size, b"."))
    cluster.close_connections()


def stored(cluster: Cluster, name: str) -> list[str]:
    """Take everything out of the queue, in order."""
    channel = cluster.connect(name).channel()
    found: list[str] = []
    while True:
        method, _, body = channel.basic_get(QUEUE, auto_ack=True)
        if method is None:
            return found
        found.append(body.decode().rstrip("."))


def expected(*parts: str) -> list[str]:
    return [f"{part}-{number}" for part in parts for number in range(MESSAGES)]


def disk(cluster: Cluster, name: str) -> int:
    return int(json.loads((store(cluster, name) / "node.json").read_text())["disk"])


def is_new_member(cluster: Cluster, name: str, ask: str) -> bool:
    """Return True if a node has a new disk, and a member of that votes on the queue."""
    status, queues = cluster.node(ask).api.get("/api/queues")
    if status != 200:
        return False
    found: list[dict[str, Any]] = next(each for each in queues if each["name"] == QUEUE)["replicas"]
    own = [each for each in found if each["node"] == name]
    return len(own) == 1 and own[0]["role"] == "voter" and "." in own[0]["member"]


def rebuilt(cluster: Cluster, name: str, ask: str = "n1") -> None:
    wait_for(f"{name} to be a new member", lambda: is_new_member(cluster, name, ask), WAIT_SECONDS)


def remembers(cluster: Cluster, name: str, other: str) -> bool:
    """Return True if a node remembers durably all that another one says of itself durably."""
    marks = [MarkFile.open(str(store(cluster, each))) for each in (name, other)]
    known, own = (file.marks for file in marks)
    for file in marks:
        file.close()
    assert own.own is not None
    heard = known.peers[cluster.node(other).id][-1]
    # It has been idle, with all sealed, so that nothing comes any more.
    age = time.time() - newest_segment(cluster, other).stat().st_mtime
    return age > 2 and (heard.disk, heard.batch) == (own.own.disk, own.own.batch)


def newest_segment(cluster: Cluster, name: str) -> Path:
    """Return the newest segment with something in it."""
    segments = sorted(store(cluster, name).glob("*.log"))
    return [each for each in segments if any(each.read_bytes()[512:])][-1]


def cut_tail(path: Path, sectors: int) -> None:
    """Zero the last sectors of a segment that hold anything, as a disk that lied about syncs."""
    data = path.read_bytes()
    end = (len(data.rstrip(b"\0")) + 511) // 512 * 512
    with path.open("r+b") as file:
        start = max(end - sectors * 512, 512)
        file.seek(start)
        file.write(bytes(end - start))
        os.fsync(file.fileno())


def restore_old_copy(cluster: Cluster, name: str) -> None:
    """Publish, stop and copy a node, publish more with it, kill it and put the copy back."""
    publish(cluster, "n1", "early")
    cluster.kill(name)
    copy = cluster.node(name).directory / "copy"
    shutil.copytree(store(cluster, name), copy)
    cluster.start()
    publish(cluster, "n1", "late")
    cluster.kill(name)
    shutil.rmtree(store(cluster, name))
    shutil.move(copy, store(cluster, name))


def test_old_copy_of_a_directory_is_rebuilt_and_nothing_confirmed_is_gone(cluster: Cluster) -> None:
    restore_old_copy(cluster, "n3")
    before = disk(cluster, "n3")
    cluster.start()
    rebuilt(cluster, "n3")
    assert disk(cluster, "n3") != before
    assert "set aside" in cluster.log("n3")
    assert "older data than it had" in cluster.log("n1") + cluster.log("n2")
    cluster.kill("n1")
    publish(cluster, "n3", "more")
    assert stored(cluster, "n3") == expected("early", "late", "more")
    cluster.start()


def test_old_copy_whose_promises_only_one_peer_knows_gives_nothing_away(cluster: Cluster) -> None:
    publish(cluster, "n1", "early")
    cluster.kill("n3")
    copy = cluster.node("n3").directory / "copy"
    shutil.copytree(store(cluster, "n3"), copy)
    cluster.start()
    cluster.kill("n2")
    publish(cluster, "n1", "late")  # on n1 and n3 only
    cluster.kill("n3")
    shutil.rmtree(store(cluster, "n3"))
    shutil.move(copy, store(cluster, "n3"))
    cluster.local.start()
    with cluster.stopped("n2"):  # it knows how often n3 was started, which tells as well
        wait_for("n1 to say so", lambda: "older data than it had" in cluster.log("n1"))
    cluster.start()
    rebuilt(cluster, "n3")
    assert stored(cluster, "n2") == expected("early", "late")


@pytest.mark.parametrize("damage", ["tail", "segment"])
def test_shortened_log_is_noticed_at_the_start(cluster: Cluster, damage: str) -> None:
    publish(cluster, "n1", "first", 20_000)
    publish(cluster, "n1", "second", 20_000)
    cluster.kill("n3")
    newest = newest_segment(cluster, "n3")
    if damage == "segment":
        newest.unlink()
    else:
        cut_tail(newest, 200)
    cluster.start()
    rebuilt(cluster, "n3")
    assert "set aside" in cluster.log("n3")
    cluster.kill("n1")
    assert stored(cluster, "n3") == expected("first", "second")
    cluster.start()


def test_shortened_log_of_one_of_all_nodes_that_start_together(cluster: Cluster) -> None:
    publish(cluster, "n1", "first", 20_000)
    wait_for("n1 to remember all of n3", lambda: remembers(cluster, "n1", "n3"), WAIT_SECONDS)
    cluster.kill("n1", "n2", "n3")
    cut_tail(newest_segment(cluster, "n3"), 200)
    (store(cluster, "n3") / "marks").unlink()  # only its peers remember
    cluster.start()
    rebuilt(cluster, "n3")
    cluster.kill("n1")
    assert stored(cluster, "n3") == expected("first")
    cluster.start()


def test_killed_nodes_come_back_as_who_they_were(cluster: Cluster) -> None:
    disks = [disk(cluster, name) for name in ("n1", "n2", "n3")]
    for turn in range(3):
        publish(cluster, "n1", f"{turn}")
        cluster.kill(*(("n3",), ("n2", "n3"), ("n1", "n2", "n3"))[turn])
        cluster.start()
    assert [disk(cluster, name) for name in ("n1", "n2", "n3")] == disks
    assert "older data" not in "".join(cluster.log(name) for name in ("n1", "n2", "n3"))
    assert stored(cluster, "n2") == expected("0", "1", "2")


@pytest.mark.parametrize("idle", [False, True], ids=["behind", "idle"])
def test_clone_that_runs_beside_its_node_is_refused_and_ends(
    cluster: Cluster, tmp_path: Path, idle: bool
) -> None:
    publish(cluster, "n1", "first")
    clone = tmp_path / "clone"
    if idle:
        publish(cluster, "n1", "second")
        shutil.copytree(store(cluster, "n3"), clone)
    else:
        cluster.kill("n3")
        shutil.copytree(store(cluster, "n3"), clone)
        cluster.start()
        publish(cluster, "n1", "second")
    process = cluster.start_clone("n3", clone, tmp_path / "clone.log")
    try:
        assert process.wait(WAIT_SECONDS) != 0
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert "runs twice" in (tmp_path / "clone.log").read_text()
    wait_for(
        "a peer to log it",
        lambda: "runs twice" in cluster.log("n1") + cluster.log("n2"),
        WAIT_SECONDS,
    )
    publish(cluster, "n3", "third")
    cluster.kill("n1")
    assert stored(cluster, "n3") == expected("first", "second", "third")
    cluster.start()
