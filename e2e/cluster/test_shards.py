"""Nodes of several processes that are one node to clients."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

import pytest
from e2e.chaos.processes import shard_pids
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.command import run_command
from e2e.harness.ports import free_sharded_port

from headrace_broker.cli.local_cluster import NODES_MAX, ClusterError, LocalCluster, LocalNode
from headrace_broker.model.shard import SHARD_PORTS

SHARDS: Final = 2
QUEUES: Final = tuple(f"q{number}" for number in range(12))
HEADRACE: Final = (sys.executable, "-m", "headrace_broker.cli")
RABBITMQCTL: Final = str(Path(sys.executable).with_name("rabbitmqctl"))


@pytest.fixture
def sharded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three nodes of two processes each, all of which serve."""
    monkeypatch.setenv("HEADRACE_NODE_SHARDS", str(SHARDS))
    with Cluster(tmp_path / "data", base_port=free_sharded_port()) as started:
        for node in started.local.nodes:
            wait_for(f"{node.name}:1", partial(serves, node, 1))
        yield started
        started.close_connections()


def serves(node: LocalNode, shard: int) -> bool:
    """Return whether a further process of a node lets clients in."""
    return f"node {node.name}:{shard} serves AMQP" in node.log_file.read_text()


def rows(cluster: Cluster, path: str, name: str = "n1") -> list[dict[str, Any]]:
    """Return what a node answers to a request for a list."""
    answer = cluster.node(name).api.request("GET", path)
    assert answer.status == 200, answer
    return list(answer.body)


def messages(cluster: Cluster) -> int:
    """Return how many messages the cluster holds."""
    answer = cluster.node("n1").api.request("GET", "/api/overview")
    return int(answer.body["queue_totals"]["messages"])


def states(cluster: Cluster, name: str = "n1") -> list[list[bool]]:
    """Return by node which of its processes run, as a node sees it and they answer."""
    found = rows(cluster, "/api/cluster/nodes", name)
    return [[each["leaders"] is not None for each in row["shards"]] for row in found]


def publish(cluster: Cluster, name: str, text: str) -> None:
    """Publish a message to each queue, all confirmed."""
    with cluster.connect(name) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for queue in QUEUES:
            channel.basic_publish("", queue, text.encode(), mandatory=True)


def declare(cluster: Cluster) -> None:
    """Declare the queues."""
    with cluster.connect() as connection:
        channel = connection.channel()
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})


def bodies(cluster: Cluster, name: str) -> dict[str, list[bytes]]:
    """Take and return all that the queues hold."""
    found: dict[str, list[bytes]] = {queue: [] for queue in QUEUES}
    with cluster.connect(name) as connection:
        channel = connection.channel()
        for queue in QUEUES:
            while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
                found[queue].append(got[2])
    return found


