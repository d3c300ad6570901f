"""A live queue into a Delta table: killed drivers, killed leaders, leases that expire."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.spark_job import SparkJob

from headrace_broker.cli.session.api_client import ApiError
from headrace_client.blocking import Client

PROGRAM = Path(__file__).with_name("queue_to_delta.py")
QUEUE = "work"
TTL_MS = 15_000  # of a lease that is to expire; in time to be renewed on a loaded machine
MOVE_SECONDS = 1800.0  # for a whole run; a loaded machine moves a thousand messages a second


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes on fresh data, beside those of other tests."""
    with Cluster(tmp_path / "data") as started:
        yield started
        started.close_connections()


def endpoints(cluster: Cluster) -> str:
    return ",".join(node.grpc for node in cluster.local.nodes)


def fill(cluster: Cluster, count: int) -> None:
    """Publish messages 0 to `count` - 1, confirmed, to a replicated queue."""
    with Client.connect(endpoints(cluster)) as client:
        client.topology.declare_queue(QUEUE, arguments={"x-queue-type": "quorum"})
        with client.publisher(routing_key=QUEUE, publisher_id="fill", epoch=1) as publisher:
            publisher.publish_many(b"message %d" % number for number in range(count))


def job(cluster: Cluster, folder: Path, *options: str) -> SparkJob:
    arguments = [endpoints(cluster), QUEUE, str(folder), *options]
    return SparkJob(PROGRAM, arguments, folder / "job.log")


def counts(cluster: Cluster) -> tuple[int, int] | None:
    """Messages ready and unacknowledged, as the queue's leader says; None for no answer."""
    with contextlib.suppress(ApiError):
        entry = cluster.queue(QUEUE, cluster.leader(QUEUE))
        if entry is not None:
            return entry["messages_ready"], entry["messages_unacknowledged"]
    return None


def committed(folder: Path) -> int:
    """Return the number of batches in the table."""
    return len(list((folder / "table" / "_delta_log").glob("*.json")))


def check_table(folder: Path, count: int) -> None:
    """Each message is in the table once."""
    payload = DeltaTable(folder / "table").to_pyarrow_table(columns=["payload"])["payload"]
    assert (len(payload), pc.count_distinct(payload).as_py()) == (count, count)


def wait_moved(driver: SparkJob, cluster: Cluster, folder: Path, batches: int) -> None:
    """Wait until so many batches are in the table, and in the queue nothing is ready or leased."""
    driver.wait_for("all batches", lambda: committed(folder) >= batches, MOVE_SECONDS)
    driver.wait_for("an empty queue", lambda: counts(cluster) == (0, 0))


@pytest.mark.parametrize(
    ("count", "rows", "kills"),
    [(6_000, 1_000, 1), pytest.param(400_000, 25_000, 2, marks=pytest.mark.full)],
)
def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(
    cluster: Cluster, tmp_path: Path, count: int, rows: int, kills: int
) -> None:
    fill(cluster, count)
    with job(cluster, tmp_path, f"maxRowsPerTrigger={rows}", "minPartitions=2") as driver:
        driver.start()
        for _ in range(kills):
            before = committed(tmp_path)
            driver.wait_for("more batches", lambda least=before + 2: committed(tmp_path) >= least)
            driver.kill()
            assert counts(cluster) != (0, 0), "it was killed too late"
            driver.start()
        wait_moved(driver, cluster, tmp_path, count // rows)
        assert driver.stop() == 0, driver.text
    check_table(tmp_path, count)
    assert "has expired" not in driver.text


@pytest.mark.full
@pytest.mark.parametrize(
    ("count", "rows"), [(6_000, 1_000), pytest.param(400_000, 25_000, marks=pytest.mark.full)]
)
def test_a_leader_that_is_killed_loses_nothing_and_repeats_nothing(
    cluster: Cluster, tmp_path: Path, count: int, rows: int
) -> None:
    fill(cluster, count)
    with job(cluster, tmp_path, f"maxRowsPerTrigger={rows}", "minPartitions=2") as driver:
        driver.start()
        for _ in range(2):
            before = committed(tmp_path)
            driver.wait_for("more batches", lambda least=before + 1: committed(tmp_path) >= least)
            cluster.kill(cluster.leader(QUEUE))
            cluster.start()
        wait_moved(driver, cluster, tmp_path, count // rows)
        assert driver.stop() == 0, driver.text
    check_table(tmp_path, count)


@pytest.mark.full
@pytest.mark.parametrize("count", [3_000, pytest.param(50_000, marks=pytest.mark.full)])
def test_a_lease_that_expires_in_mid_batch_comes_again_and_the_logs_say_so(
    cluster: Cluster, tmp_path: Path, count: int
) -> None:
    fill(cluster, count)
    (tmp_path / "hold").touch()
    with job(cluster, tmp_path, f"leaseTtlMs={TTL_MS}", "minPartitions=2") as driver:
        driver.start()
        driver.wait_for("a batch", lambda: "batch 0 begins" in driver.text)
        told = f"lease 1 of group 'lake' on queue '{QUEUE}' in vhost '/' has expired"
        with driver.paused():
            wait_for("the lease to expire", lambda: counts(cluster) == (count, 0))
            assert told in cluster.log(cluster.leader(QUEUE))
            (tmp_path / "hold").unlink()
        wait_moved(driver, cluster, tmp_path, 1)
        assert driver.stop() == 0, driver.text
    assert told in driver.text
    assert f"of this task (among ids 1-{count}) went back and come again" in driver.text
    check_table(tmp_path, count)
