"""Declarations and deletions through one node are known to every other node at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from e2e.harness.cluster import Cluster
from pika.exceptions import ChannelClosedByBroker

QUEUES = 200


def passive(channel: Any, name: str) -> None:
    channel.queue_declare(name, passive=True)


def consume(channel: Any, name: str) -> None:
    channel.basic_cancel(channel.basic_consume(name, lambda *_: None))


def get(channel: Any, name: str) -> None:
    assert channel.basic_get(name, auto_ack=True)[0] is None


def publish(channel: Any, name: str) -> None:
    """Without `mandatory` nothing would be said of a message that is lost, but it would be."""
    channel.basic_publish("", name, b"x")
    assert channel.basic_get(name, auto_ack=True)[2] == b"x"


def publish_mandatory(channel: Any, name: str) -> None:
    channel.basic_publish("", name, b"x", mandatory=True)


def bind(channel: Any, name: str) -> None:
    channel.queue_bind(name, "amq.direct", name)


USES: tuple[Callable[[Any, str], None], ...] = (
    passive,
    consume,
    get,
    publish,
    publish_mandatory,
    bind,
)


def test_declared_on_one_node_is_found_on_another_at_once(
    shared_cluster: Cluster, queue_name: Callable[[str], str]
) -> None:
    declaring = [shared_cluster.connect(name).channel() for name in ("n1", "n2", "n3")]
    using = [shared_cluster.connect(name).channel() for name in ("n1", "n2", "n3")]
    for channel in using:
        channel.confirm_delivery()
    for number in range(QUEUES):
        name = queue_name(str(number))
        there, here = number % 3, (number + 1 + number // 3 % 2) % 3
        if number % 4 == 0:
            declaring[there].queue_declare(name, durable=True)
        else:
            declaring[there].queue_declare(name)
        USES[number % len(USES)](using[here], name)
    for number in range(QUEUES):
        declaring[0].queue_delete(queue_name(str(number)))


def test_deleted_on_one_node_is_gone_on_another_at_once(
    shared_cluster: Cluster, queue_name: Callable[[str], str]
) -> None:
    deleting = shared_cluster.connect("n1").channel()
    connection = shared_cluster.connect("n2")
    name = queue_name("q")
    for _ in range(30):
        deleting.queue_declare(name)
        connection.channel().queue_declare(name, passive=True)
        deleting.queue_delete(name)
        with pytest.raises(ChannelClosedByBroker, match="404"):
            connection.channel().queue_declare(name, passive=True)


def test_exchange_is_known_on_another_node_at_once(
    shared_cluster: Cluster, queue_name: Callable[[str], str]
) -> None:
    declaring = shared_cluster.connect("n3").channel()
    using = shared_cluster.connect("n2")
    for number in range(30):
        name = queue_name(str(number))
        channel = using.channel()
        channel.confirm_delivery()
        declaring.exchange_declare(name, "fanout")
        channel.basic_publish(name, "", b"to nobody")
        channel.exchange_declare(name, passive=True)
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish(name, "", b"to nobody", mandatory=True)
        declaring.exchange_delete(name)
        with pytest.raises(ChannelClosedByBroker, match="404"):
            channel.exchange_declare(name, passive=True)
