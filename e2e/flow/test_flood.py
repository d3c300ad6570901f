"""Clients that flood: a node's memory for them is bounded, and others do not suffer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.flooder import Flooder, publish_bytes, pump
from e2e.harness.raw_client import RawClient
from pamqp import commands

Clients = Callable[..., list[RawClient]]

MIB: Final = 1 << 20
ANSWER_SECONDS: Final = 60.0  # for what a busy machine takes a second
NODE_HELD_MIB: Final = 128  # NODE_BUFFER_BYTES


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes with tiny entry caches, which would hide the rest, that wait for lost leaders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_LOG_CACHE_BYTES", str(4 * MIB))
        patch.setenv("HEADRACE_LIMITS_LEADERLESS_MS", "0")
        with Cluster(tmp_path_factory.mktemp("flood") / "data") as cluster:
            yield cluster
            cluster.close_connections()


@pytest.fixture
def flooded(nodes: Cluster) -> Iterator[Cluster]:
    """The same nodes; connections that a test left open are closed."""
    yield nodes
    nodes.close_connections()


def declare(cluster: Cluster, *names: str, kind: str = "quorum") -> None:
    channel = cluster.connect("n1").channel()
    for name in names:
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
        cluster.leader(name)


@pytest.fixture
def raw_clients(nodes: Cluster) -> Iterator[Clients]:
    """Make clients of n1 that are logged in and have channels open; dropped after the test."""
    made: list[RawClient] = []

    def make(count: int, channels: int = 1) -> list[RawClient]:
        clients = [RawClient(nodes.port("n1")).log_in() for _ in range(count)]
        made.extend(clients)
        for client in clients:
            for channel in range(1, channels + 1):
                client.open_channel(channel)
        return clients

    yield make
    for client in made:
        client.close()


def messages(cluster: Cluster, queue: str) -> int:
    with contextlib.closing(cluster.connect("n1")) as connection:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)


def wait_messages(cluster: Cluster, queue: str, count: int) -> None:
    wait_for(f"{count} messages", lambda: messages(cluster, queue) == count, ANSWER_SECONDS)


def round_trips(channel: pika.adapters.blocking_connection.BlockingChannel, queue: str) -> None:
    """Publish with confirms and consume, a hundred times: others go on."""
    channel.confirm_delivery()
    for number in range(100):
        channel.basic_publish("", queue, b"%d" % number)
    taken = channel.consume(queue, inactivity_timeout=ANSWER_SECONDS)
    for number in range(100):
        method, _, body = next(taken)
        assert body == b"%d" % number
        channel.basic_ack(method.delivery_tag)
    channel.cancel()


def test_three_hundred_flooders_of_a_stopped_queue_are_held_within_bounds_and_lose_nothing(
    flooded: Cluster, raw_clients: Clients
) -> None:
    declare(flooded, "stopped")
    declare(flooded, "local", kind="classic")
    other = flooded.connect("n1").channel()
    publish = publish_bytes("stopped", bytes(16 << 10))
    data = publish * (4 * MIB // len(publish))  # more than any connection may have held
    flooders = [Flooder(client, data) for client in raw_clients(300)]
    before = flooded.resident_bytes("n1")
    with flooded.stopped("n2", "n3"):
        pump(flooders)
        grown = flooded.resident_bytes("n1") - before
        round_trips(other, "local")
        count = sum(flooder.stop_after(len(publish)) for flooder in flooders)
    assert grown < (NODE_HELD_MIB + 64) * MIB
    assert count < len(flooders) * len(data) // len(publish), "the sockets stopped"
    pump(flooders, ANSWER_SECONDS)
    for flooder in flooders:
        flooder.await_close_ok(ANSWER_SECONDS)
    wait_messages(flooded, "stopped", count)
    assert max(flooded.resident_bytes("n1") - before, 0) < (NODE_HELD_MIB + 64) * MIB


def test_a_client_that_reads_nothing_and_floods_over_many_channels_is_not_disconnected(
    flooded: Cluster, raw_clients: Clients
) -> None:
    declare(flooded, "flood", "well")
    other = flooded.connect("n1").channel()
    (client,) = raw_clients(1, channels=40)
    for channel in range(1, 41):
        client.send(commands.Confirm.Select(), channel)
        client.expect(commands.Confirm.SelectOk)
    client.send(commands.Basic.Consume(0, "flood", "", False, True), 1)  # deliveries, unread too
    client.expect(commands.Basic.ConsumeOk)
    publishes = [publish_bytes("flood", bytes(4 << 10), channel) for channel in range(1, 41)]
    data = b"".join(publishes) * (64 * MIB // (40 * len(publishes[0])))
    flooder = Flooder(client, data)
    before = flooded.resident_bytes("n1")
    pump([flooder])
    round_trips(other, "well")
    assert flooded.resident_bytes("n1") - before < 96 * MIB
    flooder.stop_after(len(publishes[0]))
    finish_reading(flooder)


def finish_reading(flooder: Flooder) -> None:
    """Send the rest, and read at last; there is no connection.close on the way but ours."""
    client = flooder.client
    while flooder.left:
        with contextlib.suppress(BlockingIOError):
            flooder.send_some()
        received = client.receive_within(0) if flooder.left else None
        while received is not None:
            assert not isinstance(received[1], commands.Connection.Close), received
            received = client.receive_within(0)
    flooder.await_close_ok(ANSWER_SECONDS)


def test_contents_that_many_clients_leave_unfinished_are_bounded_and_can_be_finished(
    flooded: Cluster, raw_clients: Clients
) -> None:
    declare(flooded, "large", "well")
    other = flooded.connect("n1").channel()
    body = bytes(8 * MIB)
    data = publish_bytes("large", body)
    half = [Flooder(client, data[:-100]) for client in raw_clients(40)]
    before = flooded.resident_bytes("n1")
    pump(half)
    grown = flooded.resident_bytes("n1") - before
    round_trips(other, "well")
    assert grown < (NODE_HELD_MIB + 64) * MIB
    rest = [Flooder(each.client, data[each.sent :]) for each in half]
    for flooder in rest:
        flooder.then_close()
    pump(rest, ANSWER_SECONDS)
    for flooder in rest:
        flooder.await_close_ok(ANSWER_SECONDS)
    wait_messages(flooded, "large", len(half))


def test_a_connection_held_by_one_queue_goes_on_consuming_from_another(flooded: Cluster) -> None:
    declare(flooded, "held")
    declare(flooded, "fed", kind="classic")
    both = flooded.connect("n1")
    publishing, consuming = both.channel(), both.channel()
    consuming.basic_qos(prefetch_count=10)
    feeding = flooded.connect("n1").channel()
    with flooded.stopped("n2", "n3"):
        for _ in range(1500):  # past credit and account, and less than is held for a connection
            publishing.basic_publish("", "held", bytes(500))
        for number in range(300):
            feeding.basic_publish("", "fed", b"%d" % number)
        taken = consuming.consume("fed", inactivity_timeout=ANSWER_SECONDS)
        for number in range(300):
            method, _, body = next(taken)
            assert body == b"%d" % number
            consuming.basic_ack(method.delivery_tag)
        consuming.cancel()
    both.close()
    wait_messages(flooded, "held", 1500)


def test_a_held_publisher_that_closes_properly_loses_nothing(
    flooded: Cluster, raw_clients: Clients
) -> None:
    declare(flooded, "closing")
    (client,) = raw_clients(1)
    client.send(commands.Confirm.Select(), 1)
    client.expect(commands.Confirm.SelectOk)
    publish = publish_bytes("closing", bytes(500))
    with flooded.stopped("n2", "n3"):
        client.socket.sendall(publish * 1500)
        client.send(commands.Connection.Close(200, "done", 0, 0))
    client.socket.settimeout(ANSWER_SECONDS)
    value = None
    while not isinstance(value, commands.Connection.CloseOk):
        _, value = client.receive()
        assert not isinstance(value, commands.Connection.Close | commands.Basic.Nack), value
    client.close()
    wait_messages(flooded, "closing", 1500)
