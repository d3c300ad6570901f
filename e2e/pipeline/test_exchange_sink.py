"""The sink `headrace` on a real cluster: DataFrames to exchanges, and drivers that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from e2e.harness.cluster import Cluster, wait_for
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from headrace_client import Properties, blocking

DRIVER = Path(__file__).with_name("sink_driver.py")
SECONDS = 420  # Spark starts slowly where others compute
FILES = 4
ROWS = 5000  # of a file


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("sink") / "data") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(nodes: Cluster) -> Iterator[blocking.Client]:
    with blocking.Client.connect(endpoints(nodes)) as client:
        yield client


def endpoints(cluster: Cluster) -> str:
    return ",".join(node.grpc for node in cluster.local.nodes)


def declare(client: blocking.Client, name: str, **arguments: Any) -> str:
    told = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    client.topology.declare_queue(name, arguments={"x-queue-type": "quorum", **told})
    return name


def bodies(client: blocking.Client, queue: str) -> list[bytes]:
    """All that waits in a queue, which is empty then."""
    found = []
    with client.consumer(queue, prefetch=1000, until_empty=True) as consumer:
        for delivery in consumer:
            found.append(delivery.body)
            delivery.accept()
    return found


def write(cluster: Cluster, df: DataFrame, **options: str) -> None:
    to = df.write.format("headrace").mode("append").option("endpoints", endpoints(cluster))
    to.options(**options).save()


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).select(F.col("id").cast("string").alias("payload"))


def test_rows_come_with_their_properties(
    spark: SparkSession, nodes: Cluster, client: blocking.Client
) -> None:
    queue = declare(client, "sink-properties")
    client.topology.declare_exchange("sink-topic", "topic")
    client.topology.bind("sink-topic", queue=queue, routing_key="a.#")
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    row = (b"\x00\xff", "a.b", '{"n": [1, null]}', "text/plain", 3, "m", at, 60_000, "app", False)
    names = "payload, routing_key, headers, content_type, priority, message_id, published_at, "
    df = spark.createDataFrame(
        [row], [*names.split(", ")[:-1], "expiration", "app_id", "persistent"]
    )
    df = df.withColumn("priority", F.col("priority").cast("int"))
    write(nodes, df, exchange="sink-topic")
    (delivery,) = client.get(queue)
    assert (delivery.body, delivery.exchange, delivery.routing_key) == (
        b"\x00\xff",
        "sink-topic",
        "a.b",
    )
    found = delivery.properties
    assert found == Properties(
        content_type="text/plain",
        headers={"n": [1, None]},
        delivery_mode=1,
        priority=3,
        expiration=found.expiration,
        message_id="m",
        timestamp=at,
        app_id="app",
    )
    assert found.expiration is not None
    assert found.expiration.total_seconds() == 60


def test_a_write_that_is_repeated_under_its_id_publishes_nothing_twice(
    spark: SparkSession, nodes: Cluster, client: blocking.Client
) -> None:
    queue = declare(client, "sink-twice")
    for _ in range(2):
        write(nodes, numbers(spark, 3000), routingKey=queue, publisherId="job")
    assert Counter(bodies(client, queue)) == Counter(b"%d" % each for each in range(3000))
    # Other rows under the id of these are no repetition: all or none of them are taken.
    write(nodes, numbers(spark, 10), routingKey=queue, publisherId="job", epoch="1")
    assert len(bodies(client, queue)) == 10
    with pytest.raises(PySparkException, match="Either another driver has gone on with this"):
        write(nodes, numbers(spark, 3000), routingKey=queue, publisherId="job")
    assert bodies(client, queue) == []


def test_a_row_without_a_queue_fails_and_is_named(
    spark: SparkSession, nodes: Cluster, client: blocking.Client
) -> None:
    queue = declare(client, "sink-routes")
    rows = [("one", queue), ("two", queue), ("lost", "nowhere"), ("three", queue)]
    df = spark.createDataFrame(rows, "payload string, routing_key string").coalesce(1)
    options = {"publisherId": "routes"}
    with pytest.raises(PySparkException, match="row 3, routing key 'nowhere': "):
        write(nodes, df, **options)
    assert bodies(client, queue) == [b"one", b"two"]
    declare(client, "nowhere")
    write(nodes, df, **options)
    assert bodies(client, queue) == [b"three"]
    assert bodies(client, "nowhere") == [b"lost"]


def test_rows_that_are_refused_may_be_dropped(
    spark: SparkSession, nodes: Cluster, client: blocking.Client
) -> None:
    queue = declare(client, "sink-full", max_length=10, overflow="reject-publish")
    with pytest.raises(PySparkException, match="a queue is full and takes no more"):
        write(nodes, numbers(spark, 50, 1), routingKey=queue)
    bodies(client, queue)
    write(nodes, numbers(spark, 50, 1), routingKey=queue, onRefused="drop")
    assert len(bodies(client, queue)) == 10


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "option exchange: is needed"),
        ({"routingKey": "q", "password": "x"}, "option password: would stand in query plans"),
        ({"routingKey": "q", "routing": "x"}, "is routingKey meant"),
    ],
)
def test_wrong_options_are_refused(
    spark: SparkSession, nodes: Cluster, options: dict[str, str], told: str
) -> None:
    with pytest.raises(PySparkException, match=told):
        write(nodes, numbers(spark, 1), **options)


def fill(folder: Path) -> list[bytes]:
    """Write files of rows; return the payloads."""
    folder.mkdir()
    found = []
    for file in range(FILES):
        rows = [f"{file}-{row}-{'x' * 20}" for row in range(ROWS)]
        found += [each.encode() for each in rows]
        table = pa.table({"number": list(range(ROWS)), "payload": rows})
        pq.write_table(table, folder / f"{file}.parquet", row_group_size=ROWS // 5)
    return found


def drive(work: Path, cluster: Cluster, queue: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(DRIVER), str(work / "rows"), str(work / "checkpoint")]
    # A group of its own: who kills the driver kills its JVM and its workers.
    return subprocess.Popen([*command, endpoints(cluster), queue], start_new_session=True)


@pytest.mark.full
def test_a_driver_that_is_killed_in_mid_write_loses_nothing_and_publishes_nothing_twice(
    nodes: Cluster, client: blocking.Client, tmp_path: Path
) -> None:
    queue = declare(client, "sink-killed")
    wanted = fill(tmp_path / "rows")

    def waiting() -> int:
        counts = client.topology.queue(queue).counts
        return counts.messages_ready if counts is not None else 0

    # In the middle of the first file, and of a later one.
    for reached in (ROWS // 3, 2 * ROWS + ROWS // 3):
        driver = drive(tmp_path, nodes, queue)

        def has_come(least: int = reached, running: subprocess.Popen[bytes] = driver) -> bool:
            assert running.poll() is None, "the driver has ended by itself"
            return waiting() >= least

        try:
            wait_for(f"{reached} rows", has_come, SECONDS)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    assert waiting() < len(wanted)
    driver = drive(tmp_path, nodes, queue)
    try:
        assert driver.wait(SECONDS) == 0
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    assert Counter(bodies(client, queue)) == Counter(wanted)
