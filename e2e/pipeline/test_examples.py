"""The examples of the pipeline, each as a process of its own, on one node."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.publisher import Publisher

from headrace_client.blocking import Client

EXAMPLES = Path(__file__).resolve().parents[2] / "pipeline" / "examples"
SECONDS = 300  # Spark takes ten to start, and thirty where others work
ENDLESS = 1 << 30
LINES_MAX = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("examples") / "data"
    with Cluster(data, count=1) as started:
        yield started
        started.close_connections()


def endpoints(cluster: Cluster) -> str:
    return ",".join(node.grpc for node in cluster.local.nodes)


def example(cluster: Cluster, name: str, *arguments: str) -> str:
    """Return the output of an example."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    environment = {**os.environ, "HEADRACE_ENDPOINTS": endpoints(cluster)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def declare(client: Client, queue: str, **arguments: str | int) -> None:
    more = {name.replace("_", "-"): value for name, value in arguments.items()}
    client.topology.declare_queue(queue, arguments={"x-queue-type": "quorum", **more})


def fill(client: Client, queue: str, count: int) -> None:
    with client.publisher(routing_key=queue) as publisher:
        publisher.publish_many(b"message %d" % number for number in range(count))


def messages(cluster: Cluster, queue: str) -> int:
    entry = cluster.queue(queue)
    assert entry is not None
    return int(entry["messages"])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_each_fits_a_notebook(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


@pytest.mark.full
def test_a_look_at_a_queue_takes_nothing_out_of_it(cluster: Cluster) -> None:
    with Client.connect(endpoints(cluster)) as client:
        declare(client, "looked-at")
        fill(client, "looked-at", 30)
    assert re.match(
        r"30 of looked-at \(unknown\), 290 bytes, ", example(cluster, "read_queue", "looked-at")
    )
    assert messages(cluster, "looked-at") == 30


@pytest.mark.full
def test_a_queue_is_moved_into_a_table_once(cluster: Cluster, tmp_path: Path) -> None:
    with Client.connect(endpoints(cluster)) as client:
        declare(client, "moved")
        fill(client, "moved", 500)
    said = example(cluster, "queue_to_delta", "moved", str(tmp_path)).splitlines()
    assert said[-1] == f"500 messages in {tmp_path / 'messages'}"
    wait_for("the last batch to be settled", lambda: messages(cluster, "moved") == 0)


@pytest.mark.full
def test_outcomes_are_counted_from_an_archive(cluster: Cluster) -> None:
    with Client.connect(endpoints(cluster)) as client:
        declare(client, "kept", x_archive="headers")
        fill(client, "kept", 40)
        with client.consumer("kept", until_empty=True) as consumer:
            for number, delivery in enumerate(consumer):
                delivery.reject() if number < 10 else delivery.accept()
    said = example(cluster, "archive_outcomes", "kept")
    assert re.search(r"^30 acked, half of them within \d+ ms, ", said, re.MULTILINE)
    assert re.search(r"^10 rejected", said, re.MULTILINE)


@pytest.mark.full
def test_a_frame_is_published_once_however_often(cluster: Cluster) -> None:
    with Client.connect(endpoints(cluster)) as client:
        client.topology.declare_exchange("shop", "topic")
        declare(client, "orders")
        client.topology.bind("shop", queue="orders", routing_key="order.#")
    for _ in range(2):
        assert example(cluster, "publish_frame", "shop") == "1000 messages are confirmed by shop\n"
    assert messages(cluster, "orders") == 1000


def is_held(cluster: Cluster) -> bool:
    """Return whether a publisher was stopped for seconds, so that telemetry has recorded it."""
    status, connections = cluster.node("n1").api.get("/api/flow/connections")
    assert status == 200, connections
    return any(each["flow"]["stopped"]["last_10s"] > 0.3 for each in connections)


@pytest.mark.full
def test_who_makes_others_wait_is_blamed_and_reported(cluster: Cluster, tmp_path: Path) -> None:
    with Client.connect(endpoints(cluster)) as client:
        declare(client, "full", x_high_watermark=50, x_low_watermark=10)
    out = tmp_path / "last-hour.html"
    with Publisher(cluster.ports, "full", ENDLESS, 100, 50, "flooder") as flooder:
        wait_for("the publisher to be held", lambda: is_held(cluster))
        blamed = example(cluster, "blamed_yesterday", "1")
        said = example(cluster, "last_hour", str(out))
        flooder.halt()
        cluster.connect().channel().queue_delete("full")  # which lets its confirms go
    waited = r"127\.0\.0\.1:\d+ -> \S+ \(user guest\): [\d.]+ s of waiting at full\n"
    assert re.match(waited, blamed)
    assert "full: " in said
    page = html.unescape(re.sub("<[^>]*>", "", out.read_text(encoding="utf-8")))
    assert "full blocked publishers for " in page
    assert re.search(r"127\.0\.0\.1:\d+ -> \S+ is blamed for ", page)
