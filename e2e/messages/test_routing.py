"""Routing, with real clients that talk to different nodes."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import aio_pika
import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for
from pika import BasicProperties as Properties
from pika.adapters.blocking_connection import BlockingChannel

Name = Callable[[str], str]

REPLY_QUEUE = "amq.rabbitmq.reply-to"


def confirming(cluster: Cluster, node: str) -> BlockingChannel:
    channel = cluster.connect(node).channel()
    channel.confirm_delivery()
    return channel


def get(channel: BlockingChannel, queue: str) -> tuple[Any, Any, Any]:
    """Take a message that is known to be there."""
    found: tuple[Any, Any, Any] = channel.basic_get(queue, auto_ack=True)
    assert found[0] is not None, f"{queue} is empty"
    return found


def count(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def refused(action: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
        action()
    return error.value.reply_code, error.value.reply_text


def set_policy(cluster: Cluster, name: str, pattern: str, **definition: Any) -> None:
    """Set a policy, or with no definition delete it, by the HTTP API of node n1."""
    host, _, port = cluster.node("n1").api.address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    login = base64.b64encode(b"guest:guest").decode()
    told = {key.replace("_", "-"): value for key, value in definition.items()}
    body = json.dumps({"pattern": pattern, "definition": told}) if told else None
    method = "PUT" if told else "DELETE"
    path = f"/api/policies/%2F/{name}"
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    assert answer.status in (201, 204), answer.read()
    connection.close()


# Alternate, internal and bound exchanges


def test_alternate_exchange_takes_what_is_not_bound(
    shared_cluster: Cluster, queue_name: Name
) -> None:
    exchange, alternate, queue = queue_name("x"), queue_name("alternate"), queue_name("q")
    channel = confirming(shared_cluster, "n1")
    channel.exchange_declare(alternate, "fanout", internal=True)
    channel.exchange_declare(exchange, "direct", arguments={"alternate-exchange": alternate})
    channel.queue_declare(queue, durable=True)
    channel.basic_publish(exchange, "bound", b"0", mandatory=False)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish(exchange, "bound", b"1", mandatory=True)
    channel.queue_bind(queue, alternate)
    other = confirming(shared_cluster, "n2")
    other.exchange_declare(exchange, passive=True)  # n2 knows of the binding now
    other.basic_publish(exchange, "bound", b"2", mandatory=True)
    assert get(channel, queue)[2] == b"2"
    code, text = refused(lambda: channel.basic_publish(alternate, "", b"3"))
    assert code == 403
    assert (
        text == f"ACCESS_REFUSED - cannot publish to internal exchange '{alternate}' in vhost '/'"
    )


def test_policy_names_an_alternate_exchange(shared_cluster: Cluster, queue_name: Name) -> None:
    exchange, queue = queue_name("x"), queue_name("q")
    channel = confirming(shared_cluster, "n2")
    channel.exchange_declare(exchange, "direct")
    channel.queue_declare(queue, exclusive=True)
    channel.queue_bind(queue, "amq.fanout")
    set_policy(
        shared_cluster, exchange, f"^{re.escape(exchange)}$", alternate_exchange="amq.fanout"
    )
    channel.exchange_declare(exchange, passive=True)  # n2 knows of the policy now
    channel.basic_publish(exchange, "none", b"1", mandatory=True)
    assert get(channel, queue)[2] == b"1"
    set_policy(shared_cluster, exchange, "")
    channel.exchange_declare(exchange, passive=True)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish(exchange, "none", b"2", mandatory=True)


def test_exchanges_bound_in_a_ring_deliver_once(shared_cluster: Cluster, queue_name: Name) -> None:
    names = [queue_name(name) for name in "abc"]
    queue = queue_name("q")
    channel = confirming(shared_cluster, "n1")
    channel.queue_declare(queue, durable=True)
    for name in names:
        channel.exchange_declare(name, "fanout", arguments={"alternate-exchange": names[0]})
        channel.queue_bind(queue, name)
    for source, target in zip(names, [*names[1:], names[0]], strict=True):
        channel.exchange_bind(target, source)
    for name in names:
        channel.basic_publish(name, "", name.encode(), mandatory=True)
    assert [get(channel, queue)[2] for _ in names] == [name.encode() for name in names]
    assert channel.basic_get(queue)[0] is None


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        ("direct", {"hash-header": "h"}, "'hash-header'"),
        ("direct", {"alternate-exchange": 1}, "for arg 'alternate-exchange'"),
        ("x-delayed-message", {}, "'x-delayed-type' must be an existing exchange type"),
        ("x-consistent-hash", {"hash-property": "app_id"}, "Unsupported property: app_id"),
    ],
)
def test_exchange_with_wrong_arguments_is_refused(
    shared_cluster: Cluster, queue_name: Name, kind: str, arguments: dict[str, Any], text: str
) -> None:
    name = queue_name("x")
    connection = shared_cluster.connect("n1")
    channel = connection.channel()
    code, said = refused(lambda: channel.exchange_declare(name, kind, arguments=arguments))
    assert code == 406
    assert text in said
    assert refused(lambda: connection.channel().exchange_declare(name, passive=True))[0] == 404


def test_delayed_exchange_routes_as_its_inner_type(
    shared_cluster: Cluster, queue_name: Name
) -> None:
    exchange, queue = queue_name("x"), queue_name("q")
    channel = confirming(shared_cluster, "n1")
    channel.exchange_declare(exchange, "x-delayed-message", arguments={"x-delayed-type": "topic"})
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, exchange, "a.*")
    channel.basic_publish(exchange, "a.b", b"now", mandatory=True)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish(exchange, "b.a", b"nowhere", mandatory=True)
    assert get(channel, queue)[2] == b"now"


# Consistent hashing


def test_consistent_hash_exchange_is_the_same_on_all_nodes(
    shared_cluster: Cluster, queue_name: Name
) -> None:
    exchange = queue_name("x")
    queues = [queue_name(f"q{number}") for number in range(3)]
    channel = confirming(shared_cluster, "n1")
    channel.exchange_declare(exchange, "x-consistent-hash")
    for queue in queues:
        channel.queue_declare(queue, arguments={"x-queue-type": "classic"}, durable=True)
        channel.queue_bind(queue, exchange, "1")
    for node in ("n1", "n2", "n3"):
        publisher = confirming(shared_cluster, node)
        publisher.exchange_declare(exchange, passive=True)
        for number in range(60):
            publisher.basic_publish(exchange, f"key-{number}", b"%d" % number, mandatory=True)
    places: Counter[tuple[str, bytes]] = Counter()
    for queue in queues:
        for _ in range(count(channel, queue)):
            places[queue, get(channel, queue)[2]] += 1
    assert set(places.values()) == {3}  # each key went to one queue, from all three nodes
    assert len(places) == 60
    assert {queue for queue, _ in places} == set(queues)
    code, text = refused(lambda: channel.queue_bind(queues[0], exchange, "heavy"))
    assert (code, text) == (
        406,
        "PRECONDITION_FAILED - The binding key must be an integer: 'heavy'",
    )


def test_consistent_hash_of_a_header(shared_cluster: Cluster, queue_name: Name) -> None:
    exchange = queue_name("x")
    queues = [queue_name(f"q{number}") for number in range(2)]
    channel = confirming(shared_cluster, "n1")
    channel.exchange_declare(exchange, "x-consistent-hash", arguments={"hash-header": "customer"})
    for queue in queues:
        channel.queue_declare(queue, exclusive=True)
        channel.queue_bind(queue, exchange, "1")
    for number in range(80):
        properties = Properties(headers={"customer": number % 8})
        channel.basic_publish(exchange, str(number), b"%d" % (number % 8), properties, True)
    first, second = (
        {get(channel, queue)[2] for _ in range(count(channel, queue))} for queue in queues
    )
    assert first.isdisjoint(second)
    assert len(first | second) == 8


# Local random


def test_local_random_exchange_keeps_to_the_node_that_is_asked(
    shared_cluster: Cluster, queue_name: Name
) -> None:
    exchange = queue_name("x")
    channels = {name: confirming(shared_cluster, name) for name in ("n1", "n2", "n3")}
    channels["n1"].exchange_declare(exchange, "x-local-random")
    queues: dict[str, list[str]] = {}
    for node in ("n1", "n2"):
        queues[node] = [queue_name(f"{node}-{number}") for number in range(2)]
        for queue in queues[node]:
            channels[node].queue_declare(queue, exclusive=True)
            channels[node].queue_bind(queue, exchange, "")
    for node in ("n1", "n2"):
        for number in range(40):
            channels[node].basic_publish(exchange, f"key-{number}", node.encode(), mandatory=True)
    for node, names in queues.items():
        counts = [count(channels[node], queue) for queue in names]
        assert sum(counts) == 40
        assert min(counts) > 5
        assert {get(channels[node], queue)[2] for queue in names} == {node.encode()}
    channels["n3"].exchange_declare(exchange, passive=True)
    with pytest.raises(pika.exceptions.UnroutableError):
        channels["n3"].basic_publish(exchange, "", b"nobody is here", mandatory=True)
    channels["n3"].basic_publish(exchange, "", b"dropped and confirmed")
    code, text = refused(lambda: channels["n1"].queue_bind(queues["n1"][0], exchange, "key"))
    assert (code, text) == (406, "PRECONDITION_FAILED - Non empty binding 'key' key not permitted")


# Copies, checked properties


def test_copies_reach_their_queues_and_bcc_is_hidden(
    shared_cluster: Cluster, queue_name: Name
) -> None:
    queues = [queue_name(name) for name in ("to", "cc", "bcc")]
    channel = confirming(shared_cluster, "n1")
    for queue in queues:
        channel.queue_declare(queue, durable=True)
    headers = {"CC": [queues[1]], "BCC": [queues[2]], "kept": True}
    properties = Properties(headers=headers, message_id="m", delivery_mode=2)
    channel.basic_publish("", queues[0], b"x", properties, mandatory=True)
    other = confirming(shared_cluster, "n3")
    for queue in queues:
        other.queue_declare(queue, passive=True)
        method, got, _ = get(other, queue)
        assert method.routing_key == queues[0]
        assert got == Properties(
            headers={"CC": [queues[1]], "kept": True}, message_id="m", delivery_mode=2
        )


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        (Properties(headers={"CC": "q"}), "invalid message: header 'CC' must be an array"),
        (Properties(user_id="other"), "user_id property set to 'other' but authenticated user was"),
        (Properties(expiration="soon"), "invalid expiration 'soon'"),
        (Properties(reply_to=REPLY_QUEUE), "fast reply consumer does not exist"),
    ],
)
def test_message_with_wrong_properties_closes_the_channel(
    shared_cluster: Cluster, queue_name: Name, properties: Properties, text: str
) -> None:
    queue = queue_name("q")
    connection = shared_cluster.connect("n1")
    channel = connection.channel()
    channel.queue_declare(queue, exclusive=True)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"fine", Properties(user_id="guest", expiration="60000"))
    code, said = refused(lambda: channel.basic_publish("", queue, b"wrong", properties))
    assert code == 406
    assert text in said
    assert count(connection.channel(), queue) == 1


# Immediate


class Publisher:
    """Publishes immediate messages through one node and keeps what comes back."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self.connection = cluster.connect(node)
        self.channel = self.connection.channel()
        self.returned: list[tuple[int, bytes]] = []
        self.channel.add_on_return_callback(
            lambda _, method, __, body: self.returned.append((method.reply_code, body))
        )

    def publish(self, queue: str, body: bytes) -> None:
        """Send one; pika's own basic_publish knows no `immediate`."""
        method = pika.spec.Basic.Publish(exchange="", routing_key=queue, immediate=True)
        content = (Properties(delivery_mode=2), body)
        self.channel._impl._send_method(method, content)  # noqa: SLF001
        self.connection.process_data_events(0)

    def wait_returned(self, *bodies: bytes) -> None:
        """Wait until exactly these came back for want of a consumer."""

        def back() -> bool:
            self.connection.process_data_events(0.05)
            return len(self.returned) >= len(bodies)

        wait_for(f"{bodies} to come back", back)
        assert self.returned == [(313, body) for body in bodies]