def refusal_of(node: LocalNode) -> str:
    """Return why a node does not start."""
    refused = subprocess.run(
        [*HEADRACE, "serve", "--config", str(node.config_file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    return refused.stderr


def test_replicas_are_on_different_nodes_and_leaders_in_all_processes(sharded: Cluster) -> None:
    declare(sharded)
    found = rows(sharded, "/api/queues")
    for row in found:
        assert sorted(member.partition(":")[0] for member in row["members"]) == ["n1", "n2", "n3"]
    assert {row["members"][0] for row in found} == {"n1", "n1:1"}  # the client's own node
    for name in ("n1", "n2", "n3"):  # also of queues without a replica in the process that answers
        told = rows(sharded, "/api/queues", name)
        assert {row["state"] for row in told} == {"running"}, name
        assert {row["leader"] for row in told} == {"n1", "n1:1"}, name
        for row in told:
            assert {each["node"] for each in row["replicas"]} == set(row["members"]), name
    publish(sharded, "n1", "one")
    wait_for("totals", lambda: messages(sharded) == len(QUEUES))
    local = sharded.node("n1").api.request("GET", "/api/overview").body["local"]
    assert local["queue_totals"]["messages"] == len(QUEUES)  # its two processes lead them all
    catalog = [member for row in rows(sharded, "/api/nodes") for member in row["catalog"]]
    roles = {member["node"]: member["role"] for member in catalog}
    assert {name for name in roles if roles[name] == "voter"} == {"n1", "n2", "n3"}
    assert {name for name in roles if roles[name] == "learner"} == {"n1:1", "n2:1", "n3:1"}


def test_local_random_exchange_draws_among_the_queues_of_all_processes(sharded: Cluster) -> None:
    declare(sharded)
    with sharded.connect() as connection:
        channel = connection.channel()
        channel.exchange_declare("local", "x-local-random", durable=True)
        for queue in QUEUES:
            channel.queue_bind(queue, "local", "")
    for _ in range(8):  # some of them in each process
        with sharded.connect("n1") as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for _ in range(30):
                channel.basic_publish("local", "", b"x", mandatory=True)
    counts = [len(found) for found in bodies(sharded, "n2").values()]
    assert sum(counts) == 240
    assert min(counts) > 0  # all queues are led by one of both


def test_all_nodes_may_move_to_other_ports_at_once(sharded: Cluster) -> None:
    declare(sharded)
    publish(sharded, "n1", "before")
    assert sharded.local.stop() == []
    before = sharded.local.base_port
    for port in (before + NODES_MAX, before + NODES_MAX + SHARD_PORTS, before):
        sharded.local = LocalCluster(sharded.local.data, 3, port)
        sharded.start()  # at the second ones a first process has the port that a further one had
        wait_for("all processes", lambda: states(sharded) == [[True, True]] * 3)
        publish(sharded, "n2", str(port))
        if port != before:
            assert sharded.local.stop() == []
    ports = [before + NODES_MAX, before + NODES_MAX + SHARD_PORTS, before]
    texts = [b"before", *(str(port).encode() for port in ports)]
    assert bodies(sharded, "n3") == dict.fromkeys(QUEUES, texts)


def test_one_address_leads_to_all_processes_of_a_node(sharded: Cluster) -> None:
    connections = [sharded.connect("n2") for _ in range(24)]

    def spread() -> list[int]:
        [row] = [row for row in rows(sharded, "/api/cluster/nodes") if row["name"] == "n2"]
        return [each["connections"] for each in row["shards"]]

    wait_for("connections", lambda: sum(spread()) == len(connections))
    assert min(spread()) > 0
    [row] = [row for row in rows(sharded, "/api/nodes") if row["name"] == "n2"]
    assert [each["name"] for each in row["shards"]] == ["n2", "n2:1"]
    headers = {"Authorization": f"Basic {b64encode(b'guest:guest').decode()}"}
    asked = Request(f"http://{sharded.node('n2').http}/metrics", headers=headers)
    with urlopen(asked) as answer:
        assert b"\nheadrace_cluster_nodes 3.0\n" in answer.read()


def test_a_node_is_one_row_wherever_nodes_are_listed(sharded: Cluster) -> None:
    api = sharded.node("n1").api
    hanging = shard_pids(sharded.pid("n2"))[1]
    with sharded.stopped("n2"):  # the one that watches it
        os.kill(hanging, signal.SIGSTOP)
        wait_for("its absence", lambda: states(sharded)[1] == [True, False])
        told = run_command(sharded, (RABBITMQCTL, "cluster_status"), "n1", 0)
        assert "Running nodes: n1, n2, n3\n" in told
        assert "Nodes that are down: none\nShards that are down: n2:1\n" in told
        refused = sharded.node("n2").api.request("PUT", "/api/log-level", {"level": "info"})
        assert refused.body["reason"] == "the level is set, but not of n2:1: no answer"
    wait_for(
        "another in its place", lambda: shard_pids(sharded.pid("n2")).get(1, hanging) != hanging
    )
    assert "process n2:1 hangs: " in sharded.node("n2").log_file.read_text()
    wait_for("all processes", lambda: states(sharded) == [[True, True]] * 3)
    overview = api.request("GET", "/api/overview").body
    assert [node["name"] for node in overview["nodes"]] == ["n1", "n2", "n3"]
    amqp = [row["node"] for row in overview["listeners"] if row["protocol"] == "amqp"]
    assert amqp == ["n1", "n2", "n3"]
    level = {"level": "debug", "logger": "headrace.connection"}
    assert sharded.node("n2").api.request("PUT", "/api/log-level", level).status == 204
    opened = [sharded.connect("n2") for _ in range(24)]  # some in each process
    debug = sharded.node("n2").log_file.read_text()
    assert debug.count("connection_opened") >= len(opened)


def test_a_process_that_is_killed_is_started_again_alone(sharded: Cluster) -> None:
    declare(sharded)
    publish(sharded, "n3", "before")
    before = shard_pids(sharded.pid("n2"))
    os.kill(before[1], signal.SIGKILL)
    publish(sharded, "n3", "meanwhile")  # the queues that it led are led elsewhere
    wait_for("the process", lambda: states(sharded) == [[True, True]] * 3)
    wait_for("a new process", lambda: len(shard_pids(sharded.pid("n2"))) == SHARDS)
    after = shard_pids(sharded.pid("n2"))
    assert after[0] == before[0]
    assert after[1] != before[1]
    publish(sharded, "n2", "after")
    assert bodies(sharded, "n1") == {queue: [b"before", b"meanwhile", b"after"] for queue in QUEUES}
    assert "shard_ended" in sharded.node("n2").log_file.read_text()


def test_a_node_that_is_killed_is_gone_with_all_its_processes(sharded: Cluster) -> None:
    declare(sharded)
    publish(sharded, "n1", "before")
    before = shard_pids(sharded.pid("n2"))
    sharded.kill("n2")
    wait_for(
        "their end", lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in before.values())
    )
    publish(sharded, "n1", "meanwhile")
    sharded.start()
    wait_for("all processes", lambda: states(sharded) == [[True, True]] * 3)
    assert bodies(sharded, "n2") == {queue: [b"before", b"meanwhile"] for queue in QUEUES}


def test_a_node_is_drained_and_revived_with_all_its_processes(
    sharded: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(sharded)
    run_command(sharded, (*HEADRACE, "node", "drain", "n3"), "n1", 0)
    [row] = [row for row in rows(sharded, "/api/cluster/nodes") if row["name"] == "n3"]
    assert row["drained"]
    assert [each["leaders"] for each in row["shards"]] == [0, 0]
    sharded.kill("n3")
    monkeypatch.setenv("HEADRACE_NODE_SHARDS", "3")  # a new process of a drained node is drained
    sharded.local.start()
    wait_for("a third process", lambda: states(sharded)[2] == [True] * 3)

    def drained() -> list[bool]:
        [row] = [row for row in rows(sharded, "/api/cluster/nodes") if row["name"] == "n3"]
        return [each["being_drained"] for each in row["shards"]]

    wait_for("its drain", lambda: drained() == [True] * 3)
    refused = sharded.node("n3").api.request("DELETE", "/api/cluster/nodes/n3")
    assert "it is the one that was asked" in refused.body["reason"]
    assert states(sharded)[2] == [True] * 3, "none of it is forgotten"
    run_command(sharded, (*HEADRACE, "node", "revive", "n3"), "n1", 0)
    publish(sharded, "n3", "after")


def test_a_process_leaves_before_a_node_has_fewer(
    sharded: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(sharded)
    publish(sharded, "n1", "before")
    node = sharded.node("n3")
    taken = refusal_of(node)  # a second one with the same addresses
    assert "is in use, maybe by another node" in taken
    monkeypatch.setenv("HEADRACE_NODE_SHARDS", "1")
    assert "headrace node forget n3:1 --replicas move" in refusal_of(node)
    run_command(sharded, (*HEADRACE, "node", "drain", "n3:1"), "n1", 0)
    run_command(sharded, (*HEADRACE, "node", "forget", "n3:1", "--replicas", "move"), "n1", 0)
    sharded.kill("n3")
    sharded.local.start()
    with pytest.raises(ClusterError, match="forget n3:1"):
        sharded.local.wait_ready(10)
    (node.directory / "store" / "shard-1").rename(node.directory / "gone")
    sharded.start()
    assert [len(each) for each in states(sharded)] == [2, 2, 1]
    assert bodies(sharded, "n3") == {queue: [b"before"] for queue in QUEUES}


def test_command_starts_local_nodes_of_as_many_processes_as_it_was_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    port = str(free_sharded_port())

    def command(*words: str) -> None:
        arguments = [*HEADRACE, "cluster", *words, "--data", str(data)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr

    def shards() -> list[list[str]]:
        api = LocalCluster.existing(data).nodes[0].api
        found = api.request("GET", "/api/cluster/nodes").body
        assert isinstance(found, list), found
        return [[each["name"] for each in row["shards"] if each["running"]] for row in found]

    command("start", "--nodes", "1", "--base-port", port, "--shards", "2")
    try:
        wait_for("both processes", lambda: shards() == [["n1", "n1:1"]])
        command("stop")
        command("start", "--nodes", "1", "--base-port", port)
        wait_for("both processes again", lambda: shards() == [["n1", "n1:1"]])
        command("add")
        wait_for("those of the other node", lambda: shards() == [["n1", "n1:1"], ["n2", "n2:1"]])
    finally:
        command("stop")
