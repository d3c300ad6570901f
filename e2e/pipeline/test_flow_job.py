"""The job `flow` beside a real cluster: a publisher that floods, and consumers that are too few."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pika
import pytest
from deltalake import DeltaTable
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.command import run_command
from e2e.harness.consumer import Consumer
from e2e.harness.flooder import Flooder, publish_bytes, pump
from e2e.harness.raw_client import RawClient
from e2e.harness.worker import Worker

from headrace_pipeline.schema.analysis import ANALYSIS, NODE_WINDOWS

pytestmark = pytest.mark.full  # windows are minutes, and advice takes two of them

FLOODED: Final = "orders"
SLOW: Final = "invoices"
FLOOD_SECONDS: Final = 45.0
SERVICE_SECONDS: Final = 0.05  # of a consumer for a message
PATIENCE_SECONDS: Final = 900.0  # Spark starts in 5 s on a machine that has nothing else to do

Row = dict[str, Any]


class PacedPublisher(Worker):
    """Publishes so many small messages a second to a queue."""

    def __init__(self, port: int, queue: str, rate: float) -> None:
        super().__init__(f"publisher to {queue}")
        self._port = port
        self._queue = queue
        self._pause = 1 / rate

    def work(self) -> None:
        """Publish until told to stop."""
        where = pika.ConnectionParameters("127.0.0.1", self._port)
        with contextlib.closing(pika.BlockingConnection(where)) as connection:
            channel = connection.channel()
            while not self._halt.wait(self._pause):
                channel.basic_publish("", self._queue, b"1".ljust(200, b"."))
                connection.process_data_events(0)


class SlowConsumer(Worker):
    """Takes SERVICE_SECONDS for each message."""

    def __init__(self, port: int, queue: str) -> None:
        super().__init__(f"consumer of {queue}")
        self._port = port
        self._queue = queue

    def work(self) -> None:
        """Consume until told to stop."""
        where = pika.ConnectionParameters("127.0.0.1", self._port)
        with contextlib.closing(pika.BlockingConnection(where)) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=4)
            for method, _, _ in channel.consume(self._queue, inactivity_timeout=0.2):
                if self._halt.wait(SERVICE_SECONDS if method else 0):
                    return
                if method:
                    channel.basic_ack(method.delivery_tag)


class Flood(Worker):
    """One client that sends as fast as its socket takes it.

    Attributes:
        port: of its end, by which its account is known.
    """

    def __init__(self, port: int, queue: str) -> None:
        super().__init__("flood")
        self._client = RawClient(port).log_in()
        self._client.open_channel(1)
        self.port = int(self._client.socket.getsockname()[1])
        self._publish = publish_bytes(queue, b"1".ljust(1000, b"."))

    def work(self) -> None:
        """Flood until told to stop."""
        data = self._publish * 2000
        while not self._halt.is_set():
            flooder = Flooder(self._client, data)
            while flooder.left and not self._halt.is_set():
                pump([flooder], 0.5)
        flooder.stop_after(len(self._publish))
        pump([flooder], 60)
        flooder.await_close_ok(60)


class Job:
    """`headrace-pipeline run flow` as a process of its own."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.tables = folder / "tables"
        self.log = folder / "job.log"
        endpoints = ",".join(node.grpc for node in cluster.local.nodes)
        self._command = [sys.executable, "-m", "headrace_pipeline.cli.main", "run", "flow"]
        self._command += ["--endpoints", endpoints, "--tables", str(self.tables), "--every", "5"]
        self._command += ["--checkpoint", str(folder / "checkpoint"), "--starting", "earliest"]
        self._command += ["--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2"]
        self._command += ["--conf", f"spark.local.dir={folder / 'local'}"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; its output is added to `log`."""
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdout=out, stderr=out, start_new_session=True
            )

    def check(self) -> bool:
        """Make sure that it runs."""
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()[-4000:]
        return True

    def kill(self) -> None:
        """SIGKILL it with all that it has started."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """Tell it to stop and return its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(PATIENCE_SECONDS)

    def rows(self, name: str) -> list[Row]:
        """Return the rows of a table."""
        if not (self.tables / name / "_delta_log").exists():
            return []
        return list(DeltaTable(self.tables / name).to_pyarrow_table().to_pylist())

    def made_after(self, at: datetime) -> bool:
        """Return whether windows after a time were made."""
        self.check()
        return any(row["window_start"] >= at for row in self.rows(NODE_WINDOWS.name))


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "data") as started:
        channel = started.connect().channel()
        for name in (FLOODED, SLOW):
            arguments = {"x-queue-type": "quorum", "x-max-length": 20_000}
            channel.queue_declare(name, durable=True, arguments=arguments)
            started.leader(name)
        yield started
        started.close_connections()