@pytest.mark.parametrize("node", ["n1", "n3"])
@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_immediate_message_is_consumed_at_once_or_comes_back(
    shared_cluster: Cluster, node: str, kind: str
) -> None:
    queue = f"immediate-{node}-{kind}"
    set_policy(shared_cluster, queue, f"^{queue}$", allow_immediate=True)
    connection = shared_cluster.connect("n2")
    consumer = connection.channel()
    consumer.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
    publisher = Publisher(shared_cluster, node)
    publisher.channel.queue_declare(queue, passive=True)  # its node knows queue and policy now
    publisher.publish(queue, b"nobody")
    publisher.wait_returned(b"nobody")

    heard: list[tuple[int, bytes]] = []
    consumer.basic_qos(prefetch_count=1)
    consumer.basic_consume(
        queue, lambda _, method, __, body: heard.append((method.delivery_tag, body))
    )
    publisher.publish(queue, b"first")
    publisher.publish(queue, b"second")
    publisher.wait_returned(b"nobody", b"second")  # the consumer has one and may have no more
    wait_for("a delivery", lambda: connection.process_data_events(0.05) or heard)
    assert heard == [(1, b"first")]
    consumer.basic_ack(1)
    connection.process_data_events(0)
    wait_for(
        "the settlement",
        lambda: (shared_cluster.queue(queue) or {}).get("messages_unacknowledged") == 0,
    )
    publisher.publish(queue, b"third")
    wait_for("a delivery", lambda: connection.process_data_events(0.05) or len(heard) == 2)
    assert heard[1] == (2, b"third")
    assert len(publisher.returned) == 2
    assert count(publisher.channel, queue) == 0


