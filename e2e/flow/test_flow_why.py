"""`headrace flow why` on a real cluster: a slow queue, two publishers on two other nodes."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable
from typing import Any, Final

import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.command import run_command
from e2e.harness.publisher import Publisher

# As `headrace` would, installed or not.
COMMAND = [sys.executable, "-P", "-m", "headrace_broker.cli", "flow"]
NODES: Final = ("n1", "n2", "n3")
ENDLESS: Final = 1 << 30  # messages; until it is told to stop

Flow = Callable[..., Any]


@pytest.fixture
def flow(shared_cluster: Cluster) -> Flow:
    """Runs `headrace flow` against a node, and returns its output."""

    def run(*arguments: str, node: str = "n1", code: int = 0) -> str:
        return run_command(shared_cluster, [*COMMAND, *arguments], node, code)

    return run


def other_nodes(cluster: Cluster, queue: str) -> tuple[str, str, str]:
    """The node that leads a queue, and the other two."""
    leader = cluster.leader(queue)
    first, second = [node for node in NODES if node != leader]
    return leader, first, second


def _are_listed(flow: Flow, *names: str) -> bool:
    listing = flow("top", "--once")
    return all(name in listing for name in names)


def test_the_culprit_of_a_saturated_queue_is_named_from_every_node(
    shared_cluster: Cluster, queue_name: Callable[[str], str], flow: Flow
) -> None:
    cluster, queue = shared_cluster, queue_name("orders")
    arguments = {"x-high-watermark": 50, "x-low-watermark": 10}
    channel = cluster.connect("n1").channel()
    channel.queue_declare(queue, durable=True, arguments=arguments)
    leader, first, second = other_nodes(cluster, queue)
    victim, culprit = queue_name("victim"), queue_name("culprit")
    with (
        Publisher([cluster.port(first)], queue, ENDLESS, 100, 5, victim) as small,
        Publisher([cluster.port(second)], queue, ENDLESS, 1000, 400, culprit) as large,
    ):

        def explained() -> Any:
            found = json.loads(flow("why", victim, "-o", "json"))
            return found if found["stopped"]["last_10s"] > 0.3 and found["causes"] else None

        wait_for("both to be connected", lambda: _are_listed(flow, victim, culprit))
        wait_for("the victim to be stopped", explained)
        for node in NODES:
            found = json.loads(flow("why", victim, "-o", "json", node=node))
            assert (found["kind"], found["state"]) == ("connection", "flow")
            assert (found["limit"], found["queue"], found["leader"]) == ("watermark", queue, leader)
            assert found["node"] == first
            top, *others = found["causes"]
            assert (top["node"], top["queue"]) == (second, queue)
            assert top["share"] > 0.5 > max(cause["share"] for cause in others)
            assert found["missing"] == []
            text = flow("why", victim, node=node)
            assert f"by queue '{queue}' (leader {leader})" in text
            assert "it has no consumers" in text
            assert f"add consumers to '{queue}'" in text
            assert f"queue '{queue}'" in flow("why", queue, node=node)
        table = flow("top", "--once")
        [row] = [line for line in table.splitlines() if victim in line]
        assert "watermark" in row
        listed = cluster.node(second).api.get("/api/connections")[1]
        [row] = [row for row in listed if row["node"] == first and row["flow"]["limit"]]
        assert (row["state"], row["flow"]["queue"]) == ("flow", queue)
        for publisher in (small, large):
            publisher.halt()
        cluster.connect("n1").channel().queue_delete(queue)  # which lets their confirms go


def test_who_filled_a_queue_is_named_when_it_has_left(
    shared_cluster: Cluster, queue_name: Callable[[str], str], flow: Flow
) -> None:
    """One that closed its connection at once, within a second, and on another node."""
    cluster, queue = shared_cluster, queue_name("hot")
    arguments = {"x-high-watermark": 50, "x-low-watermark": 10}
    channel = cluster.connect("n1").channel()
    channel.queue_declare(queue, durable=True, arguments=arguments)
    _, first, second = other_nodes(cluster, queue)
    victim, culprit = queue_name("victim"), queue_name("culprit")
    connection = cluster.connect(second, client_properties={"connection_name": culprit})
    filling = connection.channel()
    for _ in range(500):
        filling.basic_publish("", queue, bytes(1000))
    connection.close()
    wait_for(
        "all of it to stand there", lambda: (cluster.queue(queue) or {}).get("messages") == 500
    )
    with Publisher([cluster.port(first)], queue, ENDLESS, 100, 1, victim) as small:

        def explained() -> Any:
            found = json.loads(flow("why", victim, "-o", "json"))
            rows = [cause["queued_messages"] for cause in found["causes"]]
            return found if found["limit"] == "watermark" and rows == [500, 1] else None

        wait_for("the victim to be connected", lambda: _are_listed(flow, victim))
        wait_for("the victim to be stopped", explained)
        for node in NODES:
            found = json.loads(flow("why", victim, "-o", "json", node=node))
            top, own = found["causes"]
            assert (top["user_provided_name"], top["gone"], top["node"]) == (culprit, True, second)
            assert (own["user_provided_name"], own["gone"], own["node"]) == (victim, False, first)
            assert top["share"] + own["share"] == pytest.approx(1, abs=0.001)
            for name in (victim, queue):
                text = " ".join(flow("why", name, node=node).split())
                assert "; 500 of its 501 messages (" in text
                assert f" were brought by {culprit} (" in text
                assert ", which is gone and brought the last of them " in text
        small.halt()
        cluster.connect("n1").channel().queue_delete(queue)


def test_names_that_are_nowhere_or_ambiguous_are_errors(
    shared_cluster: Cluster,
    queue_name: Callable[[str], str],
    flow: Flow,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = shared_cluster.connect("n1").channel()
    for name in (queue_name("a1"), queue_name("a2")):
        channel.queue_declare(name, durable=True)
    error = flow("why", queue_name("gone"), code=3)
    assert "no connection, and no queue in vhost '/', has a name that begins with" in error
    error = flow("why", queue_name("a"), code=1)
    assert f"queue '{queue_name('a1')}', queue '{queue_name('a2')}'" in error
    assert "holds nobody back" in flow("why", queue_name("a1"))
    monkeypatch.setenv("HEADRACE_API_PASSWORD", "wrong")
    assert "log in with a user" in flow("top", "--once", code=4)


def test_metrics_are_scraped_from_every_node(shared_cluster: Cluster) -> None:
    for node in NODES:
        manager = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        url = f"http://{shared_cluster.node(node).http}/metrics"
        manager.add_password(None, url, "guest", "guest")
        opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager))
        with opener.open(url, timeout=60) as answer:
            text = answer.read().decode()
        assert 'headrace_flow_connections{state="running"}' in text
        assert 'headrace_flow_alarm{kind="memory-alarm"} 0.0' in text
