"""A queue that holds too much: confirms wait until it drains, whatever fails meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
import pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractQueue
from aio_pika.exceptions import DeliveryError
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.consumer import Consumer
from e2e.harness.publisher import Publisher

HIGH = 10
LOW = 4
MARKS: dict[str, Any] = {"x-queue-type": "quorum", "x-high-watermark": HIGH, "x-low-watermark": LOW}
SECONDS = 60.0


class Window:
    """A publisher that does not wait, and which of its publishes are confirmed."""

    def __init__(self, channel: AbstractChannel) -> None:
        self.confirmed: set[int] = set()
        self.refused: set[int] = set()
        self._channel = channel
        self._count = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Condition()

    def publish(self, count: int, *routing_keys: str, exchange: str = "") -> None:
        """Publish so many messages, numbered on from 1, to the routing keys in turn."""
        for _ in range(count):
            self._count += 1
            key = routing_keys[self._count % len(routing_keys)]
            self._tasks.append(asyncio.create_task(self._publish(self._count, exchange, key)))

    async def _publish(self, number: int, exchange: str, key: str) -> None:
        message = aio_pika.Message(str(number).encode(), delivery_mode=2)
        target = await self._channel.get_exchange(exchange, ensure=False)
        into = self.confirmed
        try:
            await target.publish(message, key)
        except DeliveryError:
            into = self.refused
        async with self._changed:
            into.add(number)
            self._changed.notify_all()

    async def wait_confirmed(self, numbers: set[int]) -> None:
        """Wait until these, and no others, are confirmed."""
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.confirmed) >= len(numbers))
        assert self.confirmed == numbers

    async def stop(self) -> None:
        """Wait for no more confirms."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def open_channel(cluster: Cluster, node: str, confirms: bool) -> AsyncIterator[Any]:
    async with (
        await aio_pika.connect(f"amqp://127.0.0.1:{cluster.port(node)}/") as connection,
        connection.channel(publisher_confirms=confirms) as channel,
    ):
        yield channel


@asynccontextmanager
async def open_window(cluster: Cluster, node: str) -> AsyncIterator[Window]:
    async with open_channel(cluster, node, True) as channel:
        window = Window(channel)
        try:
            yield window
        finally:
            await window.stop()


async def take(queue: AbstractQueue, count: int) -> list[int]:
    """Take and settle messages, one after the other; return what they are."""
    bodies = []
    for _ in range(count):
        message = await queue.get(timeout=SECONDS)
        assert message is not None
        await message.ack()
        bodies.append(int(message.body))
    return bodies


def numbers(last: int) -> set[int]:
    return set(range(1, last + 1))


async def becomes(cluster: Cluster, queue: str, saturated: bool, deferred: int) -> None:
    """Wait until the queue's leader says this of it."""

    def said() -> bool:
        entry = cluster.queue(queue, cluster.leader(queue))
        assert entry is not None
        return (entry["saturated"], entry["confirms_deferred"]) == (saturated, deferred)

    what = f"saturated {saturated} and {deferred} confirms deferred"
    await asyncio.to_thread(wait_for, what, said)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(4 * SECONDS):
            await scenario()

    asyncio.run(bounded())


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_confirms_wait_until_the_queue_drains(
    shared_cluster: Cluster, queue_name: Callable[[str], str], node: str
) -> None:
    name = queue_name("q").replace("[", "-").replace("]", "")  # for aiormq

    async def scenario() -> None:
        async with (
            open_channel(shared_cluster, "n1", False) as plain,
            open_window(shared_cluster, node) as window,
        ):
            queue = await plain.declare_queue(name, durable=True, arguments=MARKS)
            window.publish(15, name)
            await window.wait_confirmed(numbers(HIGH))
            await becomes(shared_cluster, name, True, 5)
            # A publisher without confirms goes on as before.
            for number in range(16, 21):
                await plain.default_exchange.publish(
                    aio_pika.Message(str(number).encode(), delivery_mode=2), name
                )
            # What leaves the queue is complete though the queue stays saturated.
            assert await take(queue, HIGH + 2) == list(range(1, HIGH + 3))
            await window.wait_confirmed(numbers(HIGH + 2))
            await becomes(shared_cluster, name, True, 3)
            # At the low watermark all are.
            await take(queue, 20 - (HIGH + 2) - LOW)
            await window.wait_confirmed(numbers(15))
            await becomes(shared_cluster, name, False, 0)
            window.publish(HIGH - LOW, name)
            await window.wait_confirmed(numbers(15 + HIGH - LOW))
            await queue.delete(if_empty=False)

    run(scenario)


def test_message_waits_for_all_its_queues_and_no_other(
    shared_cluster: Cluster, queue_name: Callable[[str], str]
) -> None:
    slow, slower, free = queue_name("slow"), queue_name("slower"), queue_name("free")

    async def scenario() -> None:
        async with (
            open_channel(shared_cluster, "n1", False) as plain,
            open_window(shared_cluster, "n1") as window,
        ):
            fanout = await plain.declare_exchange(queue_name("x"), "fanout", durable=True)
            queues = {}
            for name in (slow, slower, free):
                arguments = MARKS | ({} if name != free else {"x-high-watermark": 0})
                queues[name] = await plain.declare_queue(name, durable=True, arguments=arguments)
            for name in (slow, slower):
                await queues[name].bind(fanout)
            window.publish(HIGH + 2, "", exchange=fanout.name)
            await window.wait_confirmed(numbers(HIGH))
            # The other queue's publishes are not behind those that wait.
            window.publish(3, free)
            others = {HIGH + 3, HIGH + 4, HIGH + 5}
            await window.wait_confirmed(numbers(HIGH) | others)
            # One of two queues completes: that is not enough.
            await take(queues[slow], HIGH + 2)
            await becomes(shared_cluster, slow, False, 0)
            window.publish(1, free)
            await window.wait_confirmed(numbers(HIGH) | others | {HIGH + 6})
            await take(queues[slower], HIGH + 1)
            await window.wait_confirmed(numbers(HIGH + 6))
            for queue in queues.values():
                await queue.delete(if_empty=False)
            await fanout.delete()

    run(scenario)