def test_immediate_without_the_policy_closes_the_connection(
    shared_cluster: Cluster, queue_name: Name
) -> None:
    publisher = Publisher(shared_cluster, "n1")
    queue = queue_name("q")
    publisher.channel.queue_declare(queue, exclusive=True)

    def publish() -> None:
        publisher.publish(queue, b"x")
        publisher.wait_returned(b"x")

    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        publish()
    assert closed.value.reply_code == 540


# Direct reply-to


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_direct_reply_comes_from_any_node(
    shared_cluster: Cluster, queue_name: Name, node: str
) -> None:
    queue = queue_name("requests")
    requester = shared_cluster.connect("n1")
    channel = requester.channel()
    channel.queue_declare(queue, durable=True)
    replies: list[tuple[Any, Any, bytes]] = []
    channel.basic_consume(
        REPLY_QUEUE, lambda _, *reply: replies.append(reply), auto_ack=True, consumer_tag="replies"
    )
    properties = Properties(reply_to=REPLY_QUEUE, correlation_id="7")
    channel.basic_publish("", queue, b"ask", properties)
    connection = shared_cluster.connect(node)
    responder = connection.channel()
    _, request, body = next(responder.consume(queue, inactivity_timeout=30))
    assert body == b"ask"
    assert request.reply_to.startswith(REPLY_QUEUE + ".")
    assert count(responder, request.reply_to) == 0  # it is there
    answer = Properties(correlation_id=request.correlation_id, headers={"h": 1})
    large = bytes(range(256)) * 2048
    for body in (b"answer", large):
        responder.basic_publish("", request.reply_to, body, answer)
    wait_for("the replies", lambda: requester.process_data_events(0.05) or len(replies) == 2)
    for (method, got, reply), body in zip(replies, (b"answer", large), strict=True):
        assert (method.consumer_tag, method.routing_key) == ("replies", request.reply_to)
        assert got == answer
        assert reply == body
    channel.close()

    def gone() -> bool:
        ask = connection.channel()
        try:
            ask.queue_declare(request.reply_to, passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            return bool(error.reply_code == 404)
        ask.close()
        return False

    wait_for("the reply consumer to go", gone)


def test_aio_pika_calls_through_direct_reply_to(shared_cluster: Cluster, queue_name: Name) -> None:
    queue = queue_name("requests")

    async def serve(channel: aio_pika.abc.AbstractChannel) -> None:
        requests = await channel.declare_queue(queue, durable=True)

        async def answer(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            async with message.process():
                assert message.reply_to is not None
                reply = aio_pika.Message(
                    message.body.upper(), correlation_id=message.correlation_id
                )
                await channel.default_exchange.publish(reply, message.reply_to)

        await requests.consume(answer)

    async def call() -> list[bytes]:
        url = "amqp://guest:guest@127.0.0.1:{}/"
        async with (
            await aio_pika.connect(url.format(shared_cluster.port("n2"))) as server,
            await aio_pika.connect(url.format(shared_cluster.port("n3"))) as client,
        ):
            await serve(await server.channel())
            channel = await client.channel()
            waiting: dict[str, asyncio.Future[bytes]] = {}
            replies = await channel.get_queue(REPLY_QUEUE, ensure=False)

            async def heard(message: aio_pika.abc.AbstractIncomingMessage) -> None:
                assert message.correlation_id is not None
                waiting[message.correlation_id].set_result(message.body)

            await replies.consume(heard, no_ack=True)
            for number in range(20):
                waiting[str(number)] = asyncio.get_running_loop().create_future()
                request = aio_pika.Message(
                    b"ask %d" % number, reply_to=REPLY_QUEUE, correlation_id=str(number)
                )
                await channel.default_exchange.publish(request, queue)
            async with asyncio.timeout(60):
                return list(await asyncio.gather(*waiting.values()))

    assert asyncio.run(call()) == [b"ASK %d" % number for number in range(20)]
