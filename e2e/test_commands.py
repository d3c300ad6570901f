"""Commands of a shell against a cluster: declare, publish, consume, measure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from e2e.harness.cluster import Cluster
from e2e.harness.command import run_command

HEADRACE = str(Path(sys.executable).parent / "headrace")


def headrace(cluster: Cluster, *words: str, node: str = "n1", code: int = 0) -> str:
    return run_command(cluster, [HEADRACE, *words], node=node, code=code)


def at(cluster: Cluster, node: str = "n1", protocol: str = "amqp") -> list[str]:
    place = cluster.node(node)
    address = place.amqp if protocol == "amqp" else place.grpc
    return ["--protocol", protocol, "--address", address]


@pytest.mark.parametrize(("into", "out"), [("amqp", "grpc"), ("grpc", "amqp")])
def test_what_is_declared_and_published_through_one_node_is_consumed_through_another(
    shared_cluster: Cluster, tmp_path: Path, into: str, out: str
) -> None:
    cluster, exchange, queue = shared_cluster, f"commands-x-{into}", f"commands-q-{into}"
    headrace(cluster, "exchange", "declare", exchange, "--type", "topic")
    headrace(cluster, "queue", "declare", queue, "-a", "x-max-length=5", node="n2")
    headrace(cluster, "binding", "declare", exchange, queue, "--routing-key", "a.*", node="n3")
    rows = json.loads(headrace(cluster, "binding", "list", "-o", "json"))
    assert [row["routing_key"] for row in rows if row["source"] == exchange] == ["a.*"]

    (tmp_path / "lines").write_bytes(b"one\n\xff\n")
    words = ["--file", str(tmp_path / "lines"), "--lines", "-H", "tenant=7"]
    words += ["-p", "type=t", "-p", "expiration=600000", *at(cluster, protocol=into)]
    assert headrace(cluster, "publish", "--exchange", exchange, "a.b", *words) == "published 2\n"
    words = ["--exchange", exchange, "c", "lost", *at(cluster, protocol=into)]
    assert "reaches no queue" in headrace(cluster, "publish", *words, code=3)

    words = ["--until-empty", "-o", "json", *at(cluster, "n3", out)]
    taken = headrace(cluster, "consume", queue, *words)
    messages = [json.loads(line) for line in taken.splitlines()]
    assert [message["body"] for message in messages] == ["one", "/w=="]
    properties = {"headers": {"tenant": 7}, "delivery_mode": 2, "type": "t"}
    messages[0]["properties"].pop("message_id", None)  # which the AMQP client makes up
    assert messages[0]["properties"] == {**properties, "expiration": "600000"}
    headrace(cluster, "queue", "delete", queue, "--if-empty")
    assert "no queue" in headrace(cluster, "queue", "show", queue, code=3)


@pytest.mark.parametrize("protocol", ["amqp", "grpc"])
def test_perf_gives_back_everything_that_it_sent(shared_cluster: Cluster, protocol: str) -> None:
    cluster, queue = shared_cluster, f"commands-perf-{protocol}"
    words = ["--seconds", "1", "--queues", "2", "--publishers", "2", "--consumers", "2"]
    words += at(cluster, protocol=protocol)
    told = headrace(cluster, "perf", "--queue", queue, "-o", "json", *words)
    summary = json.loads(told)
    assert summary["sent"] == summary["confirmed"] == summary["received"] > 0
    assert 0 < summary["latency_ms"]["p50"] <= summary["latency_ms"]["max"]
    assert not any(queue in row["name"] for row in cluster.node("n1").api.get("/api/queues")[1])


def test_a_password_is_neither_an_argument_nor_printed(shared_cluster: Cluster) -> None:
    environment = {"HEADRACE_API_USER": "guest", "HEADRACE_API_PASSWORD": "wr0ng"}
    environment["HEADRACE_API"] = shared_cluster.node("n1").http
    command = [HEADRACE, "queue", "list"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 4
    assert "wr0ng" not in done.stdout + done.stderr
