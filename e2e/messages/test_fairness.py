"""Tenants that share a queue: the burst of one does not starve another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for

BURST = 3000
SECONDS = 30.0
FAIR: dict[str, Any] = {"x-queue-type": "quorum", "x-fairness-key": "tenant"}


def publish(channel: Any, queue: str, tenant: str | None, *bodies: int) -> None:
    """Publish numbers of a tenant and wait until they are confirmed."""
    headers = {} if tenant is None else {"tenant": tenant}
    for body in bodies:
        channel.basic_publish(
            "", queue, str(body).encode(), pika.BasicProperties(headers=headers, delivery_mode=2)
        )


def waiting(cluster: Cluster, queue: str) -> list[dict[str, Any]]:
    """Return whose messages wait in a queue with a fairness key, as one node tells."""
    answer = cluster.node("n3").api.request("GET", "/api/flow/queues", seconds=SECONDS)
    assert answer[0] == 200, answer
    return next((row["fairness"] for row in answer[1] if row["name"] == queue), [])


class Worker:
    """Takes one message at a time, and remembers of whom they were."""

    def __init__(self, cluster: Cluster, node: str, queue: str) -> None:
        self._connection = cluster.connect(node)
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=1)
        self._messages = self._channel.consume(queue, inactivity_timeout=SECONDS)

    def work(self, count: int) -> list[tuple[str | None, int]]:
        """Return tenant and number of the next messages."""
        done: list[tuple[str | None, int]] = []
        for _ in range(count):
            method, properties, body = next(self._messages)
            assert method is not None, f"nothing came after {done}"
            self._channel.basic_ack(method.delivery_tag)
            done.append(((properties.headers or {}).get("tenant"), int(body)))
        return done


def test_a_burst_of_one_tenant_does_not_starve_another(
    shared_cluster: Cluster, queue_name: Callable[[str], str]
) -> None:
    queue = queue_name("tenants")
    anna = shared_cluster.connect("n1").channel()
    anna.queue_declare(queue, durable=True, arguments=FAIR)
    publish(anna, queue, "anna", *range(BURST))
    bert = shared_cluster.connect("n2").channel()
    bert.confirm_delivery()
    publish(bert, queue, "bert", *range(3))
    wait_for(
        "the burst to arrive",
        lambda: (shared_cluster.queue(queue) or {}).get("messages_ready", 0) == BURST + 3,
    )
    assert waiting(shared_cluster, queue) == [
        {"key": "anna", "messages": BURST, "byte_count": sum(len(str(n)) for n in range(BURST))},
        {"key": "bert", "messages": 3, "byte_count": 3},
    ]
    worker = Worker(shared_cluster, "n3", queue)
    got = worker.work(8)
    assert [number for tenant, number in got if tenant == "bert"] == [0, 1, 2]
    assert [number for tenant, number in got if tenant == "anna"] == [0, 1, 2, 3, 4]
    assert ("bert", 2) in got[:6]
    # What comes while the burst is worked off waits for a message of the other, and no more.
    for number in range(10):
        publish(bert, queue, "bert", number)
        assert ("bert", number) in worker.work(3)  # one of them was on its way already
    publish(bert, queue, None, 77)
    assert (None, 77) in worker.work(4)


def test_a_policy_makes_a_queue_fair_and_its_leaders_death_changes_nothing(
    cluster: Cluster,
) -> None:
    queue = "tenants"
    channel = cluster.connect("n1").channel()
    channel.confirm_delivery()
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    publish(channel, queue, "anna", 1, 2, 3, 4, 5)
    definition = {"fairness-key": "tenant"}
    body = {"pattern": "^tenants$", "definition": definition, "apply-to": "queues"}
    answer = cluster.node("n1").api.request("PUT", "/api/policies/%2F/fair", body, seconds=SECONDS)
    assert answer[0] in (201, 204), answer

    wait_for("the policy to be in force", lambda: waiting(cluster, queue))
    publish(channel, queue, "anna", 6, 7)
    publish(channel, queue, "bert", 8, 9)
    leader = cluster.leader(queue)
    cluster.kill(leader)
    other = next(name for name in ("n1", "n2", "n3") if name != leader)
    got = Worker(cluster, other, queue).work(9)
    assert [number for _, number in got] == [1, 6, 8, 2, 7, 9, 3, 4, 5]


def test_a_fairness_key_beside_another_key_is_refused(
    shared_cluster: Cluster, queue_name: Callable[[str], str]
) -> None:
    channel = shared_cluster.connect("n1").channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare(
            queue_name("both"), durable=True, arguments={**FAIR, "x-group-key": "group"}
        )
    assert caught.value.reply_code == 406
    assert "x-fairness-key" in caught.value.reply_text
    assert "x-group-key" in caught.value.reply_text
