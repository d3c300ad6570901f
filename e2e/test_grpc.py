"""gRPC beside AMQP on one cluster: same messages, same guarantees, same brakes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal as Fraction
from typing import Any

import grpc
import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for

from headrace_protos.broker.v1.message_pb2 import Message, Properties, Range
from headrace_protos.broker.v1.messaging_pb2 import (
    ConsumeOpen,
    ConsumeRequest,
    Credit,
    GetRequest,
    Outcome,
    PublishBatch,
    PublishOpen,
    PublishRequest,
    Settle,
)
from headrace_protos.broker.v1.messaging_pb2_grpc import MessagingStub
from headrace_protos.broker.v1.value_pb2 import Array, Decimal, Table, Value

GUEST = (("authorization", "Basic " + base64.b64encode(b"guest:guest").decode()),)
WATERMARK = "/api/flow/limits/memory-high-watermark"
SECONDS = 120.0
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes for this module."""
    with Cluster(tmp_path_factory.mktemp("grpc") / "data") as cluster:
        yield cluster
        cluster.close_connections()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            await scenario

    asyncio.run(bounded())


@asynccontextmanager
async def messaging(cluster: Cluster, name: str) -> AsyncIterator[MessagingStub]:
    """A client of one node."""
    async with grpc.aio.insecure_channel(cluster.node(name).grpc) as channel:
        yield MessagingStub(channel)


