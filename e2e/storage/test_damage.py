"""Bits that rot in the files of stopped nodes: the cluster mends itself, or says what to run."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.command import run_command

from headrace_broker.cli.backup.data_file import read_blocks
from headrace_broker.codecs.batch import message_body
from headrace_raftlog.storage.inspection.set_aside import ASIDE_NAME
from headrace_raftlog.storage.segment.record import (
    HEADER_BYTES,
    RECORD_HEAD,
    RECORD_TRAILER,
    SECTOR_BYTES,
    record_length_at,
    record_term_at,
    record_type_at,
    sector_end,
)

HEADRACE = [sys.executable, "-P", "-m", "headrace_broker.cli"]
QUEUES = tuple(f"queue-{number}" for number in range(12))
MESSAGES = 30
TAKEN = 5
LONE = (QUEUES[2], 25)  # in a batch of its own: replicas that are behind write several at once
WAIT_SECONDS = 180.0


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes with queues of which some messages were consumed."""
    with Cluster(tmp_path / "data") as cluster:
        channel = cluster.connect("n1").channel()
        channel.confirm_delivery()
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
        for number in range(MESSAGES):
            for queue in QUEUES:
                if (queue, number) == LONE:
                    wait_for("all replicas to be equal", lambda: no_replica_lags(cluster))
                channel.basic_publish("", queue, body(queue, number))
                if (queue, number) == LONE:
                    wait_for("all replicas to have it", lambda: no_replica_lags(cluster))
        for queue in QUEUES:
            for _ in range(TAKEN):
                method, _, _ = channel.basic_get(queue)
                channel.basic_ack(method.delivery_tag)
        wait_for("all replicas to have the last acknowledgement", lambda: all_have_all(cluster))
        yield cluster
        cluster.close_connections()


def all_have_all(cluster: Cluster) -> bool:
    """Return whether all replicas have all that was sent: acknowledgements are not confirmed."""
    counts = [(cluster.queue(queue) or {}).get("messages") for queue in QUEUES]
    return counts == [MESSAGES - TAKEN] * len(QUEUES) and no_replica_lags(cluster)


def no_replica_lags(cluster: Cluster) -> bool:
    api = cluster.node("n1").api
    for queue in QUEUES:
        status, told = api.get(f"/api/queues/%2F/{queue}/members")
        assert status == 200, told
        if any(each["lag"] != 0 for each in told["members"]):
            return False
    return True


def body(queue: str, number: int) -> bytes:
    return b"<%s/%04d>" % (queue.encode(), number)


def left(queue: str) -> list[bytes]:
    return [body(queue, number) for number in range(TAKEN, MESSAGES)]


def store(cluster: Cluster, name: str) -> Path:
    return cluster.node(name).directory / "store"


def segments(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.rglob("*.log")) if path.stem.isdigit()]


def flip(directory: Path, marker: bytes, before: int = 0) -> None:
    """Flip a bit where a message stands, or so many bytes before it."""
    for path in segments(directory):
        data = path.read_bytes()
        offset = data.find(marker)
        if offset >= 0:
            with path.open("r+b") as file:
                file.seek(offset - before)
                file.write(bytes([data[offset - before] ^ 4]))
            return
    raise AssertionError(f"{marker!r} is nowhere in {directory}")


def make_unreadable(directory: Path, marker: bytes) -> list[bytes]:
    """Damage both ends of the batch of a message, so that its groups are unknown.

    Returns the bodies of all messages in the batch.
    """
    for path in segments(directory):
        data = path.read_bytes()
        offset = data.find(marker)
        if offset >= 0:
            head = sector_end(offset - SECTOR_BYTES + 1)
            while record_type_at(data, head) != RECORD_HEAD:
                head -= SECTOR_BYTES
            end = head + record_term_at(data, head)
            trailer = end - HEADER_BYTES - record_length_at(data, head)
            assert record_type_at(data, trailer) == RECORD_TRAILER
            damaged = bytearray(data)
            damaged[head + 20] ^= 1
            damaged[trailer + 8] ^= 1
            path.write_bytes(damaged)
            return re.findall(rb"<queue-\d+/\d+>", data[head:end])
    raise AssertionError(f"{marker!r} is nowhere in {directory}")


def read_all(cluster: Cluster, name: str, queue: str) -> list[bytes]:
    channel = cluster.connect(name).channel()
    bodies: list[bytes] = []
    while True:
        method, _, found = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(found)


def members(cluster: Cluster, name: str, queue: str) -> list[str]:
    entry: dict[str, Any] = cluster.queue(queue, name) or {}
    return sorted(each["member"] for each in entry.get("replicas", []))


def test_rot_in_different_messages_of_all_nodes_loses_nothing(filled: Cluster) -> None:
    before = {queue: members(filled, "n1", queue) for queue in QUEUES}
    filled.close_connections()
    filled.kill("n1", "n2", "n3")
    for number, name in enumerate(("n1", "n2", "n3")):
        for queue in QUEUES[number::2]:
            flip(store(filled, name), body(queue, 10 + number))
        flip(store(filled, name), body(QUEUES[0], 20 + number))
    filled.start()
    for queue in QUEUES:
        assert read_all(filled, "n2", queue) == left(queue)
        assert members(filled, "n1", queue) == before[queue], "every replica stays who it was"


