"""Flow control and alarms, as existing clients see them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Final

import aio_pika
import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.flooder import publish_bytes
from e2e.harness.raw_client import RawClient
from pamqp import commands

ANSWER_SECONDS: Final = 60.0  # for what a busy machine takes a second
MEMORY_LIMIT: Final = "/api/flow/limits/memory-high-watermark"
CHANNEL_FLOW: Final = "/api/user-limits/guest/channel-flow"
BLOCKED_AFTER: Final = "/api/user-limits/guest/blocked-after-ms"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes of their own, for an alarm is for all clients, that wait for lost leaders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_LIMITS_LEADERLESS_MS", "0")
        with Cluster(tmp_path_factory.mktemp("flow") / "data") as cluster:
            yield cluster


@pytest.fixture
def quiet(nodes: Cluster) -> Iterator[Cluster]:
    """The same nodes; without alarms and connections after the test."""
    yield nodes
    for path in (MEMORY_LIMIT, CHANNEL_FLOW, BLOCKED_AFTER):
        nodes.local.nodes[0].api.request("DELETE", path)
    nodes.close_connections()


def put(cluster: Cluster, path: str, value: int) -> None:
    answer = cluster.local.nodes[0].api.request("PUT", path, {"value": value})
    assert answer.status in (201, 204), answer


@contextlib.contextmanager
def memory_alarm(cluster: Cluster) -> Iterator[None]:
    """Every node has more memory in use than it may."""
    put(cluster, MEMORY_LIMIT, 1 << 20)
    yield
    answer = cluster.local.nodes[0].api.request("DELETE", MEMORY_LIMIT)
    assert answer.status == 204, answer


def declare(cluster: Cluster, name: str) -> None:
    cluster.connect("n1").channel().queue_declare(name, durable=True)
    cluster.leader(name)


def messages(cluster: Cluster, queue: str) -> int:
    with contextlib.closing(cluster.connect("n2")) as connection:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)


def process_until(connection: pika.BlockingConnection, seen: list[Any]) -> None:
    """Let pika handle what comes until there is something in `seen`."""

    def look() -> bool:
        connection.process_data_events(0)
        return bool(seen)

    wait_for("a callback of pika", look)


def test_pika_is_told_of_an_alarm_and_its_publishes_are_kept_until_it_is_over(
    quiet: Cluster,
) -> None:
    declare(quiet, "kept")
    blocked: list[str] = []
    unblocked: list[bool] = []
    publishing = quiet.connect("n2")
    publishing.add_on_connection_blocked_callback(
        lambda _, frame: blocked.append(frame.method.reason)
    )
    publishing.add_on_connection_unblocked_callback(lambda *_: unblocked.append(True))
    channel = publishing.channel()
    for number in range(10):
        channel.basic_publish("", "kept", b"before-%d" % number)
    wait_for("ten messages", lambda: messages(quiet, "kept") == 10)
    with memory_alarm(quiet):
        process_until(publishing, blocked)
        assert "memory" in blocked[0]
        channel.basic_publish("", "kept", b"during")
        consuming = quiet.connect("n1").channel()
        taken = consuming.consume("kept", inactivity_timeout=ANSWER_SECONDS)
        for number in range(10):  # consumers go on
            method, _, body = next(taken)
            assert body == b"before-%d" % number
            consuming.basic_ack(method.delivery_tag)
        assert messages(quiet, "kept") == 0
        assert not unblocked
    assert next(taken)[2] == b"during"
    process_until(publishing, unblocked)


def test_pikas_timeout_ends_a_connection_that_an_alarm_blocks(quiet: Cluster) -> None:
    declare(quiet, "timed")
    impatient = quiet.connect("n1", blocked_connection_timeout=1)
    patient = quiet.connect("n1")
    impatient.channel().basic_publish("", "timed", b"a publisher")
    with memory_alarm(quiet):
        with pytest.raises(pika.exceptions.ConnectionBlockedTimeout):
            wait_for("pika's timeout", lambda: impatient.process_data_events(1))
        patient.process_data_events(0)
    channel = patient.channel()
    channel.confirm_delivery()
    channel.basic_publish("", "timed", b"still here")


def test_pikas_timeout_does_not_end_a_connection_that_flow_control_holds(quiet: Cluster) -> None:
    declare(quiet, "slow")
    put(quiet, BLOCKED_AFTER, 0)
    connection = quiet.connect("n1", blocked_connection_timeout=1)
    blocked: list[str] = []
    connection.add_on_connection_blocked_callback(
        lambda _, frame: blocked.append(frame.method.reason)
    )
    channel = connection.channel()
    waited: list[bool] = []
    with quiet.stopped("n2", "n3"):
        for _ in range(1500):
            channel.basic_publish("", "slow", bytes(500))
        connection.call_later(2, lambda: waited.append(True))  # behind pika's own timer
        process_until(connection, waited)
        assert connection.is_open
    assert not blocked
    connection.close()
    wait_for("all messages", lambda: messages(quiet, "slow") == 1500)


def test_a_client_that_asks_is_told_which_queue_holds_it(quiet: Cluster) -> None:
    declare(quiet, "why")
    put(quiet, BLOCKED_AFTER, 200)
    connection = quiet.connect("n1")
    blocked: list[str] = []
    unblocked: list[bool] = []
    connection.add_on_connection_blocked_callback(
        lambda _, frame: blocked.append(frame.method.reason)
    )
    connection.add_on_connection_unblocked_callback(lambda *_: unblocked.append(True))
    channel = connection.channel()
    with quiet.stopped("n2", "n3"):
        for _ in range(1500):
            channel.basic_publish("", "why", bytes(500))
        process_until(connection, blocked)
    assert blocked[0].startswith("flow: ")
    assert "why" in blocked[0]
    process_until(connection, unblocked)
    wait_for("all messages", lambda: messages(quiet, "why") == 1500)


def test_aio_pika_waits_while_an_alarm_blocks_it_and_goes_on_afterwards(
    quiet: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    declare(quiet, "aio")
    address = f"amqp://guest:guest@127.0.0.1:{quiet.port('n2')}/"

    def is_told() -> bool:
        return any("was blocked" in record.getMessage() for record in caplog.records)

    async def scenario() -> None:
        async with await aio_pika.connect(address) as connection:
            channel = await connection.channel(publisher_confirms=True)
            await channel.default_exchange.publish(aio_pika.Message(b"earlier"), "aio")
            with memory_alarm(quiet):
                await asyncio.to_thread(wait_for, "aio-pika to be told", is_told)
                publish = channel.default_exchange.publish(aio_pika.Message(b"later"), "aio")
                task = asyncio.create_task(publish)
                assert await asyncio.to_thread(messages, quiet, "aio") == 1
                assert not task.done()
            async with asyncio.timeout(ANSWER_SECONDS):
                await task

    with caplog.at_level(logging.WARNING, logger="aiormq.connection"):
        asyncio.run(scenario())
    assert messages(quiet, "aio") == 2


def test_a_client_that_wants_channel_flow_is_told_on_each_channel_and_answers(
    quiet: Cluster,
) -> None:
    declare(quiet, "told")
    put(quiet, CHANNEL_FLOW, 1)
    client = RawClient(quiet.port("n3")).log_in().open_channel(1).open_channel(2)
    client.socket.sendall(publish_bytes("told", b"a publisher", 1))
    with contextlib.closing(client.socket):
        with memory_alarm(quiet):
            assert flows(client) == {1: False, 2: False}
            for channel in (1, 2):
                client.send(commands.Channel.FlowOk(False), channel)
            client.open_channel(3)  # it is told at once
            assert next_flow(client) == (3, False)
            client.send(commands.Channel.FlowOk(False), 3)
        assert flows(client, 3) == {1: True, 2: True, 3: True}
        for channel in (1, 2, 3):
            client.send(commands.Channel.FlowOk(True), channel)
        client.send(commands.Channel.Close(200, "", 0, 0), 1)
        client.expect(commands.Channel.CloseOk)


def next_flow(client: RawClient) -> tuple[int, bool]:
    """Return the channel and value of the next channel.flow."""
    while True:
        channel, value = client.receive()
        if isinstance(value, commands.Channel.Flow):
            return channel, bool(value.active)
        assert isinstance(value, commands.Connection.Blocked | commands.Connection.Unblocked), value


def flows(client: RawClient, count: int = 2) -> dict[int, bool]:
    """Return the next channel.flow of so many channels."""
    return dict(next_flow(client) for _ in range(count))
