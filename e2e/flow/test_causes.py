"""Work is charged to its cause, wherever in the cluster it waits."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.publisher import Publisher
from pika.adapters.blocking_connection import BlockingChannel

WAIT_SECONDS = 300.0
PREFETCH = 1000
NAME = "rejecter"


ANSWER_SECONDS = 15.0  # a node waits for others that were killed, until it knows that they were


def row(cluster: Cluster) -> dict[str, Any]:
    """The rejecting connection as its node lists it."""
    api = cluster.node("n1").api
    answer = api.request("GET", "/api/flow/connections?count=500", seconds=ANSWER_SECONDS)
    assert answer.status == 200, answer.body
    [found] = [each for each in answer.body if each["user_provided_name"] == NAME]
    return dict(found)


def causes(cluster: Cluster, node: str, queue: str) -> list[dict[str, Any]]:
    """Return the accounts behind a queue's backlog, asked through any node."""
    path = f"/api/flow/why?queue={quote(queue, safe='')}"
    answer = cluster.node(node).api.request("GET", path, seconds=ANSWER_SECONDS)
    assert answer.status == 200, answer.body
    return [dict(each) for each in answer.body["causes"]]


def leader(cluster: Cluster, node: str, name: str) -> str:
    """Return the leader of a queue, as a node that may lead it knows."""
    return str((cluster.queue(name, node) or {}).get("leader", ""))


def declare_led_by(cluster: Cluster, node: str, name: str, **arguments: Any) -> None:
    """Declare a queue through a node, which then leads it."""
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    cluster.connect(node).channel().queue_declare(name, durable=True, arguments=named)
    wait_for(f"{node} to lead {name}", lambda: leader(cluster, node, name) == node)


def reject_all(channel: BlockingChannel, queue: str, count: int) -> None:
    """Reject messages in runs as they come."""
    channel.basic_qos(prefetch_count=PREFETCH)
    for seen, (method, _, _) in enumerate(channel.consume(queue), 1):
        if seen % (PREFETCH // 2) == 0 or seen == count:
            channel.basic_nack(method.delivery_tag, multiple=True, requeue=False)
        if seen == count:
            break
    channel.cancel()


@pytest.mark.parametrize("count", [4_000, pytest.param(20_000, marks=pytest.mark.full)])
def test_who_rejects_owes_for_the_letters_that_wait_on_another_node(
    cluster: Cluster, count: int
) -> None:
    """A consumer on n1 rejects what n2 leads, into a queue that only n3 has and that is down."""
    declare_led_by(cluster, "n3", "dead", queue_type="classic")
    declare_led_by(cluster, "n2", "work", dead_letter_exchange="", dead_letter_routing_key="dead")
    declare_led_by(cluster, "n1", "aside")
    with Publisher([cluster.port("n2")], "work", count, 10) as publisher:
        assert publisher.wait_confirmed(count, WAIT_SECONDS), publisher.failure
    cluster.kill("n3")
    connection = cluster.connect("n1", client_properties={"connection_name": NAME})
    channel = connection.channel()
    reject_all(channel, "work", count)
    wait_for("the debt to show", lambda: row(cluster)["owed_messages"] == count, WAIT_SECONDS)

    # Its publishes stop, and whoever asks any node is told why. Its settles went on.
    channel.basic_publish("", "aside", b"held")
    wait_for("the publish to be held", lambda: row(cluster)["buffered_messages"] == 1)
    assert row(cluster)["flow"]["limit"] == "account"
    wanted = [("n1", count, "connection")]
    wait_for(
        "both nodes to know the cause",
        lambda: all(blamed(cluster, node) == wanted for node in ("n1", "n2")),
    )
    assert other_publishes(cluster)

    cluster.start()
    wait_for("the debt to be repaid", lambda: row(cluster)["owed_messages"] == 0, WAIT_SECONDS)
    method = wait_for("the held publish", lambda: channel.basic_get("aside", auto_ack=True)[0])
    assert method.routing_key == "aside"
    wait_for("all letters", lambda: (cluster.queue("dead", "n3") or {}).get("messages") == count)
    assert row(cluster)["state"] in ("running", "flow")


def blamed(cluster: Cluster, node: str) -> list[tuple[str, int, str]]:
    """Node, messages and kind of the accounts that a node blames for the backlog of "dead"."""
    rows = causes(cluster, node, "dead")
    return [(row["node"], row["messages"], row["kind"]) for row in rows]


def other_publishes(cluster: Cluster) -> bool:
    """Return whether another connection of the same node publishes undisturbed."""
    channel = cluster.connect("n1").channel()
    channel.confirm_delivery()
    channel.basic_publish("", "aside", b"free")
    return bool(channel.basic_get("aside", auto_ack=True)[2] == b"free")


def test_debt_goes_with_the_node_on_which_the_work_waits(cluster: Cluster) -> None:
    declare_led_by(cluster, "n3", "dead", queue_type="classic")
    declare_led_by(cluster, "n2", "work", dead_letter_exchange="", dead_letter_routing_key="dead")
    with Publisher([cluster.port("n2")], "work", 500, 10) as publisher:
        assert publisher.wait_confirmed(500, WAIT_SECONDS), publisher.failure
    cluster.kill("n3")
    connection = cluster.connect("n1", client_properties={"connection_name": NAME})
    reject_all(connection.channel(), "work", 500)
    wait_for("the debt to show", lambda: row(cluster)["owed_messages"] == 500)
    cluster.kill("n2")
    wait_for("the debt to go", lambda: row(cluster)["owed_messages"] == 0)
    assert connection.is_open
    cluster.start()