def test_purge_policy_and_deletion_let_confirms_go(
    shared_cluster: Cluster, queue_name: Callable[[str], str]
) -> None:
    name = queue_name("q")
    api = shared_cluster.node("n2").api
    policy = f"/api/policies/%2F/{name}"

    def put_policy(high: int) -> None:
        definition = {"high-watermark": high, "low-watermark": min(high, LOW)}
        body = {"pattern": f"^{name}$", "definition": definition, "apply-to": "queues"}
        assert api.request("PUT", policy, body)[0] in (201, 204)

    async def scenario() -> None:
        async with (
            open_channel(shared_cluster, "n1", False) as plain,
            open_window(shared_cluster, "n2") as window,
        ):
            arguments = {"x-queue-type": "quorum"}
            queue = await plain.declare_queue(name, durable=True, arguments=arguments)
            window.publish(12, name)
            await window.wait_confirmed(numbers(12))
            await asyncio.to_thread(put_policy, HIGH)
            await becomes(shared_cluster, name, True, 0)
            window.publish(3, name)
            await becomes(shared_cluster, name, True, 3)
            assert window.confirmed == numbers(12)
            await asyncio.to_thread(put_policy, 0)
            await window.wait_confirmed(numbers(15))
            await asyncio.to_thread(put_policy, HIGH)
            await becomes(shared_cluster, name, True, 0)
            window.publish(3, name)
            await becomes(shared_cluster, name, True, 3)
            await queue.purge()
            await window.wait_confirmed(numbers(18))
            window.publish(HIGH + 2, name)
            await window.wait_confirmed(numbers(18 + HIGH))
            await queue.delete(if_empty=False)
            await window.wait_confirmed(numbers(18 + HIGH + 2))
        assert (await asyncio.to_thread(api.request, "DELETE", policy))[0] == 204

    run(scenario)


def test_low_above_high_is_refused_by_name(
    shared_cluster: Cluster, queue_name: Callable[[str], str]
) -> None:
    channel = shared_cluster.connect("n1").channel()
    arguments = {"x-high-watermark-bytes": 5, "x-low-watermark-bytes": 6}
    refusal = pika.exceptions.ChannelClosedByBroker
    with pytest.raises(refusal, match=r"x-low-watermark-bytes.*x-high-watermark-bytes") as closed:
        channel.queue_declare(queue_name("q"), durable=True, arguments=arguments)
    assert closed.value.reply_code == 406


@pytest.mark.parametrize("node", ["n2", "n3"])
def test_killed_leader_takes_no_confirm_with_it(cluster: Cluster, node: str) -> None:
    """The successor defers the same confirms as the killed leader, and completes them in time."""

    async def scenario() -> None:
        other = "n3" if node == "n2" else "n2"
        async with (
            open_window(cluster, node) as window,
            open_channel(cluster, other, False) as plain,
        ):
            window.publish(15, "work")
            await window.wait_confirmed(numbers(HIGH))
            await becomes(cluster, "work", True, 5)
            await asyncio.to_thread(cluster.kill, "n1")
            await becomes(cluster, "work", True, 5)
            assert window.confirmed == numbers(HIGH)
            queue = await plain.get_queue("work", ensure=False)
            await take(queue, HIGH + 1)
            await window.wait_confirmed(numbers(15))
            await take(queue, 4)

    declare(cluster, "n1")
    assert cluster.leader("work") == "n1"
    run(scenario)


def declare(cluster: Cluster, node: str) -> None:
    """Declare the queue through a node, which thereby leads it at first."""
    connection = cluster.connect(node)
    connection.channel().queue_declare("work", durable=True, arguments=MARKS)
    connection.close()


def deferred(cluster: Cluster) -> int:
    """Return the number of deferred confirms of the queue."""
    entry = cluster.queue("work", cluster.leader("work"))
    return int(entry["confirms_deferred"]) if entry else 0


def ahead(publisher: Publisher, consumer: Consumer) -> int:
    """Return the number of confirmed messages that have not reached the consumer."""
    with publisher.progress:
        confirmed = set(publisher.confirmed)
    with consumer.progress:
        return len(confirmed - consumer.numbers)


def test_publisher_is_kept_at_its_consumers_pace_through_failures(cluster: Cluster) -> None:
    declare(cluster, "n1")
    count = 3_000
    publisher = Publisher([cluster.port("n2"), cluster.port("n3")], "work", count, 100)
    consumer = Consumer([cluster.port("n3"), cluster.port("n2")], "work")
    with publisher:
        wait_for("confirms to be deferred", lambda: deferred(cluster))
        assert ahead(publisher, consumer) <= HIGH
        with consumer:
            for kill in (1, 2):
                assert publisher.wait_confirmed(count * kill // 4, SECONDS), publisher.failure
                cluster.kill(cluster.leader("work"))
                assert publisher.wait_confirmed(count * kill // 4 + count // 8, SECONDS)
                assert ahead(publisher, consumer) <= HIGH
                cluster.start()
            assert publisher.wait_confirmed(count, SECONDS), publisher.failure
            assert ahead(publisher, consumer) <= HIGH
            publisher.join(SECONDS)
            missing = consumer.wait_all(publisher.confirmed, SECONDS)
    assert consumer.failure is None
    assert not publisher.rejected
    assert not missing
