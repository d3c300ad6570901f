"""A disk that gives nothing back for a while: who does not need it goes on."""

from __future__ import annotations

import base64
import os
import re
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pika
import pytest
from e2e.chaos.disk import READS, SlowDisk
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.lease_driver import LeaseDriver

BODY = os.urandom(64 << 10)
MESSAGES = 100  # more than the cache that the nodes are told to have
HUNG_MS = 3_600_000
HEALTHY = 50  # messages through the healthy queue; a get that hangs is refused after 30 s
SLOW_MS = 20  # each read of a worn disk
TTL_MS = 600_000
LOG_IN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
GRAVES = {"once": "grave-once", "kept": "grave-kept"}
WORKED = ("leased", "filtered", "got", "browsed")
EU = pika.BasicProperties(headers={"region": "eu"}, delivery_mode=2)
MORTAL = pika.BasicProperties(expiration="5000", delivery_mode=2)  # by then not in memory


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    """The disk of all nodes that start from now on, which keep little of the log in memory."""
    disk = SlowDisk(tmp_path / "slow", READS)
    for name, value in disk.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HEADRACE_LOG_CACHE_BYTES", str(1 << 20))
    return disk


def test_reads_that_hang_keep_nobody_waiting_who_needs_none(
    disk: SlowDisk, cluster: Cluster
) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", cluster.ports[0], heartbeat=0)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    for queue in ("deep", "healthy"):
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    channel.confirm_delivery()
    for _ in range(MESSAGES):
        channel.basic_publish("", "deep", BODY)
    disk.set_delay(HUNG_MS)
    drained: list[bytes] = []
    channel.basic_qos(prefetch_count=10)
    channel.basic_consume("deep", lambda ch, method, _, body: drained.append(body), auto_ack=True)
    connection.process_data_events(0.1)
    for number in range(200):
        channel.basic_publish("", "healthy", b"%d" % number)
    assert channel.queue_declare("healthy", passive=True).method.message_count == 200
    assert len(drained) < MESSAGES
    disk.set_delay(0)

    def all_drained() -> bool:
        connection.process_data_events(0.1)
        return len(drained) == MESSAGES

    wait_for("the deep queue to drain", all_drained)
    assert set(drained) == {BODY}
    connection.close()


def dead_letters(grave: str, strategy: str) -> dict[str, str]:
    return {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": grave,
        "x-dead-letter-strategy": strategy,
        "x-overflow": "reject-publish",
    }


ARGUMENTS = {
    "once": dead_letters("grave-once", "at-most-once"),
    "kept": dead_letters("grave-kept", "at-least-once"),
}


class Work:
    """Clients that read deep queues from disk, each in its own way."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.connection = cluster.connect("n1", heartbeat=0)
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        for queue in ("healthy", *GRAVES.values(), *GRAVES, *WORKED):
            arguments = {"x-queue-type": "quorum", **ARGUMENTS.get(queue, {})}
            self.channel.queue_declare(queue, durable=True, arguments=arguments)
        for queue in WORKED:
            for _ in range(MESSAGES):
                self.channel.basic_publish("", queue, BODY, EU)

    def count(self, queue: str) -> int:
        """Number of messages that wait in a queue."""
        declared = self.channel.queue_declare(queue, passive=True)
        return int(declared.method.message_count)

    def blocking_reads(self) -> list[int]:
        """Return the number of reads for which each node's event loop has waited."""
        found = []
        for node in self.cluster.local.nodes:
            request = urllib.request.Request(f"http://{node.http}/metrics", headers=LOG_IN)
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read().decode()
            [value] = re.findall(r"^headrace_log_blocking_reads_total ([0-9.]+)$", text, re.M)
            found.append(int(float(value)))
        return found

    def begin(self, pool: ThreadPoolExecutor) -> list[Future[list[bytes]]]:
        """Let the messages of some queues die, and read the others at the same time."""
        for queue in GRAVES:
            for _ in range(MESSAGES):
                self.channel.basic_publish("", queue, BODY, MORTAL)
        jobs: list[Callable[[], list[bytes]]] = [self.lease, self.filter, self.get, self.browse]
        return [pool.submit(job) for job in jobs]

    def lease(self) -> list[bytes]:
        with LeaseDriver([self.cluster.node("n2").grpc], "leased") as driver:
            driver.open("here", TTL_MS)
            driver.lease(1, MESSAGES, TTL_MS)
            return driver.fetch(1)

    def filter(self) -> list[bytes]:
        bodies: list[bytes] = []
        connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self.cluster.port("n1"), heartbeat=0)
        )
        channel = connection.channel()
        channel.basic_consume(
            "filtered",
            lambda _channel, _method, _properties, body: bodies.append(body),
            auto_ack=True,
            arguments={"x-filter": "region = 'eu'"},
        )
        while len(bodies) < MESSAGES:
            connection.process_data_events(0.1)
        connection.close()
        return bodies

    def get(self) -> list[bytes]:
        connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self.cluster.port("n3"), heartbeat=0)
        )
        channel = connection.channel()
        bodies: list[bytes] = []
        while len(bodies) < MESSAGES:
            _, _, body = channel.basic_get("got", auto_ack=True)
            if body is not None:
                bodies.append(body)
        connection.close()
        return bodies

    def browse(self) -> list[bytes]:
        bodies: list[bytes] = []
        after: int | None = 0
        while after is not None:
            path = f"/api/queues/%2F/browsed/messages?after={after}&encoding=base64&truncate=9"
            status, page = self.cluster.node("n2").api.get(path)
            if status != 200:  # it says that the disk does not give them back
                continue
            bodies += [message["payload"] for message in page["messages"]]
            after = page["next_after"]
        return bodies

    def check(self, futures: list[Future[list[bytes]]]) -> None:
        """Compare the read rows with the existing ones."""
        leased, filtered, got, browsed = [future.result() for future in futures]
        for found in (leased, filtered, got):
            assert len(found) == MESSAGES
            assert set(found) == {BODY}
        assert len(browsed) == MESSAGES
        wait_for(
            "all letters", lambda: all(self.count(grave) == MESSAGES for grave in GRAVES.values())
        )


@pytest.fixture
def work(disk: SlowDisk, cluster: Cluster) -> Work:
    return Work(cluster)


@pytest.mark.parametrize("delay_ms", [SLOW_MS, HUNG_MS], ids=["slow", "hung"])
def test_whatever_reads_from_disk_keeps_nobody_waiting_who_does_not(
    disk: SlowDisk, work: Work, delay_ms: int
) -> None:
    before = work.blocking_reads()
    disk.set_delay(delay_ms)
    with ThreadPoolExecutor() as pool:
        futures = work.begin(pool)
        try:
            for number in range(HEALTHY):
                work.channel.basic_publish("", "healthy", b"%d" % number)
            bodies = [work.channel.basic_get("healthy", auto_ack=True)[2] for _ in range(HEALTHY)]
            assert bodies == [b"%d" % number for number in range(HEALTHY)]
            if delay_ms == HUNG_MS:
                assert not any(future.done() for future in futures)
                assert all(work.count(grave) < MESSAGES for grave in GRAVES.values())
                disk.set_delay(0)
            work.check(futures)
        finally:
            disk.set_delay(0)
    assert work.blocking_reads() == before
