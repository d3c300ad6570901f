"""The source of queues in Spark: planned, read and restarted, with a broker in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from headrace_pipeline.schema.queue import QUEUE_MESSAGES
from headrace_protos.broker.v1 import topology_pb2 as topology

FORMAT = "headrace_queue"


def options(broker: Any, **more: str) -> dict[str, str]:
    return {"endpoints": broker.endpoint, "queue": "q", "group": "lake", **more}


def payloads(rows: DataFrame) -> list[int]:
    return sorted(int(row.payload) for row in rows.select("payload").collect())


def run_stream(spark: SparkSession, broker: Any, folder: Path) -> list[tuple[int, list[int]]]:
    """Read ready messages, and return the batches: number and payloads."""
    counts = topology.QueueCounts(messages_ready=len(broker.leases.world.ready))
    broker.answers["DescribeQueue"] = topology.QueueDescription(name="q", counts=counts)
    batches: list[tuple[int, list[int]]] = []
    stream = spark.readStream.format(FORMAT).options(**options(broker, maxRowsPerTrigger="10"))
    query = (
        stream.load()
        .writeStream.foreachBatch(lambda rows, number: batches.append((number, payloads(rows))))
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches


def test_a_batch_has_the_declared_columns_and_stays_the_same(
    spark: SparkSession, broker: Any
) -> None:
    broker.leases.world.fill(20)
    given = options(broker, includeHeaders="true", minPartitions="3")
    rows = spark.read.format(FORMAT).options(**given).load()
    assert rows.schema == QUEUE_MESSAGES.spark()
    assert payloads(rows) == payloads(rows) == list(range(1, 21))
    twice = rows.alias("one").join(rows.alias("other"), "queue_message_id")
    assert payloads(twice.select("one.payload")) == list(range(1, 21))
    assert broker.leases.world.groups["lake (batch)"].settled == 0


def test_an_empty_queue_is_an_empty_dataframe(spark: SparkSession, broker: Any) -> None:
    assert spark.read.format(FORMAT).options(**options(broker)).load().count() == 0


def test_a_stream_of_what_is_ready_goes_on_where_it_was(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    world = broker.leases.world
    world.fill(25)
    assert run_stream(spark, broker, tmp_path) == [
        (0, list(range(1, 11))),
        (1, list(range(11, 21))),
        (2, list(range(21, 26))),
    ]
    assert (world.groups["lake"].settled, world.groups["lake"].held) == (3, {})
    world.fill(5)
    assert run_stream(spark, broker, tmp_path) == [(3, list(range(26, 31)))]
    assert (world.groups["lake"].settled, world.groups["lake"].epoch) == (4, 2)


def test_a_wrong_option_is_told_when_it_is_loaded(spark: SparkSession, broker: Any) -> None:
    with pytest.raises(AnalysisException, match="option group: headrace_queue needs it"):
        spark.read.format(FORMAT).options(endpoints=broker.endpoint, queue="q").load()


def test_no_password_is_in_a_plan(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("guest-secret\n")
    with pytest.raises(AnalysisException, match="passwordFile") as refused:
        spark.read.format(FORMAT).options(**options(broker, password="guest-secret")).load()
    rows = spark.read.format(FORMAT).options(**options(broker, passwordFile=str(file))).load()
    plan = rows._jdf.queryExecution().logical().toString()
    assert FORMAT in plan
    assert "guest-secret" not in plan + str(refused.value)