@pytest.fixture
def job(nodes: Cluster, tmp_path: Path) -> Iterator[Job]:
    made = Job(nodes, tmp_path)
    made.start()
    yield made
    with contextlib.suppress(ProcessLookupError, AssertionError):
        made.kill()


def test_flood_is_blamed_and_consumers_that_are_too_few_are_advised_across_a_kill(
    nodes: Cluster, job: Job
) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(PacedPublisher(nodes.port("n1"), FLOODED, 20))
        stack.enter_context(Consumer(nodes.ports, FLOODED))
        stack.enter_context(PacedPublisher(nodes.port("n2"), SLOW, 60))
        stack.enter_context(SlowConsumer(nodes.port("n2"), SLOW))
        flood = Flood(nodes.port("n1"), FLOODED)
        began = datetime.now(UTC)
        with flood:
            threading.Event().wait(FLOOD_SECONDS)  # what is tested is what this time shows
        ended = datetime.now(UTC)
        wait_for("first windows", lambda: job.check() and job.rows("node_windows"), 900)
        job.kill()
        job.start()
        advice = wait_for("advice", lambda: job.check() and _advice(nodes), PATIENCE_SECONDS)
        wait_for("all windows", lambda: job.made_after(ended), PATIENCE_SECONDS)
    assert job.stop() == 0, job.log.read_text()[-4000:]
    _check_blame(job, flood.port, began, ended)
    _check_advice(nodes, job, advice)
    for name, table in ANALYSIS.items():
        keys = [tuple(row[key] for key in table.key) for row in job.rows(name)]
        assert len(keys) == len(set(keys)), f"{name}: a window twice"
    minutes = {row["window_start"] for row in job.rows("node_windows") if row["window_s"] == 60}
    assert (max(minutes) - min(minutes)).total_seconds() == 60 * (len(minutes) - 1), "a gap"


def _check_blame(job: Job, port: int, began: datetime, ended: datetime) -> None:
    """Check that the flooder ranks first in every window in which its queue stopped publishers."""
    windows: dict[datetime, list[Row]] = {}
    for row in job.rows("blame"):
        if row["queue"] == FLOODED and row["window_s"] == 10:
            windows.setdefault(row["window_start"], []).append(row)
    begin, end = began.timestamp() // 10 * 10, ended.timestamp()
    affected = {at: rows for at, rows in windows.items() if begin <= at.timestamp() < end}
    assert len(affected) >= 3, windows.keys()
    for at, rows in affected.items():
        first = [row for row in rows if row["window_rank"] == 1]
        assert [str(port) in row["account_name"] for row in first] == [True], (at, rows)
        assert sum(row["share"] for row in rows) == pytest.approx(1)


def _advice(nodes: Cluster) -> list[Row]:
    status, rows = nodes.node("n3").api.get("/api/flow/advice")
    assert status == 200, rows
    return [dict(row) for row in rows if row["queue"] == SLOW]


def _check_advice(nodes: Cluster, job: Job, advice: list[Row]) -> None:
    [row] = advice
    assert (row["vhost"], row["queue"], row["kind"]) == ("/", SLOW, "consumers")
    assert row["author"] == "pipeline"
    assert row["value"] > row["current"] == 1
    why = [row["bottleneck"] for row in job.rows("bottlenecks") if row["queue"] == SLOW]
    assert why.count("consumers_saturated") >= 2
    given = [each for each in job.rows("consumer_advice") if each["queue"] == SLOW]
    assert row["value"] in [each["advised"] for each in given]
    command = [sys.executable, "-P", "-m", "headrace_broker.cli", "flow", "advice"]
    assert SLOW in run_command(nodes, command)
