"""Dead letters, on three nodes with a real client."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable
from typing import Any

import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.consumer import Consumer
from e2e.harness.publisher import Publisher
from pika.adapters.blocking_connection import BlockingChannel

WAIT_SECONDS = 300.0

Named = Callable[[str], str]
Message = tuple[Any, pika.BasicProperties, bytes]


def take(channel: BlockingChannel, queue: str) -> Message:
    """Wait for a message of a queue and settle it."""

    def one() -> Message | None:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        return (method, properties, body) if method is not None else None

    found: Message = wait_for(f"a message in {queue}", one)
    return found


def hold(channel: BlockingChannel, queue: str) -> Any:
    """Wait for a message of a queue, do not settle it, and return its method."""
    return wait_for(f"a message in {queue}", lambda: channel.basic_get(queue)[0])


def request(cluster: Cluster, method: str, path: str, body: dict[str, Any] | None = None) -> None:
    """Ask node n1 over HTTP for a change."""
    connection = http.client.HTTPConnection(cluster.node("n1").http, timeout=10)
    login = base64.b64encode(b"guest:guest").decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    connection.request(method, path, json.dumps(body) if body else None, headers)
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    assert response.status in (200, 201, 204), answer


@pytest.fixture
def channel(shared_cluster: Cluster) -> BlockingChannel:
    """A channel to a node that need not lead the queues."""
    channel = shared_cluster.connect("n2").channel()
    channel.confirm_delivery()
    return channel


@pytest.fixture
def dead(shared_cluster: Cluster, queue_name: Named) -> str:
    """A queue behind the exchange of the same name."""
    name = queue_name("dead")
    channel = shared_cluster.connect("n1").channel()
    channel.exchange_declare(name, "fanout", durable=True)
    channel.queue_declare(name, durable=True)
    channel.queue_bind(name, name)
    return name


def declare(cluster: Cluster, name: str, dead: str, **arguments: Any) -> str:
    """Declare a replicated queue with a dead letter exchange; underscores stand for hyphens."""
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    cluster.connect("n1").channel().queue_declare(
        name, durable=True, arguments={"x-dead-letter-exchange": dead, **named}
    )
    return name


def death(properties: pika.BasicProperties) -> dict[str, Any]:
    """The newest entry of x-death."""
    return dict(properties.headers["x-death"][0])


def test_expired_messages_are_dead_letters(
    shared_cluster: Cluster, channel: BlockingChannel, dead: str, queue_name: Named
) -> None:
    work = declare(shared_cluster, queue_name("work"), dead)
    channel.basic_publish("", work, b"stays")
    brief = pika.BasicProperties(expiration="100", headers={"mine": 1}, message_id="m")
    channel.basic_publish("", work, b"expires behind it", brief)
    method, properties, body = take(channel, dead)
    assert (body, method.exchange, method.routing_key) == (b"expires behind it", dead, work)
    assert (properties.expiration, properties.message_id) == (None, "m")
    assert properties.headers["mine"] == 1
    entry = death(properties)
    assert entry.pop("time")
    assert entry == {
        "count": 1,
        "reason": "expired",
        "queue": work,
        "exchange": "",
        "routing-keys": [work],
        "original-expiration": "100",
    }
    assert take(channel, work)[2] == b"stays"


def test_rejected_message_takes_the_routing_key_of_its_queue(
    shared_cluster: Cluster, channel: BlockingChannel, dead: str, queue_name: Named
) -> None:
    work = declare(shared_cluster, queue_name("work"), dead, dead_letter_routing_key="other")
    channel.basic_publish("", work, b"x", pika.BasicProperties(headers={"CC": ["elsewhere"]}))
    found = hold(channel, work)
    channel.basic_reject(found.delivery_tag, requeue=False)
    method, properties, _ = take(channel, dead)
    assert method.routing_key == "other"
    assert "CC" not in properties.headers
    assert death(properties)["routing-keys"] == [work, "elsewhere"]
    assert properties.headers["x-first-death-reason"] == "rejected"


def test_oldest_message_makes_room_and_refused_ones_go_too(
    shared_cluster: Cluster, channel: BlockingChannel, dead: str, queue_name: Named
) -> None:
    work = declare(shared_cluster, queue_name("work"), dead, max_length=1)
    for body in (b"1", b"2"):
        channel.basic_publish("", work, body)
    _, properties, body = take(channel, dead)
    assert (body, death(properties)["reason"]) == (b"1", "maxlen")


def test_message_that_fails_too_often_is_a_dead_letter(
    shared_cluster: Cluster, channel: BlockingChannel, dead: str, queue_name: Named
) -> None:
    work = declare(shared_cluster, queue_name("work"), dead, delivery_limit=2)
    channel.basic_publish("", work, b"poison")
    for attempt in range(3):
        dropped = shared_cluster.connect("n3")
        assert hold(dropped.channel(), work).redelivered == (attempt > 0)
        dropped.close()
    _, properties, body = take(channel, dead)
    assert (body, death(properties)["reason"]) == (b"poison", "delivery_limit")


def test_policy_makes_a_queue_mortal_and_immortal_again(
    shared_cluster: Cluster, channel: BlockingChannel, dead: str, queue_name: Named
) -> None:
    work = queue_name("work")
    channel.queue_declare(work, durable=True)
    policy = f"/api/policies/%2F/{work}"
    definition = {"message-ttl": 100, "dead-letter-exchange": dead}
    body = {"pattern": f"^{work}$", "definition": definition, "apply-to": "queues"}
    clock = declare(shared_cluster, queue_name("clock"), dead, message_ttl=500)

    def survives() -> bool:
        """Return whether a message published now is there when half a second has passed."""
        channel.basic_publish("", work, b"brief")
        channel.basic_publish("", clock, b"half a second")
        while take(channel, dead)[2] != b"half a second":
            pass
        return channel.basic_get(work, auto_ack=True)[0] is not None

    assert survives()
    request(shared_cluster, "PUT", policy, body)
    # The queue is led by another node, which hears of its policy a little later.
    wait_for("messages to die", lambda: not survives())
    request(shared_cluster, "DELETE", policy)
    wait_for("messages to survive", survives)


def test_unused_queue_expires_and_a_consumed_one_does_not(
    shared_cluster: Cluster, channel: BlockingChannel, queue_name: Named
) -> None:
    names = [queue_name("unused"), queue_name("used")]
    for name in names:
        channel.queue_declare(name, durable=True, arguments={"x-expires": 1000})
    channel.basic_consume(names[1], lambda *_: None)
    wait_for("the unused queue to go", lambda: shared_cluster.queue(names[0]) is None)
    assert shared_cluster.queue(names[1]) is not None


@pytest.mark.parametrize("count", [2_000, pytest.param(50_000, marks=pytest.mark.full)])
def test_letters_kept_until_they_arrive_survive_their_leaders(cluster: Cluster, count: int) -> None:
    channel = cluster.connect("n2").channel()
    channel.exchange_declare("dlx", "fanout", durable=True)
    channel.queue_declare("dead", durable=True)
    channel.queue_bind("dead", "dlx")
    declare(
        cluster,
        "work",
        "dlx",
        message_ttl=1,
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
    )
    publisher = Publisher([cluster.port("n2"), cluster.port("n3")], "work", count, 100)
    with publisher:
        assert publisher.wait_confirmed(count // 2, WAIT_SECONDS), publisher.failure
        cluster.kill(cluster.leader("work"))
        assert publisher.wait_confirmed(count * 3 // 4, WAIT_SECONDS), publisher.failure
        cluster.start()
        assert publisher.wait_confirmed(count, WAIT_SECONDS), publisher.failure
        publisher.join(WAIT_SECONDS)
    with Consumer([cluster.port("n2"), cluster.port("n3")], "dead") as consumer:
        missing = consumer.wait_all(publisher.confirmed, WAIT_SECONDS)
    assert consumer.failure is None
    assert not missing, f"{len(missing)} confirmed messages were not dead-lettered"


def test_letters_wait_for_their_exchange(
    shared_cluster: Cluster, channel: BlockingChannel, queue_name: Named
) -> None:
    later = queue_name("later")
    work = declare(
        shared_cluster,
        queue_name("work"),
        later,
        message_ttl=1,
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
    )
    channel.basic_publish("", work, b"patient")
    wait_for(
        "a word about the missing exchange",
        lambda: "a dead letter is kept" in shared_cluster.log(shared_cluster.leader(work)),
    )
    channel.exchange_declare(later, "fanout", durable=True)
    channel.queue_declare(later, durable=True)
    channel.queue_bind(later, later)
    assert take(channel, later)[2] == b"patient"
