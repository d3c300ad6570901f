"""Messages that cannot be delivered yet are in their queue all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for

LATER_MS = 600_000


def refused(cluster: Cluster, queue: str) -> None:
    """Fail unless a delete with `if-empty` is refused, by both APIs."""
    channel = cluster.connect("n1").channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
        channel.queue_delete(queue, if_empty=True)
    assert error.value.reply_code == 406
    path = f"/api/queues/%2F/{queue}?if-empty=true"
    answer = cluster.node("n2").api.request("DELETE", path)
    assert answer.status == 400, answer


def row(cluster: Cluster, queue: str) -> dict[str, Any]:
    """Return what every node says of a queue, once they agree."""

    def rows() -> list[dict[str, Any]]:
        found = [cluster.queue(queue, node.name) or {} for node in cluster.local.nodes]
        return found if len({str(each.get("messages")) for each in found}) == 1 else []

    return dict(wait_for("nodes to agree", rows)[0])


def test_delayed_messages_count_and_keep_their_queue(
    shared_cluster: Cluster, queue_name: Callable[[str], str]
) -> None:
    queue = queue_name("later")
    channel = shared_cluster.connect("n1").channel()
    channel.confirm_delivery()
    channel.queue_declare(queue, durable=True)
    later = pika.BasicProperties(delivery_mode=2, headers={"x-delay": LATER_MS})
    for _ in range(5):
        channel.basic_publish("", queue, b"x", later)
    assert channel.queue_declare(queue, passive=True).method.message_count == 0  # ready ones
    found = row(shared_cluster, queue)
    assert (found["messages"], found["messages_ready"], found["messages_delayed"]) == (5, 0, 5)
    refused(shared_cluster, queue)
    assert channel.queue_purge(queue).method.message_count == 5
    channel.queue_delete(queue, if_empty=True)


def test_messages_that_consumers_hold_do_not_keep_their_queue(
    shared_cluster: Cluster, queue_name: Callable[[str], str]
) -> None:
    queue = queue_name("held")
    channel = shared_cluster.connect("n1").channel()
    channel.confirm_delivery()
    channel.queue_declare(queue, durable=True)
    channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=2))
    refused(shared_cluster, queue)
    channel.basic_get(queue)
    channel.queue_delete(queue, if_empty=True)


def test_dead_letters_that_wait_for_their_exchange_keep_their_queue(
    shared_cluster: Cluster, queue_name: Callable[[str], str]
) -> None:
    queue = queue_name("letters")
    channel = shared_cluster.connect("n1").channel()
    channel.confirm_delivery()
    arguments = {
        "x-dead-letter-exchange": queue_name("missing"),
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    channel.queue_declare(queue, durable=True, arguments=arguments)
    channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=2))
    method, _, _ = channel.basic_get(queue)
    channel.basic_reject(method.delivery_tag, requeue=False)
    found = wait_for(
        "the letter", lambda: (row(shared_cluster, queue).get("messages_dlx") or 0) > 0
    )
    assert found
    assert row(shared_cluster, queue)["messages"] == 1
    refused(shared_cluster, queue)
    channel.queue_delete(queue)