async def publish(stub: MessagingStub, *messages: Message) -> None:
    """Publish with confirms and wait until all are safe."""
    call: Any = stub.Publish(metadata=GUEST)  # type: ignore[call-arg] # it is written to
    await call.write(PublishRequest(open=PublishOpen(vhost="/", confirms=True)))
    assert (await call.read()).HasField("opened")
    await call.write(PublishRequest(batch=PublishBatch(first_sequence=1, messages=messages)))
    await call.done_writing()
    confirmed = 0
    while (answer := await call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
        assert answer.WhichOneof("kind") in ("confirmed", "window"), answer
        confirmed += sum(each.last - each.first + 1 for each in answer.confirmed.ranges)
    assert confirmed == len(messages)


HEADERS = {
    "boolean": Value(boolean=True),
    "long": Value(int64=-(1 << 40)),
    "text": Value(string="grün"),
    "byte_count": Value(bytes=b"\x00\xff"),
    "time": Value(timestamp=1_700_000_000),
    "decimal": Value(decimal=Decimal(scale=2, value=314)),
    "none": Value(none=0),  # type: ignore[arg-type]
    "table": Value(table=Table(fields={"in": Value(array=Array(values=[Value(int64=1 << 40)]))})),
}
PROPERTIES = Properties(
    content_type="application/x",
    content_encoding="gzip",
    headers=Table(fields=HEADERS),
    delivery_mode=2,
    priority=3,
    correlation_id="c",
    reply_to="r",
    expiration="600000",
    message_id="m",
    timestamp=1_700_000_001,
    type="t",
    user_id="guest",
    app_id="a",
    cluster_id="k",
)
SEEN_BY_PIKA = {
    "content_type": "application/x",
    "content_encoding": "gzip",
    "headers": {
        "boolean": True,
        "long": -(1 << 40),
        "text": "grün",
        "byte_count": b"\x00\xff",
        "time": datetime.fromtimestamp(1_700_000_000, UTC),
        "decimal": Fraction("3.14"),
        "none": None,
        "table": {"in": [1 << 40]},
    },
    "delivery_mode": 2,
    "priority": 3,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "600000",
    "message_id": "m",
    "timestamp": 1_700_000_001,
    "type": "t",
    "user_id": "guest",
    "app_id": "a",
    "cluster_id": "k",
}


def test_a_message_goes_from_grpc_to_amqp_and_back_as_it_was(nodes: Cluster) -> None:
    channel = nodes.connect("n1").channel()
    channel.queue_declare("there", durable=True)
    channel.queue_declare("back", durable=True)

    async def there() -> None:
        async with messaging(nodes, "n2") as stub:
            await publish(stub, Message(routing_key="there", properties=PROPERTIES, body=b"body"))

    async def back() -> None:
        async with messaging(nodes, "n3") as stub:
            request = GetRequest(vhost="/", queue="back")
            answer = await stub.Get(request, metadata=GUEST)  # type: ignore[misc]
            (found,) = answer.deliveries
            assert found.properties == PROPERTIES
            assert (found.exchange, found.routing_key, found.body) == ("", "back", b"body")

    async def direct() -> None:
        async with messaging(nodes, "n2") as stub:
            double = Properties(headers=Table(fields={"d": Value(double=1.5)}))  # pika has none
            await publish(stub, Message(routing_key="there", properties=double))
            request = GetRequest(vhost="/", queue="there")
            answer = await stub.Get(request, metadata=GUEST)  # type: ignore[misc]
            assert answer.deliveries[0].properties == double

    run(direct())
    run(there())
    method, properties, body = wait_for("it", lambda: _got(channel.basic_get("there")))
    assert body == b"body"
    for name, value in SEEN_BY_PIKA.items():
        assert getattr(properties, name) == value, name
    channel.basic_ack(method.delivery_tag)
    channel.confirm_delivery()
    channel.basic_publish("", "back", body, properties)
    run(back())


def _got(found: tuple[Any, Any, Any]) -> tuple[Any, Any, Any] | None:
    return found if found[0] is not None else None


class Publisher:
    """Publishes numbers with confirms as its window allows, until it has been told to end."""

    def __init__(self, stub: MessagingStub, queue: str) -> None:
        self.confirmed: set[int] = set()
        self.sent = 0
        self.window: Any = None
        self.changed = asyncio.Event()
        self._queue = queue
        self._call: Any = stub.Publish(metadata=GUEST)  # type: ignore[call-arg] # it is written to
        self._byte_count = 0

    async def open(self) -> None:
        opening = PublishOpen(vhost="/", routing_key=self._queue, confirms=True)
        await self._call.write(PublishRequest(open=opening))
        self.window = (await self._call.read()).opened.window

    async def send(self, count: int) -> None:
        """Send so many messages."""
        while count > 0:
            left = min(self.window.messages - self.sent, count, 200)
            if left <= 0 or self.window.octets <= self._byte_count:
                self.changed.clear()
                await self.changed.wait()
                continue
            bodies = [b"%d" % (self.sent + at) for at in range(left)]
            batch = PublishBatch(
                first_sequence=self.sent + 1, messages=[Message(body=body) for body in bodies]
            )
            self.sent += left
            self._byte_count += batch.ByteSize()
            count -= left
            await self._call.write(PublishRequest(batch=batch))

    async def listen(self) -> None:
        """Take what comes back, to the end of the stream."""
        while (answer := await self._call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            kind = answer.WhichOneof("kind")
            if kind == "window":
                self.window = answer.window
            else:
                assert kind == "confirmed", answer
                for each in answer.confirmed.ranges:
                    self.confirmed.update(range(each.first, each.last + 1))
            self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what came back makes something true."""
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    async def end(self) -> None:
        await self._call.done_writing()


async def consume(stub: MessagingStub, queue: str, count: int) -> list[tuple[int, bool]]:
    """Bodies, as numbers, and redelivered flags, until so many different ones have come."""
    call: Any = stub.Consume(metadata=GUEST)  # type: ignore[call-arg] # it is written to
    opening = ConsumeOpen(vhost="/", queue=queue, credit=Credit(messages=500))
    await call.write(ConsumeRequest(open=opening))
    seen: list[tuple[int, bool]] = []
    while len({number for number, _ in seen}) < count:
        answer = await call.read()
        assert answer is not grpc.aio.EOF  # type: ignore[attr-defined]
        found = answer.deliveries.deliveries
        if found:
            seen += [(int(each.body), each.redelivered) for each in found]
            ids = Range(first=found[0].delivery_id, last=found[-1].delivery_id)
            settle = Settle(ranges=[ids], outcome=Outcome.ACCEPT)
            await call.write(ConsumeRequest(settle=settle))
            await call.write(ConsumeRequest(credit=Credit(messages=len(found))))
    await call.done_writing()
    while await call.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
        pass
    return seen


def test_a_leader_killed_while_publishing_loses_nothing_confirmed(nodes: Cluster) -> None:
    nodes.connect("n1").channel().queue_declare("work", durable=True)
    assert nodes.leader("work") == "n1"
    count = 4000

    async def scenario() -> None:
        async with messaging(nodes, "n2") as stub, messaging(nodes, "n3") as other:
            publisher = Publisher(stub, "work")
            await publisher.open()
            async with asyncio.TaskGroup() as group:
                group.create_task(publisher.listen())
                await publisher.send(count // 2)
                await publisher.until(lambda: len(publisher.confirmed) > 100)
                await asyncio.to_thread(nodes.kill, "n1")
                await publisher.send(count // 2)
                await publisher.until(lambda: len(publisher.confirmed) == count)
                await publisher.end()
            seen = await consume(other, "work", count)
        fresh = [number for number, redelivered in seen if not redelivered]
        assert sorted({number for number, _ in seen}) == list(range(count))
        assert fresh == sorted(set(fresh))

    run(scenario())
    nodes.start()


def test_an_alarm_shuts_the_window_and_says_why(nodes: Cluster) -> None:
    nodes.connect("n2").channel().queue_declare("alarmed", durable=True)
    api = nodes.node("n2").api

    async def scenario() -> None:
        async with messaging(nodes, "n3") as stub:
            publisher = Publisher(stub, "alarmed")
            await publisher.open()
            async with asyncio.TaskGroup() as group:
                group.create_task(publisher.listen())
                await publisher.send(10)
                await publisher.until(lambda: len(publisher.confirmed) == 10)
                body = {"value": 1e-9}
                await asyncio.to_thread(api.request, "PUT", WATERMARK, body, seconds=30)
                await publisher.until(lambda: publisher.window.HasField("stop"))
                window = publisher.window
                assert window.messages == 10
                assert window.stop.limit == "memory-alarm"
                assert window.stop.node in ("n1", "n2", "n3")
                assert "low on memory" in window.stop.text
                await asyncio.to_thread(api.request, "DELETE", WATERMARK, seconds=30)
                await publisher.until(lambda: not publisher.window.HasField("stop"))
                await publisher.send(1)
                await publisher.until(lambda: len(publisher.confirmed) == 11)
                await publisher.end()

    run(scenario())


def test_streams_are_listed_beside_connections(nodes: Cluster) -> None:
    connection = nodes.connect("n1")
    channel = connection.channel()
    channel.queue_declare("listed", durable=True)
    api = nodes.node("n1").api

    def listed() -> list[str]:
        return sorted(each["protocol"] for each in api.get("/api/connections")[1])

    async def scenario() -> None:
        async with messaging(nodes, "n2") as stub:
            publisher = Publisher(stub, "listed")
            await publisher.open()
            call: Any = stub.Consume(metadata=GUEST)  # type: ignore[call-arg] # it is written to
            opening = ConsumeOpen(vhost="/", queue="listed", credit=Credit(messages=1))
            await call.write(ConsumeRequest(open=opening))
            assert (await call.read()).HasField("opened")
            expected = ["gRPC Consume", "gRPC Publish"]
            await asyncio.to_thread(
                wait_for, "both", lambda: [each for each in listed() if "gRPC" in each] == expected
            )
            call.cancel()
            await publisher.end()

    run(scenario())
    assert isinstance(connection, pika.BlockingConnection)
