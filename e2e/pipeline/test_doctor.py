"""The doctor beside a real node: its findings, and its advice for a user with few rights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.harness.cluster import Cluster, wait_for

from headrace_client.blocking import Client

Checks = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), 1) as made:
        yield made


def endpoint(cluster: Cluster) -> str:
    return cluster.node("n1").grpc


def doctor(cluster: Cluster, *words: str) -> tuple[int, Checks]:
    """Return the exit code, and checks by name."""
    command = [sys.executable, "-m", "headrace_pipeline.cli.main", "doctor", "--json", "--no-spark"]
    result = subprocess.run(
        [*command, "--endpoints", endpoint(cluster), *words],
        capture_output=True,
        text=True,
        env=os.environ,
        check=False,
    )
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return result.returncode, {row["name"]: row for row in rows}


def states(checks: Checks, *names: str) -> list[str]:
    return [checks[name]["state"] for name in names]


def test_an_administrator_may_all_and_nothing_is_changed(cluster: Cluster, tmp_path: Path) -> None:
    with Client.connect(endpoint(cluster)) as client:
        client.topology.declare_queue("orders")
        shards = client.export.shards
        wait_for("a sample", lambda: any(s.last_ms for s in shards("flow_samples").shards))
        place = tmp_path / "table"
        code, checks = doctor(cluster, "--table", str(place), "--queue", "orders")
        assert code == 0, checks
        names = ("endpoints", "log-in", "telemetry", "advice", "clock", "group", "table")
        assert states(checks, *names) == ["ok"] * len(names)
        assert checks["archives"]["state"] == "warn"
        assert client.lease_group("orders", "headrace-pipeline").describe() is None
        assert client.advice.list() == ()
    assert not place.exists()


def test_what_a_user_may_not_is_said_with_the_tag_to_give(cluster: Cluster, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("secret-of-a-reader\n")
    with Client.connect(endpoint(cluster)) as client:
        client.topology.declare_user("reader", password="secret-of-a-reader")
        client.topology.declare_permission("reader", configure="", write="", read="")
    who = ("--username", "reader", "--password-file", str(secret))
    _, checks = doctor(cluster, *who)
    assert checks["log-in"]["state"] == "ok"
    assert states(checks, "telemetry", "advice") == ["warn", "warn"]
    assert "monitoring" in checks["telemetry"]["advice"]
    assert "policymaker" in checks["advice"]["advice"]
    secret.write_text("another\n")
    code, checks = doctor(cluster, *who)
    assert code == 1
    assert checks["log-in"]["state"] == "fail"
    assert "--password-file" in checks["log-in"]["advice"]
    assert "secret" not in json.dumps(checks)


def test_a_group_that_holds_messages_is_told(cluster: Cluster) -> None:
    with Client.connect(endpoint(cluster)) as client:
        client.topology.declare_queue("held")
        with client.publisher(routing_key="held") as publisher:
            publisher.publish(b"1").wait()
        group = client.lease_group("held", "lake")
        group.open("a request", 60.0)
        group.lease(1, 10, ttl_s=60.0)
        _, checks = doctor(cluster, "--queue", "held", "--group", "lake")
        group.close_group()
    assert checks["group"]["state"] == "warn"
    assert "holds messages" in checks["group"]["says"]
