"""The clients people have work unchanged, each against three nodes."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aio_pika
import amqp
import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.message import Message

NODE_SCRIPTS = Path(__file__).parent / "node"

Name = Callable[[str], str]


def url(cluster: Cluster, node: str) -> str:
    return f"amqp://guest:guest@127.0.0.1:{cluster.port(node)}/"


def test_pika_properties_and_body_arrive_as_sent(shared_cluster: Cluster, queue_name: Name) -> None:
    queue = queue_name("q")
    channel = shared_cluster.connect("n1").channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    sent = pika.BasicProperties(
        content_type="application/json",
        content_encoding="gzip",
        headers={"a": 1, "b": "two", "c": [1, "x"], "d": {"e": True}},
        delivery_mode=2,
        priority=3,
        correlation_id="corr",
        reply_to="answers",
        message_id="id-1",
        timestamp=1_700_000_000,
        type="kind",
        app_id="app",
    )
    channel.basic_publish("", queue, b"\x00\xffbody", sent, mandatory=True)
    other = shared_cluster.connect("n2").channel()
    method, properties, body = next(other.consume(queue, inactivity_timeout=30))
    assert body == b"\x00\xffbody"
    assert properties == sent
    assert (method.exchange, method.routing_key, method.redelivered) == ("", queue, False)
    other.basic_ack(method.delivery_tag)


def test_pika_get_requeue_purge_and_counts(shared_cluster: Cluster, queue_name: Name) -> None:
    queue = queue_name("q")
    connection = shared_cluster.connect("n3")
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    for number in range(5):
        channel.basic_publish("", queue, b"%d" % number)
    method, _, body = channel.basic_get(queue)
    assert (body, method.message_count) == (b"0", 4)
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, body = channel.basic_get(queue)
    assert (body, method.redelivered) == (b"0", True)
    channel.basic_ack(method.delivery_tag)
    counted = shared_cluster.connect("n1").channel().queue_declare(queue, passive=True)
    assert counted.method.message_count == 4
    assert channel.queue_purge(queue).method.message_count == 4
    assert channel.basic_get(queue) == (None, None, None)
    channel.queue_delete(queue)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        connection.channel().queue_declare(queue, passive=True)
    assert refused.value.reply_code == 404


def test_pika_large_message_crosses_nodes(shared_cluster: Cluster, queue_name: Name) -> None:
    queue = queue_name("q")
    body = bytes(range(256)) * 4096 * 8  # 8 MiB: many frames, several log writes
    channel = shared_cluster.connect("n1").channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", queue, body)
    method, _, got = next(shared_cluster.connect("n3").channel().consume(queue))
    assert method.redelivered is False
    assert got == body


def test_pika_exclusive_queue_lives_as_long_as_its_connection(
    shared_cluster: Cluster, queue_name: Name
) -> None:
    del queue_name
    connection = shared_cluster.connect("n1")
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    assert queue.startswith("amq.gen-")
    channel.basic_publish("", queue, b"x")
    assert next(channel.consume(queue, inactivity_timeout=30))[2] == b"x"
    other = shared_cluster.connect("n2")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as locked:
        other.channel().queue_declare(queue, exclusive=True)
    assert locked.value.reply_code == 405
    connection.close()

    def gone() -> bool:
        try:
            other.channel().queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            return bool(error.reply_code == 404)
        return False

    wait_for("the exclusive queue to go", gone)


def test_aio_pika_topic_exchange_fans_out(shared_cluster: Cluster, queue_name: Name) -> None:
    names = {"stock.*.nyse": queue_name("a"), "#.eur": queue_name("b"), "#": queue_name("c")}

    async def scenario() -> dict[str, list[bytes]]:
        publishing = await aio_pika.connect(url(shared_cluster, "n1"))
        consuming = await aio_pika.connect(url(shared_cluster, "n2"))
        async with publishing, consuming:
            channel = await publishing.channel(publisher_confirms=True)
            exchange = await channel.declare_exchange(queue_name("x"), "topic", durable=True)
            reading = await consuming.channel()
            got: dict[str, list[bytes]] = {}
            for pattern in names:
                queue = await reading.declare_queue(names[pattern], durable=True)
                await queue.bind(exchange.name, pattern)
                got[pattern] = []
            # A change is seen at once on the node it was made through; any declare is a point
            # from which on a node sees what was declared before it anywhere.
            await channel.declare_exchange(queue_name("x"), "topic", durable=True)
            for key in ("stock.usd.nyse", "stock.eur", "other"):
                await exchange.publish(aio_pika.Message(key.encode()), key)
            for pattern in got:
                queue = await reading.get_queue(names[pattern])
                while (message := await queue.get(fail=False)) is not None:
                    got[pattern].append(message.body)
                    await message.ack()
            return got

    got = asyncio.run(scenario())
    assert got == {
        "stock.*.nyse": [b"stock.usd.nyse"],
        "#.eur": [b"stock.eur"],
        "#": [b"stock.usd.nyse", b"stock.eur", b"other"],
    }


def test_aio_pika_mandatory_unroutable_is_returned(
    shared_cluster: Cluster, queue_name: Name
) -> None:
    async def scenario() -> None:
        async with await aio_pika.connect(url(shared_cluster, "n2")) as connection:
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            await channel.default_exchange.publish(
                aio_pika.Message(b"lost"), queue_name("nobody"), mandatory=True
            )

    with pytest.raises(aio_pika.exceptions.DeliveryError):
        asyncio.run(scenario())


def test_py_amqp_headers_exchange(shared_cluster: Cluster, queue_name: Name) -> None:
    with amqp.Connection(f"127.0.0.1:{shared_cluster.port('n3')}") as connection:
        channel = connection.channel()
        queue, exchange = queue_name("q"), queue_name("x")
        channel.exchange_declare(exchange, "headers", durable=True, auto_delete=False)
        channel.queue_declare(queue, durable=True, auto_delete=False)
        channel.queue_bind(queue, exchange, arguments={"x-match": "all", "a": 1, "b": "z"})
        channel.confirm_select()
        for headers in ({"a": 1, "b": "z", "c": 0}, {"a": 1}):
            message = amqp.Message(json.dumps(headers), application_headers=headers)
            channel.basic_publish_confirm(message, exchange)
        got = channel.basic_get(queue, no_ack=True)
        assert json.loads(got.body) == {"a": 1, "b": "z", "c": 0}
        assert channel.basic_get(queue) is None


def test_kombu_producer_and_consumer(shared_cluster: Cluster, queue_name: Name) -> None:
    exchange = Exchange(queue_name("x"), "direct", durable=True)
    queue = Queue(queue_name("q"), exchange, routing_key="k", durable=True)
    got: list[Any] = []

    def take(body: Any, message: Message) -> None:
        got.append(body)
        message.ack()

    with Connection(url(shared_cluster, "n1")) as publishing:
        producer = publishing.Producer()
        for number in range(10):
            producer.publish(
                {"number": number}, exchange=exchange, routing_key="k", declare=[queue]
            )
    with (
        Connection(url(shared_cluster, "n2")) as consuming,
        consuming.Consumer(queue, callbacks=[take]),
    ):
        while len(got) < 10:
            consuming.drain_events(timeout=30)
    assert got == [{"number": number} for number in range(10)]


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts and amqplib installed."""
    assert shutil.which("npm"), "these tests need Node.js with npm"
    folder = tmp_path_factory.mktemp("node")
    for source in NODE_SCRIPTS.iterdir():
        shutil.copy(source, folder)
    command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)
    return folder


def test_amqplib_confirms_and_consumes(
    shared_cluster: Cluster, queue_name: Name, node_modules: Path
) -> None:
    arguments = [url(shared_cluster, "n1"), url(shared_cluster, "n3"), queue_name("q"), "500"]
    done = subprocess.run(
        ["node", "roundtrip.js", *arguments],
        cwd=node_modules,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["bodies"] == [f"message {number}" for number in range(500)]
    assert result["headers"] == list(range(500))


def test_amqp_tools_publish_and_consume(shared_cluster: Cluster, queue_name: Name) -> None:
    queue = queue_name("q")

    def tool(name: str, node: str, *arguments: str) -> str:
        command = [name, "-u", url(shared_cluster, node).removesuffix("/"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    tool("amqp-declare-queue", "n1", "-d", "-q", queue)
    for number in range(3):
        tool("amqp-publish", "n2", "-r", queue, "-p", "-b", f"line {number}\n")
    got = tool("amqp-consume", "n3", "-q", queue, "-c", "3", "cat")
    assert got == "line 0\nline 1\nline 2\n"
    tool("amqp-delete-queue", "n1", "-q", queue)
