"""The largest messages that can be allowed: through each node, across deaths, restarts and lags."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for

from headrace_broker.model.limits import MESSAGE_BYTES_PLAIN

QUEUE: Final = "large"
BESIDE: Final = "beside"
MIB: Final = 1 << 20
LARGEST: Final = 128 * MIB
PERSISTENT: Final = pika.BasicProperties(delivery_mode=2)
QUORUM: Final = {"x-queue-type": "quorum"}


def body_of(byte_count: int, first: bytes) -> bytes:
    """Return a body in which no two stretches of a MiB are the same."""
    step = hashlib.shake_256(first).digest(MIB + 1)
    return first + (step * (byte_count // len(step) + 1))[: byte_count - len(first)]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three nodes that take large messages, and a queue."""
    monkeypatch.setenv("HEADRACE_LIMITS_MESSAGE_BYTES_MAX", str(LARGEST))
    with Cluster(tmp_path) as nodes:
        nodes.connect().channel().queue_declare(QUEUE, durable=True, arguments=QUORUM)
        yield nodes
        nodes.close_connections()


def publish(cluster: Cluster, node: str, body: bytes) -> None:
    """Publish through a node, and wait for the confirm."""
    channel = cluster.connect(node, heartbeat=0).channel()
    channel.confirm_delivery()
    channel.basic_publish("", QUEUE, body, PERSISTENT, mandatory=True)


def take(cluster: Cluster, node: str) -> bytes:
    """Return the body of the next message, consumed through a node and acknowledged."""
    channel = cluster.connect(node, heartbeat=0).channel()
    for method, _, body in channel.consume(QUEUE):
        channel.basic_ack(method.delivery_tag)
        channel.cancel()
        return bytes(body)
    raise AssertionError("consume ends with a message")


class Beside:
    """A client that publishes short messages with confirms all the while."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        cluster.connect(node).channel().queue_declare(BESIDE, durable=True, arguments=QUORUM)
        self.confirmed = 0
        self._port = cluster.port(node)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Beside:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            parameters = pika.ConnectionParameters("127.0.0.1", self._port, heartbeat=0)
            with pika.BlockingConnection(parameters) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                while not self._stop.is_set():
                    channel.basic_publish("", BESIDE, b"beside", PERSISTENT)
                    self.confirmed += 1
                    if self.confirmed % 200 == 0:
                        channel.queue_purge(BESIDE)
                    connection.sleep(0.01)
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._failure = error


def test_large_messages_pass_through_each_node_and_outlive_their_leader(cluster: Cluster) -> None:
    leader = cluster.leader(QUEUE)
    others = [node.name for node in cluster.local.nodes if node.name != leader]
    bodies = [body_of(LARGEST, digit) for digit in (b"1", b"2", b"3")]
    with Beside(cluster, others[1]) as beside:
        publish(cluster, others[0], bodies[0])
        assert take(cluster, others[1]) == bodies[0]
        before = beside.confirmed
        publish(cluster, leader, bodies[1])
        assert beside.confirmed > before
        channel = cluster.connect(others[0], heartbeat=0).channel()
        method, _, body = channel.basic_get(QUEUE, auto_ack=True)
        assert method is not None
        assert body == bodies[1]
        publish(cluster, others[0], bodies[2])
    assert not [name for name in others if ") is down: " in cluster.log(name)]
    cluster.kill(leader)
    cluster.leader(QUEUE)
    assert take(cluster, others[1]) == bodies[2]


def test_large_message_is_there_after_all_nodes_were_killed(cluster: Cluster) -> None:
    body = body_of(LARGEST, b"4")
    publish(cluster, "n1", body)
    cluster.close_connections()
    cluster.kill("n1", "n2", "n3")
    cluster.start()
    cluster.leader(QUEUE)
    assert take(cluster, "n2") == body


def has_caught_up(cluster: Cluster, leader: str, name: str) -> bool:
    """Return whether a node's replica has everything, as the leader says."""
    status, found = cluster.node(leader).api.get(f"/api/queues/%2F/{QUEUE}/members")
    assert status == 200, found
    return any(
        row["node"] == name and row["online"] and row["lag"] == 0 and not row["fetching"]
        for row in found["members"]
    )


@pytest.mark.parametrize(("count", "byte_count"), [(1, 40 * MIB), (2, 64 * MIB)])
def test_node_that_was_away_catches_up_by_large_messages(
    cluster: Cluster, count: int, byte_count: int
) -> None:
    """From the leader's log, or where that is cut by its snapshot and the entries it names."""
    leader = cluster.leader(QUEUE)
    away, other = [node.name for node in cluster.local.nodes if node.name != leader]
    cluster.kill(away)
    bodies = [body_of(byte_count, b"%d" % at) for at in range(count)]
    for body in bodies:
        publish(cluster, leader, body)
    cluster.start()
    wait_for(f"{away} to catch up", lambda: has_caught_up(cluster, leader, away), 120.0)
    cluster.kill(other)  # the one that was away is needed now
    for body in bodies:
        assert take(cluster, away) == body
    cluster.start()


def test_message_that_another_node_does_not_take_is_refused_naming_that_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_LIMITS_MESSAGE_BYTES_MAX", str(LARGEST))
    with Cluster(tmp_path) as nodes:
        nodes.connect().channel().queue_declare(QUEUE, durable=True, arguments=QUORUM)
        nodes.kill("n3")
        monkeypatch.setenv("HEADRACE_LIMITS_MESSAGE_BYTES_MAX", str(LARGEST // 2))
        nodes.start()
        refusal = f"clients may send messages of up to {LARGEST // 2} bytes. node 'n3' takes"
        wait_for("n1 to hear of it", lambda: refusal in nodes.log("n1"))
        body = bytes(LARGEST // 2 + 1)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            publish(nodes, "n1", body)
        assert caught.value.reply_code == 406
        assert "node 'n3' takes no more" in caught.value.reply_text
        publish(nodes, "n1", body[1:])
        nodes.kill("n3")
        monkeypatch.setenv("HEADRACE_LIMITS_MESSAGE_BYTES_MAX", "1024")
        nodes.start()
        wait_for("n1 to hear of that", lambda: f"{MESSAGE_BYTES_PLAIN} bytes." in nodes.log("n1"))
        assert take(nodes, "n3") == body[1:], "what is stored goes on"
        nodes.close_connections()
