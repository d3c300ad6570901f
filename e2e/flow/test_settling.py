"""Returned messages, as real clients see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aio_pika
import pika
import pytest
from aio_pika.exceptions import DeliveryError
from e2e.harness.cluster import Cluster
from pika.adapters.blocking_connection import BlockingChannel

QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}


@pytest.fixture(params=["n1", "n2"])
def channel(request: pytest.FixtureRequest, shared_cluster: Cluster) -> BlockingChannel:
    """A channel of one node or another: the queue's leader may be there or not."""
    return shared_cluster.connect(request.param).channel()


def test_rejects_count_and_nacks_do_not(
    channel: BlockingChannel, queue_name: Callable[[str], str]
) -> None:
    queue = queue_name("q")
    channel.queue_declare(queue, durable=True, arguments=QUORUM)
    channel.confirm_delivery()
    headers = {"mine": "stays", "x-delivery-count": 77}
    channel.basic_publish("", queue, b"a", pika.BasicProperties(headers=headers, priority=3))
    seen = []
    for give_back in (channel.basic_nack, channel.basic_reject, channel.basic_reject):
        method, properties, _ = channel.basic_get(queue)
        seen.append((method.redelivered, properties.headers))
        give_back(method.delivery_tag, requeue=True)
    method, properties, body = next(channel.consume(queue, inactivity_timeout=10))
    assert (body, properties.priority) == (b"a", 3)
    seen.append((method.redelivered, properties.headers))
    assert seen == [
        (False, {"mine": "stays", "x-delivery-count": 77}),
        (True, {"mine": "stays", "x-acquired-count": 1}),
        (True, {"mine": "stays", "x-delivery-count": 1, "x-acquired-count": 2}),
        (True, {"mine": "stays", "x-delivery-count": 2, "x-acquired-count": 3}),
    ]


def test_lost_channel_counts(
    shared_cluster: Cluster, channel: BlockingChannel, queue_name: Callable[[str], str]
) -> None:
    queue = queue_name("q")
    channel.queue_declare(queue, durable=True, arguments=QUORUM)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"a")
    other = shared_cluster.connect("n3").channel()
    other.basic_get(queue)
    other.close()
    method, properties, _ = next(channel.consume(queue, inactivity_timeout=10))
    assert method.redelivered
    assert properties.headers == {"x-delivery-count": 1, "x-acquired-count": 1}


@pytest.mark.parametrize(
    ("name", "value"), [("x-priority", "high"), ("x-prefetch-bytes", -1), ("x-filter", 1)]
)
def test_bad_consumer_argument_is_refused_by_name(
    channel: BlockingChannel, queue_name: Callable[[str], str], name: str, value: object
) -> None:
    queue = queue_name("q")
    channel.queue_declare(queue, exclusive=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.basic_consume(queue, lambda *_: None, arguments={name: value})
    assert closed.value.reply_code == 406
    assert f"'{name}'" in closed.value.reply_text


def test_higher_priority_is_served_first(
    channel: BlockingChannel, queue_name: Callable[[str], str]
) -> None:
    queue = queue_name("q")
    channel.queue_declare(queue, durable=True, arguments=QUORUM)
    channel.confirm_delivery()
    taken: list[str] = []
    channel.basic_qos(prefetch_count=2)
    for tag, priority in (("low", -1), ("none", 0), ("high", 5)):
        channel.basic_consume(
            queue,
            lambda _channel, method, _properties, _body: taken.append(method.consumer_tag),
            consumer_tag=tag,
            arguments={"x-priority": priority} if priority else None,
        )
    for _ in range(5):
        channel.basic_publish("", queue, b"x")
    while len(taken) < 5:
        channel.connection.process_data_events(time_limit=10)
    assert sorted(taken) == ["high", "high", "low", "none", "none"]


def test_bytes_bound_what_is_under_way(
    channel: BlockingChannel, queue_name: Callable[[str], str]
) -> None:
    queue = queue_name("q")
    channel.queue_declare(queue, durable=True, arguments=QUORUM)
    channel.confirm_delivery()
    for _ in range(6):
        channel.basic_publish("", queue, b"x" * 1000)
    tags: list[int] = []
    channel.basic_consume(
        queue,
        lambda _channel, method, _properties, _body: tags.append(method.delivery_tag),
        arguments={"x-prefetch-bytes": 2000},
    )
    while len(tags) < 2:
        channel.connection.process_data_events(time_limit=10)
    left = channel.queue_declare(queue, passive=True).method.message_count
    assert left == 6 - len(tags)
    assert len(tags) in (2, 3)
    while len(tags) < 6:
        channel.basic_ack(tags[-1], multiple=True)
        before = len(tags)
        while len(tags) == before:
            channel.connection.process_data_events(time_limit=10)


def test_full_queue_nacks_exactly_what_it_does_not_take(
    shared_cluster: Cluster, channel: BlockingChannel, queue_name: Callable[[str], str]
) -> None:
    queue = queue_name("q")
    full = {**QUORUM, "x-max-length": 5, "x-overflow": "reject-publish"}
    channel.queue_declare(queue, durable=True, arguments=full)

    async def publish(numbers: range) -> set[bytes]:
        """Publish at once, and return the confirmed messages."""
        url = f"amqp://guest:guest@127.0.0.1:{shared_cluster.port('n2')}/"
        connection = await aio_pika.connect(url)
        async with connection:
            exchange = (await connection.channel()).default_exchange
            bodies = [b"%d" % number for number in numbers]
            waiting = [exchange.publish(aio_pika.Message(body), queue) for body in bodies]
            answers = await asyncio.gather(*waiting, return_exceptions=True)
        refused = [each for each in answers if isinstance(each, BaseException)]
        assert all(isinstance(each, DeliveryError) for each in refused)
        paired = zip(bodies, answers, strict=True)
        return {body for body, answer in paired if not isinstance(answer, BaseException)}

    confirmed = asyncio.run(publish(range(12)))
    assert len(confirmed) == 5
    assert asyncio.run(publish(range(100, 103))) == set()
    held = {channel.basic_get(queue, auto_ack=True)[2] for _ in range(5)}
    assert held == confirmed
    assert channel.basic_get(queue)[0] is None


def test_timed_out_consumer_is_cancelled_and_the_message_comes_again(
    channel: BlockingChannel, queue_name: Callable[[str], str]
) -> None:
    queue = queue_name("q")
    channel.queue_declare(queue, durable=True, arguments=QUORUM)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"a")
    cancelled: list[str] = []
    tags: list[int] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    channel.basic_consume(
        queue,
        lambda _channel, method, _properties, _body: tags.append(method.delivery_tag),
        consumer_tag="slow",
        arguments={"x-consumer-timeout": 1000},
    )
    while not cancelled:
        channel.connection.process_data_events(time_limit=10)
    assert (cancelled, tags) == (["slow"], [1])
    channel.basic_ack(1)  # too late, and no error
    method, properties, body = next(channel.consume(queue, inactivity_timeout=10))
    assert (method.redelivered, body) == (True, b"a")
    assert properties.headers == {"x-acquired-count": 1}
