"""The examples of the Python client, and the client itself where nodes are killed, on a cluster."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.harness.cluster import Cluster

from headrace_client import Client

EXAMPLES = Path(__file__).resolve().parent.parent / "client" / "examples"
SECONDS = 120


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("client") / "data", base_port=24060) as cluster:
        yield cluster


def endpoints(cluster: Cluster) -> str:
    return ",".join(node.grpc for node in cluster.local.nodes)


def example(name: str, cluster: Cluster, *arguments: str) -> str:
    """What an example prints."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), endpoints(cluster), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["work_queue", "blocking_work_queue"])
def test_all_tasks_are_done(nodes: Cluster, name: str) -> None:
    assert example(name, nodes) == "did 100 of 100 tasks\n"


def test_a_publisher_that_is_held_hears_why(nodes: Cluster) -> None:
    held, why, end = example("why_slow", nodes).splitlines()
    assert held.startswith("held back after ")
    assert "example-slow" in why
    assert end == "all is confirmed"


def test_alarms_are_told(nodes: Cluster) -> None:
    assert example("alarms", nodes, "0") == "0 alarms are on\n"


def test_nothing_is_lost_when_the_node_is_killed(nodes: Cluster) -> None:
    async def scenario() -> None:
        async with await Client.connect(endpoints(nodes)) as client:
            await client.topology.declare_queue("kept")
            async with client.publisher(routing_key="kept") as publisher:
                confirms = []
                for number in range(2000):
                    confirms.append(await publisher.publish(b"%d" % number))
                    if number == 1000:
                        nodes.kill(publisher.node)
                for confirm in confirms:
                    await confirm
            found = []
            async with client.consumer("kept", until_empty=True) as consumer:
                async for delivery in consumer:
                    found.append(int(delivery.body))
                    delivery.accept()
            assert set(found) == set(range(2000))
            resent = {number for number, each in enumerate(confirms) if each.resent}
            twice = {number for number in found if found.count(number) > 1}
            assert twice <= resent
            await client.topology.delete_queue("kept")

    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            await scenario()

    asyncio.run(bounded())
    nodes.start()
