"""Class tx with real clients on three nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aio_pika
import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for
from pika.adapters.blocking_connection import BlockingChannel

QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}


@pytest.fixture(params=["n1", "n2"])
def channel(request: pytest.FixtureRequest, shared_cluster: Cluster) -> BlockingChannel:
    """A channel of one node or another: the queue's leader may be there or not."""
    return shared_cluster.connect(request.param).channel()


def ready(channel: BlockingChannel, queue: str) -> int:
    """Messages that wait, as a passive declare counts them."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def test_commit_shows_and_rollback_drops(
    channel: BlockingChannel, queue_name: Callable[[str], str]
) -> None:
    queue = queue_name("tx")
    channel.queue_declare(queue, durable=True, arguments=QUORUM)
    channel.tx_select()
    for number in range(10):
        channel.basic_publish("", queue, b"%d" % number)
    assert ready(channel, queue) == 0
    channel.tx_commit()
    assert ready(channel, queue) == 10
    channel.basic_publish("", queue, b"x")
    channel.tx_rollback()
    channel.tx_commit()
    assert ready(channel, queue) == 10


def test_consume_transform_publish_moves_each_message_once(
    channel: BlockingChannel, queue_name: Callable[[str], str]
) -> None:
    source, target = queue_name("from"), queue_name("to")
    for queue in (source, target):
        channel.queue_declare(queue, durable=True, arguments=QUORUM)
    for number in range(5):
        channel.basic_publish("", source, b"%d" % number)
    wait_for("five messages", lambda: ready(channel, source) == 5)
    channel.tx_select()
    for turn in range(9):
        method, _, body = channel.basic_get(source)
        if method is None:
            break
        channel.basic_publish("", target, body)
        channel.basic_ack(method.delivery_tag)
        if turn % 2:
            channel.tx_rollback()
            channel.basic_nack(method.delivery_tag, requeue=True)
        channel.tx_commit()
    assert (ready(channel, source), ready(channel, target)) == (0, 5)
    channel.basic_qos(prefetch_count=10)
    bodies = sorted(channel.basic_get(target, auto_ack=True)[2] for _ in range(5))
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]


def test_unacknowledged_rollback_is_redelivered_when_the_channel_ends(
    shared_cluster: Cluster, channel: BlockingChannel, queue_name: Callable[[str], str]
) -> None:
    queue = queue_name("held")
    channel.queue_declare(queue, durable=True, arguments=QUORUM)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"a")
    other = shared_cluster.connect("n3").channel()
    other.tx_select()
    method, _, _ = other.basic_get(queue)
    other.basic_ack(method.delivery_tag)
    other.close()  # never committed
    wait_for("the message to return", lambda: ready(channel, queue) == 1)
    method, properties, _ = channel.basic_get(queue, auto_ack=True)
    assert method.redelivered
    assert properties.headers["x-acquired-count"] == 1


def test_confirms_exclude_transactions(channel: BlockingChannel) -> None:
    channel.tx_select()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.confirm_delivery()
    assert (closed.value.reply_code, closed.value.reply_text) == (
        406,
        "PRECONDITION_FAILED - cannot switch from tx to confirm mode",
    )


def test_asynchronous_client_commits_and_rolls_back(
    shared_cluster: Cluster, queue_name: Callable[[str], str]
) -> None:
    name = queue_name("aio")

    async def work() -> tuple[int, int]:
        url = f"amqp://guest:guest@127.0.0.1:{shared_cluster.port('n1')}/"
        connection = await aio_pika.connect(url)
        async with connection:
            channel = await connection.channel(publisher_confirms=False)
            queue = await channel.declare_queue(name, durable=True, arguments=QUORUM)
            async with channel.transaction():
                for number in range(3):
                    message = aio_pika.Message(b"%d" % number)
                    await channel.default_exchange.publish(message, name)
            transaction = channel.transaction()
            await transaction.select()
            await channel.default_exchange.publish(aio_pika.Message(b"no"), name)
            await transaction.rollback()
            counted = await channel.declare_queue(name, passive=True)
            purged = await queue.purge()
            return counted.declaration_result.message_count or 0, purged.message_count or 0

    assert asyncio.run(work()) == (3, 3)


def test_commit_that_a_full_queue_refuses_closes_the_channel_and_loses_nothing(
    shared_cluster: Cluster, channel: BlockingChannel, queue_name: Callable[[str], str]
) -> None:
    source, target = queue_name("from"), queue_name("to")
    channel.queue_declare(source, durable=True, arguments=QUORUM)
    full = {**QUORUM, "x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare(target, durable=True, arguments=full)
    channel.confirm_delivery()
    channel.basic_publish("", source, b"work")
    channel.basic_publish("", target, b"there")
    other = shared_cluster.connect("n3").channel()
    other.tx_select()
    method, _, _ = other.basic_get(source)
    other.basic_publish("", target, b"result")
    other.basic_ack(method.delivery_tag)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        other.tx_commit()
    assert (closed.value.reply_code, closed.value.reply_text) == (
        406,
        "PRECONDITION_FAILED - partial tx completion",
    )
    wait_for("the message to return", lambda: ready(channel, source) == 1)
    assert ready(channel, target) == 1
