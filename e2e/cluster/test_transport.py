"""Nodes that replicate over gRPC: one port between them, deaths, and nodes of both settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for

VARIABLE = "HEADRACE_CLUSTER_TRANSPORT"
QUEUE = "work"
LARGE_BYTES = 31 << 20  # more than half of what gRPC takes in one message
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def listening_ports(pid: int) -> set[int]:
    """Ports of TCP on which a process listens."""
    inodes: set[str] = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            target = str(each.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found: set[int] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def further_ports(cluster: Cluster, name: str) -> set[int]:
    """Ports on which a node listens and that its configuration does not name."""
    node = cluster.node(name)
    named = (node.amqp, node.http, node.grpc, node.peer)
    return listening_ports(cluster.pid(name)) - {int(each.rpartition(":")[2]) for each in named}


def publish(cluster: Cluster, name: str, body: bytes) -> None:
    """Publish through a node, and wait for the confirm."""
    channel = cluster.connect(name, heartbeat=0).channel()
    channel.confirm_delivery()
    channel.basic_publish("", QUEUE, body, PERSISTENT, mandatory=True)


def take(cluster: Cluster, name: str) -> bytes:
    """Return the body of the next message, from a node."""
    channel = cluster.connect(name, heartbeat=0).channel()
    return bytes(
        wait_for("a message", lambda: channel.basic_get(QUEUE, auto_ack=True)[2], seconds=120)
    )


@pytest.fixture
def grpc_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three nodes over gRPC, and a replicated queue."""
    monkeypatch.setenv(VARIABLE, "grpc")
    monkeypatch.setenv("HEADRACE_LIMITS_MESSAGE_BYTES_MAX", str(LARGE_BYTES))
    with Cluster(tmp_path) as nodes:
        nodes.connect().channel().queue_declare(QUEUE, durable=True)
        yield nodes
        nodes.close_connections()


def test_over_grpc_no_second_port_is_open_and_large_messages_outlive_their_leader(
    grpc_cluster: Cluster,
) -> None:
    cluster = grpc_cluster
    assert [further_ports(cluster, node.name) for node in cluster.local.nodes] == [set()] * 3
    leader = cluster.leader(QUEUE)
    first, second = (node.name for node in cluster.local.nodes if node.name != leader)
    publish(cluster, first, b"1" * LARGE_BYTES)
    assert take(cluster, second) == b"1" * LARGE_BYTES
    publish(cluster, first, b"2" * LARGE_BYTES)
    cluster.kill(leader)
    cluster.leader(QUEUE)
    assert take(cluster, second) == b"2" * LARGE_BYTES
    publish(cluster, first, b"without it")
    cluster.start()
    assert take(cluster, leader) == b"without it"


def test_cluster_changes_to_grpc_and_back_node_by_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "frames")
    with Cluster(tmp_path) as cluster:
        cluster.connect().channel().queue_declare(QUEUE, durable=True)
        names = [node.name for node in cluster.local.nodes]
        assert all(len(further_ports(cluster, name)) == 1 for name in names)
        for transport, ports in (("grpc", 0), ("frames", 1)):
            monkeypatch.setenv(VARIABLE, transport)
            for name in names:
                other = next(each for each in names if each != name)
                cluster.kill(name)
                publish(cluster, other, f"{transport} {name}".encode())
                cluster.start()
                assert len(further_ports(cluster, name)) == ports
                assert take(cluster, name) == f"{transport} {name}".encode()
        cluster.close_connections()
