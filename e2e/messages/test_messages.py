"""Filtered consumers and single messages, with real processes and a real client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for
from pika.adapters.blocking_connection import BlockingChannel as Channel

Name = Callable[[str], str]

CROWD = 5_000
CROWD_FULL = 100_000
SECONDS = 60.0


def publish(channel: Channel, queue: str, *regions: str, **properties: Any) -> None:
    for number, region in enumerate(regions):
        headers = {"region": region, "n": number}
        channel.basic_publish(
            "",
            queue,
            f"{region} {number}".encode(),
            pika.BasicProperties(headers=headers, delivery_mode=2, **properties),
        )


def consume(channel: Channel, queue: str, **arguments: Any) -> list[str]:
    """Start a consumer that acknowledges; return the list that its bodies come to."""
    bodies: list[str] = []

    def take(_: Channel, method: Any, __: Any, body: bytes) -> None:
        bodies.append(body.decode())
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume(queue, take, arguments=arguments)
    return bodies


def arrive(connection: pika.BlockingConnection, bodies: list[str], count: int) -> list[str]:
    def look() -> bool:
        connection.process_data_events(time_limit=0.05)
        return len(bodies) >= count

    wait_for(f"{count} messages", look, SECONDS)
    return bodies


def confirmed(cluster: Cluster, node: str = "n1") -> tuple[pika.BlockingConnection, Channel]:
    connection = cluster.connect(node)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=50)
    return connection, channel


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_filters_share_a_queue(shared_cluster: Cluster, queue_name: Name, node: str) -> None:
    queue = queue_name("shared")
    connection, channel = confirmed(shared_cluster, node)
    channel.queue_declare(queue, durable=True)
    eu = consume(channel, queue, **{"x-filter": "region = 'eu' AND n >= 2"})
    us = consume(channel, queue, **{"x-filter": {"region": ["us", "ca"], "n": {"lt": 100}}})
    publish(channel, queue, "eu", "us", "eu", "asia", "eu", "ca")
    assert arrive(connection, eu, 2) == ["eu 2", "eu 4"]
    assert arrive(connection, us, 2) == ["us 1", "ca 5"]
    rest = consume(channel, queue)
    assert arrive(connection, rest, 2) == ["eu 0", "asia 3"]


def test_a_filter_finds_its_message_behind_many(shared_cluster: Cluster, queue_name: Name) -> None:
    look_behind(shared_cluster, queue_name("crowd"), CROWD)


@pytest.mark.full
def test_a_filter_finds_its_message_behind_100_000(
    shared_cluster: Cluster, queue_name: Name
) -> None:
    look_behind(shared_cluster, queue_name("crowd"), CROWD_FULL)


def look_behind(cluster: Cluster, queue: str, crowd: int) -> None:
    connection, channel = confirmed(cluster)
    channel.queue_declare(queue, durable=True)
    plain = connection.channel()
    publish(plain, queue, *["us"] * crowd)
    publish(channel, queue, "eu")
    eu = consume(channel, queue, **{"x-filter": "region = 'eu'"})
    assert arrive(connection, eu, 1) == ["eu 0"]
    for _ in range(20):
        publish(channel, queue, "us", "eu")
    arrive(connection, eu, 21)
    rest = consume(plain, queue)  # without a prefetch, which would make it slow
    arrive(connection, rest, crowd + 20)
    assert {body.partition(" ")[0] for body in rest} == {"us"}


def test_a_filter_that_breaks_a_rule_is_refused_by_its_place(
    shared_cluster: Cluster, queue_name: Name
) -> None:
    queue = queue_name("refused")
    connection = shared_cluster.connect()
    for value, reason in (
        ("region ==", "character 9: '=' where a value or name belongs"),
        ({"n": {"over": 5}}, "n: no bound 'over'"),
        (5, "neither a selector nor a table"),
    ):
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            channel.basic_consume(queue, lambda *_: None, arguments={"x-filter": value})
        assert closed.value.reply_code == 406
        assert "invalid arg 'x-filter'" in closed.value.reply_text
        assert reason in closed.value.reply_text


def test_a_filter_outlives_its_queues_leader(cluster: Cluster, queue_name: Name) -> None:
    queue = queue_name("led")
    connection, channel = confirmed(cluster, "n1")
    channel.queue_declare(queue, durable=True)
    leader = cluster.leader(queue)
    gateway = next(name for name in ("n1", "n2", "n3") if name != leader)
    connection, channel = confirmed(cluster, gateway)
    eu = consume(channel, queue, **{"x-filter": "region = 'eu'"})
    publish(channel, queue, "us", "eu", "us")
    arrive(connection, eu, 1)
    cluster.kill(leader)
    publish(channel, queue, "us", "us", "us", "eu")
    assert arrive(connection, eu, 2) == ["eu 1", "eu 3"]
    left = [message["payload"] for message in browse(cluster, queue, gateway)]
    assert left == ["us 0", "us 2", "us 0", "us 1", "us 2"]


def browse(cluster: Cluster, queue: str, node: str = "n1") -> list[dict[str, Any]]:
    """All messages that wait, by pages of two."""
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        path = f"/api/queues/%2F/{queue}/messages?limit=2&after={after}"
        answer = cluster.node(node).api.request("GET", path, seconds=10)
        assert answer.status == 200, answer
        found += answer.body["messages"]
        after = answer.body["next_after"]
    return found


@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
def test_messages_are_looked_at_moved_and_removed(
    shared_cluster: Cluster, queue_name: Name, node: str
) -> None:
    cluster = shared_cluster
    name = f"moves-{node}"
    other = f"other-{node}"
    connection, channel = confirmed(cluster)
    channel.queue_declare(name, durable=True)
    channel.queue_declare(other, durable=True, exclusive=False, arguments={})
    publish(channel, name, "eu", "us", "eu", "us", message_id="m1")
    api = cluster.node(node).api

    found = browse(cluster, name, node)
    assert [message["payload"] for message in found] == ["eu 0", "us 1", "eu 2", "us 3"]
    assert found[0]["properties"]["headers"] == {"region": "eu", "n": 0}
    assert found[0]["properties"]["message_id"] == "m1"
    assert found[0]["redelivered"] is False
    ids = [message["id"] for message in found]

    path = f"/api/queues/%2F/{name}"
    answer = api.request("POST", f"{path}/messages/move", {"ids": ids[::2], "queue": other})
    assert (answer.status, answer.body["moved"]) == (200, ids[::2])
    assert [message["payload"] for message in browse(cluster, other, node)] == ["eu 0", "eu 2"]
    assert api.request("DELETE", f"{path}/messages/{ids[1]}").status == 204
    assert api.request("DELETE", f"{path}/messages/{ids[1]}").status == 404
    assert [message["payload"] for message in browse(cluster, name, node)] == ["us 3"]

    answer = api.request("POST", f"{path}/get", {"count": 5, "ackmode": "ack_requeue_true"})
    assert [message["payload"] for message in answer.body] == ["us 3"]
    answer = api.request("POST", f"{path}/get", {"count": 5, "ackmode": "ack_requeue_false"})
    assert [message["redelivered"] for message in answer.body] == [True]
    assert browse(cluster, name, node) == []
    connection.close()