def test_node_whose_log_cannot_be_used_comes_back_by_itself(filled: Cluster) -> None:
    filled.close_connections()
    filled.kill("n3")
    make_unreadable(store(filled, "n3"), body(QUEUES[3], 7))
    filled.start()
    assert "sets its data aside" in filled.log("n3")
    (aside,) = store(filled, "n3").rglob(ASIDE_NAME)
    assert segments(aside)
    wait_for(
        "n3 to vote everywhere",
        lambda: all(
            len(found := members(filled, "n3", queue)) == 3 and any("." in each for each in found)
            for queue in QUEUES
        ),
        WAIT_SECONDS,
    )
    filled.kill("n1")
    for queue in QUEUES:
        assert read_all(filled, "n3", queue) == left(queue)
    filled.start()


def test_lone_survivor_of_which_little_is_intact_is_salvaged(
    filled: Cluster, tmp_path: Path
) -> None:
    filled.close_connections()
    filled.kill("n1", "n2", "n3")
    directory = segments(store(filled, "n2"))[0].parent
    flip(directory, body(QUEUES[0], 12))
    flip(directory, body(QUEUES[1], 1))  # it was consumed
    assert make_unreadable(directory, body(*LONE)) == [body(*LONE)]
    before = {path.name: path.read_bytes() for path in segments(directory)}
    place = tmp_path / "saved"
    command = [*HEADRACE, "log", "salvage", str(directory), "--to", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert {path.name: path.read_bytes() for path in segments(directory)} == before
    report = msgspec.json.decode((place / "salvage.json").read_bytes())
    assert report["damaged"]
    told = {row["name"]: row for row in report["queues"]}
    manifest = msgspec.json.decode((place / "manifest.json").read_bytes())
    saved = {queue["name"]: bodies_of(place, queue) for queue in manifest["queues"]}
    assert sorted(saved) == sorted(QUEUES)
    for queue in QUEUES[3:]:
        assert saved[queue] == left(queue), told[queue]
        assert not told[queue]["unreadable"]
    for queue, number in ((QUEUES[0], 12), LONE):
        assert sorted({*left(queue)} - {*saved[queue]}) == [body(queue, number)], told[queue]
        assert len(told[queue]["unreadable"]) == 1
    assert {*left(QUEUES[1])} <= {*saved[QUEUES[1]]}
    assert told[QUEUES[1]]["maybe_consumed"] >= MESSAGES - TAKEN
    filled.start()  # the other two have everything; restored queues stand beside
    run_command(filled, [*HEADRACE, "backup", "verify", str(place)])
    for queue in QUEUES:
        assert read_all(filled, "n2", queue) == left(queue)
    run_command(filled, [*HEADRACE, "restore", str(place), "--definitions", "none"])
    for queue in QUEUES[3:]:
        assert read_all(filled, "n2", queue) == left(queue)


def bodies_of(place: Path, queue: dict[str, Any]) -> list[bytes]:
    out: list[bytes] = []
    for file in queue["files"]:
        with (place / file["name"]).open("rb") as source:
            for block in read_blocks(source, file["name"]):
                out += [message_body(block.batch, 0, at) for at in range(block.messages)]
    return out


DEEP = "deep"
DEEP_MESSAGES = 100
DEEP_BYTES = 128 << 10


def deep_body(number: int) -> bytes:
    return b"<deep/%05d>" % number * (DEEP_BYTES // 12)


def drain_in_order(cluster: Cluster, name: str, count: int) -> None:
    """Consume so many messages and compare each with the published one."""
    channel = cluster.connect(name).channel()
    channel.basic_qos(prefetch_count=20)
    coming = channel.consume(DEEP, inactivity_timeout=WAIT_SECONDS)
    for number, (method, _, found) in enumerate(coming):
        assert method is not None, f"nothing came after {number} messages"
        assert found == deep_body(number), number
        channel.basic_ack(method.delivery_tag)
        if number + 1 == count:
            break
    channel.cancel()


def test_rot_under_running_nodes_is_mended_while_the_queue_is_drained(tmp_path: Path) -> None:
    with Cluster(tmp_path / "data") as cluster:
        channel = cluster.connect("n1").channel()
        channel.confirm_delivery()
        channel.queue_declare(DEEP, durable=True)
        for number in range(DEEP_MESSAGES):
            channel.basic_publish("", DEEP, deep_body(number))
        cluster.close_connections()
        names = ("n1", "n2", "n3")
        cluster.kill(*names)
        cluster.start()  # no node has the messages in memory any more
        leader = cluster.leader(DEEP)
        pids = {name: cluster.pid(name) for name in names}
        for place, name in enumerate(sorted(names, key=lambda name: name != leader)):
            for number in (4, 30, 60):
                flip(store(cluster, name), deep_body(number + place))
        drain_in_order(cluster, "n1", DEEP_MESSAGES)
        assert {name: cluster.pid(name) for name in names} == pids
        found = [name for name in names if "are damaged on this node" in cluster.log(name)]
        assert leader in found
        wait_for(
            "all replicas to take part again",
            lambda: all(
                cluster.log(name).count("log repaired")
                == cluster.log(name).count("are damaged on this node")
                for name in names
            ),
        )
        for name in names:
            assert "CRITICAL" not in cluster.log(name)
            assert "Traceback" not in cluster.log(name)
        cluster.close_connections()
