"""Memory alarms: publishers of the whole cluster are told and stop, and consumers go on."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.consumer import Consumer
from e2e.harness.publisher import Publisher

LIMIT = "/api/flow/limits/memory-high-watermark"
NODES = ("n1", "n2", "n3")


class Watcher:
    """A connection that has published once, and its notifications of being blocked."""

    def __init__(self, port: int) -> None:
        self.told: list[str] = []
        self._port = port
        self._halt = threading.Event()
        self._open = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watcher:
        self._thread.start()
        assert self._open.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._halt.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _watch(self) -> None:
        connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self._port, heartbeat=30)
        )
        connection.add_on_connection_blocked_callback(
            lambda _, frame: self.told.append(str(frame.method.reason))
        )
        connection.add_on_connection_unblocked_callback(lambda *_: self.told.append(""))
        connection.channel().basic_publish("", "nowhere", b"")  # only publishers are told
        self._open.set()
        while not self._halt.is_set():
            connection.process_data_events(0.1)
        connection.close()


@pytest.fixture
def watchers(cluster: Cluster) -> Iterator[list[Watcher]]:
    """A connection on each node."""
    found = [Watcher(port) for port in cluster.ports]
    for watcher in found:
        watcher.__enter__()
    yield found
    for watcher in found:
        watcher.__exit__()


def ask(cluster: Cluster, method: str, path: str, body: Any = None, name: str = "n1") -> Any:
    answer = cluster.node(name).api.request(method, path, body, seconds=30)
    return answer.status, answer.body


def alarms(cluster: Cluster, name: str) -> list[tuple[str, str]]:
    """Nodes and resources of the alarms that a node knows of."""
    _, body = ask(cluster, "GET", "/api/health/checks/alarms", name=name)
    return sorted((each["node"], each["resource"]) for each in body.get("alarms", []))


def set_watermark(cluster: Cluster, value: float | None, name: str = "n1") -> None:
    """Set the memory watermark of the cluster, or with None take it back."""
    if value is None:
        assert ask(cluster, "DELETE", LIMIT, name=name)[0] == 204
    else:
        assert ask(cluster, "PUT", LIMIT, {"value": value}, name)[0] == 204


def test_the_alarm_of_a_node_that_is_killed_ends_by_itself(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.kill("n2")
    monkeypatch.setenv("HEADRACE_LIMITS_DISK_FREE_BYTES_MIN", str(1 << 50))  # no disk has that
    cluster.start()
    with Watcher(cluster.port("n1")) as watcher:
        wait_for("the alarm of n2", lambda: watcher.told)
        assert re.match("low on disk: node n2 has [0-9]+ MiB free", watcher.told[0])
        channel = cluster.connect("n3").channel()
        channel.queue_declare("work", durable=True)
        channel.basic_publish("", "work", b"held until then")
        cluster.kill("n2")
        wait_for("the alarm to end", lambda: not watcher.told[-1])
        wait_for("the message", lambda: channel.basic_get("work", auto_ack=True)[2])
        assert "node n2 has not reported for" in cluster.log("n1")
        status = ask(cluster, "GET", "/api/health/checks/alarms", name="n3")[0]
        assert status == 200
        cluster.start()
        wait_for("the alarm of n2 again", lambda: watcher.told[-1])
    assert len(watcher.told) == 3


def test_a_watermark_survives_a_restart_of_all_nodes(cluster: Cluster) -> None:
    assert ask(cluster, "PUT", "/api/flow/limits/queue-commands", {"value": 7})[0] == 204
    set_watermark(cluster, 0.9)
    cluster.kill(*NODES)
    cluster.start()
    for name in NODES:
        assert limit_of(cluster, "queue-commands", name)["value"] == 7
        assert limit_of(cluster, "memory-high-watermark", name)["value"] == 0.9


def limit_of(cluster: Cluster, limit: str, name: str) -> Any:
    return ask(cluster, "GET", f"/api/flow/limits/{limit}", name=name)[1]


def test_an_alarm_stops_publishers_of_all_nodes_and_no_consumer(
    cluster: Cluster, watchers: list[Watcher]
) -> None:
    cluster.connect("n1").channel().queue_declare("work", durable=True)
    with Publisher([cluster.port("n2")], "work", 1 << 60, 100) as publisher:
        wait_for("confirms", lambda: len(publisher.confirmed) > 500)
        set_watermark(cluster, 1e-9)
        wait_for("all to be told", lambda: all(watcher.told for watcher in watchers))
        for watcher in watchers:
            assert watcher.told[0].startswith("low on memory: node n")
        wait_for("three alarms", lambda: alarms(cluster, "n3") == [(n, "memory") for n in NODES])
        assert ask(cluster, "GET", "/api/health/checks/local-alarms", name="n2")[0] == 503
        with Consumer([cluster.port("n3")], "work") as consumer:
            assert not consumer.wait_all(set(publisher.confirmed), 60)
            drained = len(consumer.seen)
            stopped = len(publisher.confirmed)
            set_watermark(cluster, None, "n3")
            wait_for("all to go on", lambda: all(not watcher.told[-1] for watcher in watchers))
            wait_for("publishes to go on", lambda: len(publisher.confirmed) > stopped + 500)
            wait_for("consuming to go on", lambda: len(consumer.seen) > drained + 500)
        assert publisher.reconnects == 0
        assert publisher.failure is None
    assert ask(cluster, "GET", "/api/health/checks/alarms", name="n2")[0] == 200
    for watcher in watchers:
        assert len(watcher.told) == 2, "told once, and once that it is over"
