"""Replicas of queues, and the catalog's voters, on real nodes in zones and on several hosts."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.command import run_command

ZONES: Final = {"n1": "a", "n2": "a", "n3": "b", "n4": "b", "n5": "c"}
HOSTS: Final = {1: "127.0.0.1", 2: "127.0.0.1", 3: "127.0.0.2", 4: "127.0.0.2", 5: "127.0.0.3"}
HEADRACE: Final = (sys.executable, "-m", "headrace_broker.cli")


def zoned(directory: Path, zones: dict[str, str]) -> Cluster:
    """Return a cluster whose nodes are in zones, not started yet."""
    cluster = Cluster(directory, len(zones))
    cluster.local.nodes = tuple(
        msgspec.structs.replace(node, zone=zones[node.name]) for node in cluster.local.nodes
    )
    return cluster


def rows(cluster: Cluster, path: str, name: str = "n1") -> list[dict[str, Any]]:
    """Return what a node answers to a request for a list."""
    answer = cluster.node(name).api.request("GET", path)
    assert answer.status == 200, answer
    return list(answer.body)


def zones_of(cluster: Cluster, queue: str) -> list[str]:
    """Return the zones of a queue's replicas, sorted."""
    [found] = [row for row in rows(cluster, "/api/queues") if row["name"] == queue]
    return sorted(ZONES[member] for member in found["members"])


def wait_zones(cluster: Cluster, zones: dict[str, str]) -> None:
    """Wait until the catalog has the zones of all nodes."""
    nodes = "/api/cluster/nodes"
    wait_for("zones", lambda: {r["name"]: r["zone"] for r in rows(cluster, nodes)} == zones)


def test_replicas_are_spread_over_zones_and_stay_so_when_they_move(tmp_path: Path) -> None:
    with zoned(tmp_path / "data", ZONES) as cluster:
        wait_zones(cluster, ZONES)
        with cluster.connect("n1") as connection:
            channel = connection.channel()
            for number in range(6):
                arguments = {"x-queue-type": "quorum"}
                channel.queue_declare(f"q{number}", durable=True, arguments=arguments)
        assert [zones_of(cluster, f"q{number}") for number in range(6)] == [["a", "b", "c"]] * 6
        leaving = next(  # n2 has no replica yet, and the other node of this zone has some
            member
            for row in rows(cluster, "/api/queues")
            for member in row["members"]
            if row["name"] == "q0" and ZONES[member] == "b"
        )
        words = ("queue", "members", "remove", "q0", leaving, "--move")
        run_command(cluster, (*HEADRACE, *words), "n1", 0)
        assert zones_of(cluster, "q0") == ["a", "b", "c"]
        cluster.local.add("d")
        wait_zones(cluster, {**ZONES, "n6": "d"})
        listed = run_command(cluster, (*HEADRACE, "node", "list"), "n1", 0)
        assert [line.split()[-1] for line in listed.splitlines()[1:]] == [*ZONES.values(), "d"]


def on_hosts(directory: Path) -> Cluster:
    """Return a cluster whose nodes are on HOSTS, not started yet."""
    cluster = Cluster(directory, len(HOSTS))
    cluster.local.nodes = tuple(
        msgspec.structs.replace(node, peer=f"{HOSTS[node.id]}:{node.peer.rpartition(':')[2]}")
        for node in cluster.local.nodes
    )
    return cluster


def wait_hosts(cluster: Cluster) -> None:
    """Wait until the cluster looks at hosts, as a new one soon does."""
    version = partial(cluster.node("n1").api.request, "GET", "/api/cluster/version")
    wait_for("the cluster version", lambda: version().body["version"] >= 2)


def test_replicas_are_spread_over_hosts(tmp_path: Path) -> None:
    with on_hosts(tmp_path / "data") as cluster:
        wait_hosts(cluster)
        hosts = {node.name: HOSTS[node.id] for node in cluster.local.nodes}
        with cluster.connect("n1") as connection:
            channel = connection.channel()
            for number in range(6):
                arguments = {"x-queue-type": "quorum"}
                channel.queue_declare(f"q{number}", durable=True, arguments=arguments)
        found = [
            {hosts[member] for member in row["members"]} for row in rows(cluster, "/api/queues")
        ]
        assert found == [set(HOSTS.values())] * 6


def catalog_roles(cluster: Cluster) -> dict[str, list[str]]:
    """Return what each node is in the catalog's log, as n4 says."""
    found = rows(cluster, "/api/nodes", "n4")
    return {row["name"]: [member["role"] for member in row["catalog"]] for row in found}


def test_the_catalogs_voters_are_spread_over_zones(tmp_path: Path) -> None:
    zones = {"n1": "a", "n2": "a", "n3": "b", "n4": "c"}  # n1, n2 and n3 vote when it is founded
    roles = {name: ["learner" if name == "n2" else "voter"] for name in zones}
    with zoned(tmp_path / "data", zones) as cluster:
        wait_for("voters in all zones", lambda: catalog_roles(cluster) == roles)
        cluster.kill("n1", "n2")
        with cluster.connect("n3") as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
            channel.basic_publish("", "q", b"without a zone")
        cluster.start()
        wait_for("everybody's return", lambda: catalog_roles(cluster) == roles)
        with cluster.connect("n2") as connection:
            [_, _, body] = connection.channel().basic_get("q", auto_ack=True)
        assert body == b"without a zone"
