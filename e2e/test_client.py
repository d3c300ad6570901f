"""The examples of the Python client, and the client itself where nodes are killed, on a cluster."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from e2e.harness.cluster import Cluster

from headrace_client import PERSISTENT, Client, Confirm, Properties, Publisher, blocking

EXAMPLES = Path(__file__).resolve().parent.parent / "client" / "examples"
SECONDS = 120
COUNT = 2000


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("client") / "data") as cluster:
        yield cluster
        cluster.close_connections()


def endpoints(cluster: Cluster) -> str:
    return ",".join(node.grpc for node in cluster.local.nodes)


def example(name: str, cluster: Cluster, *arguments: str, code: int = 0) -> str:
    """Return the output of an example."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), endpoints(cluster), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, env=os.environ
    )
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["work_queue", "blocking_work_queue"])
def test_all_tasks_are_done(nodes: Cluster, name: str) -> None:
    assert example(name, nodes) == "did 100 of 100 tasks\n"


def test_a_job_that_is_run_again_publishes_nothing_twice(nodes: Cluster) -> None:
    example("exactly_once", nodes, "60", code=3)
    assert example("exactly_once", nodes) == "100 messages, 100 different ones\n"


def test_a_publisher_that_is_held_hears_why(nodes: Cluster) -> None:
    held, why, end = example("why_slow", nodes).splitlines()
    assert held.startswith("held back after ")
    assert "example-slow" in why
    assert end == "all is confirmed"


def test_alarms_are_told(nodes: Cluster) -> None:
    assert example("alarms", nodes, "0") == "0 alarms are on\n"


def test_a_job_takes_over_what_another_one_holds(nodes: Cluster) -> None:
    taken, fenced, end = example("by_lease", nodes).splitlines()
    assert taken == "taken over: 600 messages"
    assert "somebody else has opened the group since" in fenced
    assert end == "1000 different messages read, 1000 settled"


HEADERS = {
    "boolean": True,
    "long": -(1 << 40),
    "text": "grün",
    "byte_count": b"\x00\xff",
    "time": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "decimal": Decimal("3.14"),
    "none": None,
    "table": {"in": [1 << 40, "x"]},
}
PROPERTIES = Properties(
    content_type="application/x",
    content_encoding="gzip",
    headers=HEADERS,
    delivery_mode=PERSISTENT,
    priority=3,
    correlation_id="c",
    reply_to="r",
    expiration=timedelta(minutes=10),
    message_id="m",
    timestamp=datetime(2026, 1, 31, 12, tzinfo=UTC),
    type="t",
    user_id="guest",
    app_id="a",
    cluster_id="k",
)


def test_one_queue_over_both_protocols_keeps_all_properties(nodes: Cluster) -> None:
    """Published over gRPC, consumed and published again over AMQP, consumed over gRPC."""
    channel = nodes.connect("n1").channel()
    channel.queue_declare("both", durable=True)
    channel.confirm_delivery()

    with blocking.Client.connect(endpoints(nodes)) as client:
        with client.publisher(routing_key="both") as publisher:
            publisher.publish(b"body", properties=PROPERTIES).wait()
        method, properties, body = next(channel.consume("both", inactivity_timeout=SECONDS))
        assert properties.headers["table"] == {"in": [1 << 40, "x"]}
        assert (properties.expiration, properties.type, body) == ("600000", "t", b"body")
        channel.basic_ack(method.delivery_tag)
        channel.cancel()
        channel.basic_publish("", "both", body, properties)
        with client.consumer("both") as consumer:
            delivery = consumer.next(SECONDS)
            assert delivery is not None
            delivery.accept()
        assert delivery.properties == PROPERTIES
        assert (delivery.exchange, delivery.routing_key) == ("", "both")
        assert (delivery.body, delivery.redelivered) == (b"body", False)


async def publish_over_a_death(nodes: Cluster, publisher: Publisher) -> list[Confirm]:
    """Publish numbers, and kill the node that they go through in the middle."""
    confirms = []
    async with publisher:
        for number in range(COUNT):
            confirms.append(await publisher.publish(b"%d" % number))
            if number == COUNT // 2:
                nodes.kill(publisher.node)
        for confirm in confirms:
            await confirm
    return confirms


async def taken(client: Client, queue: str) -> list[int]:
    """Return the content of a queue, and delete the queue."""
    found = []
    async with client.consumer(queue, until_empty=True) as consumer:
        async for delivery in consumer:
            found.append(int(delivery.body))
            delivery.accept()
    await client.topology.delete_queue(queue)
    return found


@pytest.mark.parametrize("publisher_id", ["", "p"])
def test_nothing_is_lost_when_the_node_is_killed(nodes: Cluster, publisher_id: str) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(SECONDS), await Client.connect(endpoints(nodes)) as client:
            await client.topology.declare_queue("kept")
            epoch = 0 if publisher_id else None
            publisher = client.publisher(routing_key="kept", publisher_id=publisher_id, epoch=epoch)
            confirms = await publish_over_a_death(nodes, publisher)
            found = await taken(client, "kept")
            assert set(found) == set(range(COUNT))
            twice = {number for number in found if found.count(number) > 1}
            resent = {number for number, each in enumerate(confirms) if each.resent}
            assert twice <= (set() if publisher_id else resent)

    asyncio.run(scenario())
    nodes.start()
