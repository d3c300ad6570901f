"""The logs of three nodes tell who was elected, in which term, and what became of the others."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from e2e.harness.cluster import Cluster, wait_for

from headrace_broker.cli.session.api_client import ApiError

QUORUM: Final = {"x-queue-type": "quorum"}
NODES: Final = ("n1", "n2", "n3")
CATALOG: Final = 0
WAIT_SECONDS: Final = 120.0


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster whose nodes write JSON."""
    monkeypatch.setenv("HEADRACE_LOGGING_FORMAT", "json")
    with Cluster(tmp_path / "data") as cluster:
        yield cluster
        cluster.close_connections()


def lines(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """Return the lines of a node that are objects, as all are that the node itself writes."""
    written = cluster.log(name).splitlines(keepends=True)
    return [json.loads(line) for line in written if line.startswith("{") and line.endswith("\n")]


def events(cluster: Cluster, name: str, event: str, **fields: object) -> list[dict[str, Any]]:
    """Return a node's lines of an event that have these fields."""
    return [
        line
        for line in lines(cluster, name)
        if line.get("event") == event and fields.items() <= line.items()
    ]


def catalog_leader(cluster: Cluster, asked: str) -> str:
    """Return the leader of the catalog as a node says over HTTP, "" for none."""
    with contextlib.suppress(ApiError):
        status, found = cluster.node(asked).api.get("/api/overview")
        if status == 200:
            return str(found["leader"])
    return ""


def elected(cluster: Cluster, group: int, after: int) -> tuple[str, int]:
    """Return name and term of the last elected node by the logs; ("", 0) before any of a term.

    Args:
        cluster: that writes.
        group: of which.
        after: a term.
    """
    found = [
        (int(line["term"]), name)
        for name in NODES
        for line in events(cluster, name, "leader_elected", group=group)
    ]
    term, name = max(found, default=(0, ""))
    return (name, term) if term > after else ("", 0)


def check_followers(cluster: Cluster, group: int, leader: str, term: int, dead: str) -> None:
    """Wait until the other node that runs follows this leader in this term."""
    node = cluster.node(leader).id
    [other] = [name for name in NODES if name not in (leader, dead)]
    wait_for(
        f"{other} to tell that it follows",
        lambda: events(cluster, other, "leader_followed", group=group, term=term, leader=node),
        WAIT_SECONDS,
    )


def test_elections_after_kills_can_be_followed_from_the_logs(three: Cluster) -> None:
    cluster = three
    before = wait_for("a leader", lambda: catalog_leader(cluster, "n1"), WAIT_SECONDS)
    name, term = elected(cluster, CATALOG, 0)
    assert name == before  # at info, with nothing set
    for each in NODES:
        body = {"level": "debug", "logger": "headrace.raft"}
        assert cluster.node(each).api.request("PUT", "/api/log-level", body).status == 204

    cluster.kill(before)
    asked = next(each for each in NODES if each != before)
    after, newer = wait_for(
        "an election of the catalog",
        lambda: found if (found := elected(cluster, CATALOG, term))[0] else None,
        WAIT_SECONDS,
    )
    wait_for("HTTP to agree", lambda: catalog_leader(cluster, asked) == after, WAIT_SECONDS)
    [line] = events(cluster, after, "leader_elected", group=CATALOG, term=newer)
    assert (line["level"], line["logger"]) == ("info", "headrace.raft")
    assert line["leader"] == line["node"] == cluster.node(after).id
    assert events(cluster, after, "election_started", group=CATALOG, term=newer)
    assert events(cluster, asked, "peer_down", peer=cluster.node(before).id)
    check_followers(cluster, CATALOG, after, newer, before)

    cluster.start()
    for each in NODES:
        body = {"level": "debug", "logger": "headrace.raft"}
        assert cluster.node(each).api.request("PUT", "/api/log-level", body).status == 204
    channel = cluster.connect(after).channel()
    channel.queue_declare("q", durable=True, arguments=QUORUM)
    led = cluster.leader("q")
    told = wait_for(
        "a line of the queue's leader",
        lambda: events(cluster, led, "leader_elected", queue="q", vhost="/"),
        WAIT_SECONDS,
    )
    group, term = int(told[-1]["group"]), int(told[-1]["term"])
    assert elected(cluster, group, 0) == (led, term)
    cluster.close_connections()

    cluster.kill(led)
    successor, newer = wait_for(
        "an election of the queue",
        lambda: found if (found := elected(cluster, group, term))[0] else None,
        WAIT_SECONDS,
    )
    assert cluster.leader("q") == successor
    [line] = events(cluster, successor, "leader_elected", group=group, term=newer)
    assert (line["level"], line["queue"], line["vhost"]) == ("debug", "q", "/")
    check_followers(cluster, group, successor, newer, led)
    cluster.start()
    assert all(events(cluster, each, "listener_opened", protocol="AMQP") for each in NODES)
