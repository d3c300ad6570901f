"""Logs of a real cluster into Delta tables: each row once, with killed processes; and losses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.spark_job import SparkJob

from headrace_client.blocking import Client
from headrace_client.export import Shard

pytestmark = pytest.mark.full  # each starts Spark several times, half a minute each

PROGRAM = Path(__file__).with_name("log_to_delta.py")
QUEUE = "work"
GROUP = "lake"
COPY_SECONDS = 900.0  # for a whole run; a loaded machine copies some thousand rows a second


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes on fresh data, beside those of other tests."""
    with Cluster(tmp_path / "data") as started:
        yield started
        started.close_connections()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client.connect(endpoints(cluster)) as client:
        yield client


def endpoints(cluster: Cluster) -> str:
    return ",".join(node.grpc for node in cluster.local.nodes)


def declare(client: Client, **arguments: Any) -> None:
    told = {"x-queue-type": "quorum", "x-archive": "full"}
    told |= {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
    client.topology.declare_queue(QUEUE, arguments=told)


def archive(client: Client, start: int, end: int) -> None:
    """Make messages `start` to `end` - 1 rows: they are published, and purged."""
    with client.publisher(routing_key=QUEUE) as publisher:
        publisher.publish_many(b"%d" % number for number in range(start, end))
        publisher.flush()
    client.topology.purge_queue(QUEUE)


def shard_with(client: Client, rows: int) -> Shard:
    """The queue's shard once so many rows were written."""

    def look() -> Shard | None:
        found = client.export.shards("archive", "/", QUEUE).shards
        return found[0] if found and found[0].next_index == rows else None

    shard: Shard = wait_for(f"{rows} rows", look)
    return shard


def job(cluster: Cluster, log: str, folder: Path, *options: str) -> SparkJob:
    folder.mkdir(exist_ok=True)
    arguments = [endpoints(cluster), log, str(folder), *options]
    return SparkJob(PROGRAM, arguments, folder / "job.log")


def committed(client: Client, log: str) -> dict[str, int]:
    """Return the group's position, by shard."""
    return {each.shard: each.committed for each in client.export.groups(log, group=GROUP).groups}


def batches(folder: Path) -> int:
    """Return the number of batches in the table, whose first version is its schema."""
    return max(len(list((folder / "table" / "_delta_log").glob("*.json"))) - 1, 0)


def kill_after_a_batch(driver: SparkJob, folder: Path) -> None:
    """Kill a driver once it has written something more, and start it again."""
    before = batches(folder)
    driver.wait_for("more batches", lambda: batches(folder) > before)
    driver.kill()
    driver.start()


def table(folder: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Rows of the table, in order."""
    found = DeltaTable(folder / "table").to_pyarrow_table(columns=list(columns))
    return sorted(zip(*(found[name].to_pylist() for name in columns), strict=True))


@pytest.mark.parametrize(
    ("count", "rows", "kills"),
    [(6_000, 1_000, 1), pytest.param(200_000, 15_000, 3, marks=pytest.mark.full)],
)
def test_an_archive_is_copied_exactly_once_across_killed_drivers(
    cluster: Cluster, client: Client, tmp_path: Path, count: int, rows: int, kills: int
) -> None:
    declare(client)
    archive(client, 0, count)
    shard = shard_with(client, count)
    folder = tmp_path / "job"
    options = f"queue={QUEUE}", f"group={GROUP}", f"maxRowsPerTrigger={rows}", "minPartitions=2"
    with job(cluster, "archive", folder, *options) as driver:
        driver.start()
        for _ in range(kills):
            kill_after_a_batch(driver, folder)
        done = {shard.name: count}
        driver.wait_for("the end", lambda: committed(client, "archive") == done, COPY_SECONDS)
        assert driver.stop() == 0, driver.text
    wanted = [(index, b"%d" % index, "purged") for index in range(count)]
    assert table(folder, "archive_index", "payload", "outcome") == wanted
    assert client.export.shards("archive", "/", QUEUE).shards[0].first_index == count


@pytest.mark.parametrize("seconds", [5, pytest.param(120, marks=pytest.mark.full)])
def test_telemetry_is_copied_exactly_once_across_killed_drivers_and_nodes(
    cluster: Cluster, client: Client, tmp_path: Path, seconds: int
) -> None:
    log, folder = "flow_samples", tmp_path / "job"
    with job(cluster, log, folder, f"group={GROUP}", "maxRowsPerTrigger=50") as driver:
        driver.start()
        kill_after_a_batch(driver, folder)
        before = batches(folder)
        driver.wait_for("more batches", lambda: batches(folder) > before)
        cluster.kill("n3")
        while_it_is_down = batches(folder)
        driver.wait_for("rows of the others", lambda: batches(folder) > while_it_is_down + 1)
        cluster.start()
        least = {
            shard.name: shard.next_index + seconds for shard in client.export.shards(log).shards
        }
        assert sorted(least) == ["n1", "n2", "n3"]

        def is_done() -> bool:
            now = committed(client, log)
            return all(now.get(name, 0) >= index for name, index in least.items())

        driver.wait_for("rows of all nodes", is_done, COPY_SECONDS)
        assert driver.stop() == 0, driver.text
    rows = table(folder, "shard", "row_index", "node")
    for name, index in least.items():
        indexes = [row_index for shard, row_index, node in rows if shard == name == node]
        assert indexes == list(range(len(indexes)))
        assert len(indexes) >= index


@pytest.mark.parametrize("kept", [500, pytest.param(20_000, marks=pytest.mark.full)])
def test_rows_that_went_unread_end_the_query_or_are_skipped_as_it_is_told(
    cluster: Cluster, client: Client, tmp_path: Path, kept: int
) -> None:
    declare(client, archive_max_messages=kept)
    archive(client, 0, kept)
    shard = shard_with(client, kept)
    folder = tmp_path / "job"
    options = f"queue={QUEUE}", f"group={GROUP}"
    with job(cluster, "archive", folder, *options) as driver:
        driver.start()
        done = {shard.name: kept}
        driver.wait_for("the first rows", lambda: committed(client, "archive") == done)
        assert driver.stop() == 0, driver.text
        archive(client, kept, 4 * kept)
        assert shard_with(client, 4 * kept).first_index == 3 * kept
        driver.start()
        assert driver.end() != 0
        lost = f"{2 * kept} rows, {kept} to {3 * kept - 1}, were dropped before they were read"
        assert f"data is lost. archive of queue '{QUEUE}'" in driver.text
        assert lost in driver.text
        assert "failOnDataLoss=false" in driver.text
    with job(cluster, "archive", folder, *options, "failOnDataLoss=false") as driver:
        driver.start()
        done = {shard.name: 4 * kept}
        driver.wait_for("the last rows", lambda: committed(client, "archive") == done)
        assert driver.stop() == 0, driver.text
        assert f"data is lost, at least {2 * kept} rows, and skipped" in driver.text
    left = [*range(kept), *range(3 * kept, 4 * kept)]
    assert table(folder, "archive_index", "payload") == [(each, b"%d" % each) for each in left]
