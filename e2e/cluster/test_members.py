"""A cluster that grows, is drained, loses nodes in the middle of moves, and shrinks again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.command import run_command
from e2e.harness.consumer import Consumer
from e2e.harness.publisher import Publisher

from headrace_broker.cli.session.api_client import ApiAnswer
from headrace_client import blocking

HEADRACE: Final = (sys.executable, "-m", "headrace_broker.cli")
BODY_BYTES: Final = 512
STORED: Final = 3_000  # messages that wait in a queue with one replica
CONFIRMED: Final = 1_000  # messages that must get through after each upheaval
WAIT_SECONDS: Final = 180.0
ANSWER_SECONDS: Final = 60.0
WINDOW: Final = 100  # of the publisher, which is to be there and not to load the machine
QUORUM: Final = {"x-queue-type": "quorum"}


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three nodes that cut their logs early, so that new members need snapshots."""
    monkeypatch.setenv("HEADRACE_LOG_SEGMENT_BYTES", str(2 << 20))
    monkeypatch.setenv("HEADRACE_LOG_SNAPSHOT_EVERY_BYTES", str(128 << 10))
    monkeypatch.setenv("HEADRACE_LIMITS_MESSAGE_BYTES_MAX", str(512 << 10))
    with Cluster(tmp_path / "data") as cluster:
        yield cluster
        cluster.close_connections()


def command(cluster: Cluster, *words: str, node: str = "n2", code: int = 0) -> str:
    """Run `headrace` against a node."""
    return run_command(cluster, (*HEADRACE, *words), node, code)


def ask(cluster: Cluster, path: str, method: str = "GET") -> ApiAnswer:
    """Ask n2, which may be busy."""
    return cluster.node("n2").api.request(method, path, seconds=ANSWER_SECONDS)


def node_row(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return what there is to say of a node, {} for one that does not belong to the cluster."""
    answer = ask(cluster, f"/api/cluster/nodes/{name}")
    return dict(answer.body) if answer.status == 200 else {}


def members(cluster: Cluster, queue: str) -> dict[str, Any]:
    """Return what the leader of a queue says of its replicas."""
    answer = ask(cluster, f"/api/queues/%2F/{queue}/members")
    assert answer.status == 200, answer
    return dict(answer.body)


def wait_settled(cluster: Cluster, queue: str, *nodes: str) -> None:
    """Wait until a queue is on these nodes and no others, with all that it has."""

    def settled() -> bool:
        found = members(cluster, queue)
        return bool(found["settled"]) and {row["node"] for row in found["members"]} == set(nodes)

    try:
        wait_for(f"{queue} on {nodes}", settled, WAIT_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}: {members(cluster, queue)}") from None


def wait_ready(cluster: Cluster, name: str) -> None:
    wait_for(f"{name} to be ready", lambda: reason(cluster, name) == "", WAIT_SECONDS)


def reason(cluster: Cluster, name: str) -> str:
    """Return why a node is not ready, "" if it is."""
    return cluster.node(name).api.not_ready_reason()


def fill(cluster: Cluster, queue: str) -> None:
    """Store messages in a queue with one replica, on node n1."""
    channel = cluster.connect("n1").channel()
    channel.queue_declare(
        queue, durable=True, arguments=QUORUM | {"x-quorum-initial-group-size": 1}
    )
    channel.confirm_delivery()
    for number in range(STORED):
        channel.basic_publish("", queue, str(number).encode().ljust(BODY_BYTES, b"."))
    channel.connection.close()


def drain_queue(cluster: Cluster, name: str, queue: str) -> list[int]:
    """Take everything out of a queue, through one node."""
    channel = cluster.connect(name).channel()
    channel.basic_qos(prefetch_count=300)
    found: list[int] = []
    for method, _, body in channel.consume(queue, inactivity_timeout=30):
        if method is None:
            break
        found.append(int(body.rstrip(b".")))
        channel.basic_ack(method.delivery_tag)
        if len(found) == STORED:
            break
    channel.cancel()
    channel.connection.close()
    return found


def more(publisher: Publisher) -> None:
    """Wait until so many more messages are confirmed."""
    wanted = len(publisher.confirmed) + CONFIRMED
    assert publisher.wait_confirmed(wanted, WAIT_SECONDS), publisher.failure


def test_cluster_grows_and_shrinks_under_load_and_nothing_confirmed_is_lost(three: Cluster) -> None:
    cluster = three
    fill(cluster, "single")
    declaring = cluster.connect("n1")
    declaring.channel().queue_declare("busy", durable=True, arguments=QUORUM)
    cluster.close_connections()
    ports = cluster.ports
    with (
        Publisher(ports, "busy", 10**9, BODY_BYTES) as publisher,
        Consumer(ports, "busy") as consumer,
    ):
        more(publisher)
        join_and_move(cluster, publisher)
        drain_and_revive(cluster, publisher)
        kill_in_mid_move(cluster, publisher)
        leave_again(cluster, publisher)
        publisher.halt()
        publisher.join(WAIT_SECONDS)
        missing = consumer.wait_all(publisher.confirmed, WAIT_SECONDS)
    assert publisher.failure is None
    assert consumer.failure is None
    assert not missing, f"{len(missing)} confirmed messages did not arrive"
    first_times = [number for number, redelivered in consumer.seen if not redelivered]
    assert len(first_times) == len(set(first_times)), "one came twice without being flagged"
    assert drain_queue(cluster, "n2", "single") == list(range(STORED))


def join_and_move(cluster: Cluster, publisher: Publisher) -> None:
    """A fourth node joins, gets replicas, and takes over what n1 had alone."""
    cluster.local.add()
    wait_ready(cluster, "n4")
    assert node_row(cluster, "n4")["running"]
    command(cluster, "queue", "grow", "n4", "--queue-pattern", "^busy$")
    wait_settled(cluster, "busy", "n1", "n2", "n3", "n4")
    command(cluster, "queue", "members", "add", "single", "n4")
    wait_settled(cluster, "single", "n1", "n4")
    command(cluster, "queue", "transfer", "single", "n4")
    command(cluster, "queue", "members", "remove", "single", "n1")
    wait_settled(cluster, "single", "n4")
    more(publisher)
    refused = command(cluster, "node", "forget", "n4", code=1)
    assert "drain it first, or stop it" in refused


def drain_and_revive(cluster: Cluster, publisher: Publisher) -> None:
    """Drain n3 (leaderships move, clients leave, new ones are refused), and revive it."""
    command(cluster, "queue", "transfer", "busy", "n3")
    client = cluster.connect("n3")
    client.channel().queue_declare("streamed", durable=True, arguments=QUORUM)
    ways = [cluster.node(name).grpc for name in ("n3", "n1")]
    with blocking.Client.connect(ways) as calls, calls.publisher(routing_key="streamed") as stream:
        stream.publish(b"through n3").wait()
        command(cluster, "node", "drain", "n3")
        row = node_row(cluster, "n3")
        assert (row["leaders"], row["connections"], row["drained"]) == (0, 0, True)
        stream.publish(b"through n1").wait()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="n3 is taken out") as told:
        client.sleep(30)
    assert told.value.reply_code == 320
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        cluster.connect("n3")
    assert "is being drained" in reason(cluster, "n3")
    assert cluster.leader("busy") != "n3"
    more(publisher)
    command(cluster, "node", "revive", "n3")
    wait_ready(cluster, "n3")
    cluster.connect("n3").close()
    balance = json.loads(command(cluster, "queue", "rebalance", "-o", "json"))
    assert balance["failed"] == 0
    more(publisher)


def kill_in_mid_move(cluster: Cluster, publisher: Publisher) -> None:
    """The leader, and the node that a replica goes to, die while replicas are on their way."""
    command(cluster, "queue", "members", "remove", "busy", "n3")
    wait_settled(cluster, "busy", "n1", "n2", "n4")
    command(cluster, "queue", "transfer", "busy", "n1")
    assert members(cluster, "busy")["leader"] == "n1"
    assert ask(cluster, "/api/queues/%2F/busy/members/n3", "PUT").status == 204
    cluster.kill("n1")
    more(publisher)
    cluster.start()
    wait_settled(cluster, "busy", "n1", "n2", "n3", "n4")
    answer = cluster.node("n2").api.request("DELETE", "/api/queues/%2F/busy/members/n4", seconds=30)
    assert answer.status == 204
    cluster.kill("n4")
    wait_settled(cluster, "busy", "n1", "n2", "n3")
    cluster.start()
    more(publisher)


def leave_again(cluster: Cluster, publisher: Publisher) -> None:
    """The fourth node's replicas move off, it is forgotten, and comes back in vain."""
    wait_settled(cluster, "single", "n4")
    command(cluster, "node", "drain", "n4")
    command(cluster, "node", "forget", "n4", "--replicas", "move")
    assert node_row(cluster, "n4") == {}
    assert len(members(cluster, "single")["members"]) == 1
    more(publisher)
    wait_for("n4 to notice", lambda: "removed" in reason(cluster, "n4"), WAIT_SECONDS)
    cluster.kill("n4")
    cluster.local.start()
    wait_for(
        "n4 to be refused",
        lambda: "was removed from cluster 'local'" in reason(cluster, "n4"),
        WAIT_SECONDS,
    )
    assert node_row(cluster, "n4") == {}
    cluster.kill("n4")


def test_dead_node_is_forgotten_and_a_new_one_takes_its_place(three: Cluster) -> None:
    cluster = three
    channel = cluster.connect("n1").channel()
    for queue in ("a", "b", "c"):
        channel.queue_declare(queue, durable=True, arguments=QUORUM)
        channel.confirm_delivery()
        for number in range(200):
            channel.basic_publish("", queue, b"%d" % number)
    cluster.close_connections()
    cluster.kill("n3")
    wait_for("n3 to be down", lambda: not node_row(cluster, "n3")["running"])
    refused = command(cluster, "node", "forget", "n3", code=1)
    assert "has replicas of 3 queues" in refused
    command(cluster, "node", "forget", "n3", "--replicas", "shrink")
    assert [row["name"] for row in nodes(cluster)] == ["n1", "n2"]
    shutil.rmtree(cluster.node("n3").directory / "store")
    cluster.start()  # with another disk
    wait_for("n3 to be back", lambda: node_row(cluster, "n3").get("running"), WAIT_SECONDS)
    command(cluster, "queue", "grow", "n3")
    for queue in ("a", "b", "c"):
        wait_settled(cluster, queue, "n1", "n2", "n3")
    wait_for("n3 to vote on the catalog", lambda: "voter" in catalog_roles(cluster, "n3"))
    stop_gracefully(cluster)
    cluster.kill("n1")  # two of three are enough, and one of these is the new one
    reading = cluster.connect("n2").channel()
    for queue in ("a", "b", "c"):
        assert reading.queue_declare(queue, passive=True).method.message_count == 200
    cluster.start()


def test_node_that_did_not_hear_that_it_was_forgotten_gets_to_know_and_serves_nobody(
    three: Cluster,
) -> None:
    cluster = three
    client = cluster.connect("n3", heartbeat=0)
    with cluster.stopped("n3"):
        wait_for("n3 to be down", lambda: not node_row(cluster, "n3")["running"], WAIT_SECONDS)
        command(cluster, "node", "forget", "n3", "--replicas", "shrink")
    wait_for("n3 to notice", lambda: "was removed" in reason(cluster, "n3"), WAIT_SECONDS)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as told:
        client.sleep(WAIT_SECONDS)
    assert told.value.reply_code == 320
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        cluster.connect("n3")
    cluster.kill("n3")


def nodes(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the nodes of the cluster."""
    return list(ask(cluster, "/api/cluster/nodes").body)


def catalog_roles(cluster: Cluster, name: str) -> list[str]:
    """Return what a node is in the catalog's log."""
    rows = [row for row in ask(cluster, "/api/nodes").body if row["name"] == name]
    return [member["role"] for member in rows[0]["catalog"]]


def stop_gracefully(cluster: Cluster) -> None:
    """A node that stops gracefully leads nothing when it does."""
    for queue in ("a", "b", "c"):
        command(cluster, "queue", "transfer", queue, "n1")
    os.kill(cluster.pid("n1"), signal.SIGTERM)
    wait_for("n1 to stop", lambda: cluster.node("n1").process() is None)
    assert "no other node could take the leadership" not in cluster.log("n1")
    leaders = {members(cluster, queue)["leader"] for queue in ("a", "b", "c")}
    assert leaders <= {"n2", "n3"}
    cluster.start()
    assert "node n1 stopped" in cluster.log("n1")
