"""The source of logs in Spark: planned, read and restarted, with a broker in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.client.fake_exports import ARCHIVE, TELEMETRY, FakeShard

from headrace_pipeline.schema.log import LOGS
from headrace_protos.broker.v1 import export_pb2 as pb

FORMAT = "headrace_log"


def options(broker: Any, log: str, **more: str) -> dict[str, str]:
    return {"endpoints": broker.endpoint, "log": log, **more}


def add(broker: Any, log: int, shard: FakeShard) -> FakeShard:
    found: FakeShard = broker.exports.logs.add(log, shard)
    return found


def test_a_batch_has_the_declared_columns_and_each_row_once(
    spark: SparkSession, broker: Any
) -> None:
    add(broker, pb.EXPORT_LOG_ARCHIVE, FakeShard("1", ARCHIVE, following=100, queue="a"))
    given = options(broker, "archive", queue="a", includeHeaders="true", minPartitions="3")
    rows = spark.read.format(FORMAT).options(**given).load()
    assert rows.schema == LOGS["archive"].spark()
    found = sorted((row.archive_index, bytes(row.payload)) for row in rows.collect())
    assert found == [(index, b"%d" % index) for index in range(100)]
    times = rows.selectExpr("cast(settled_at as double) as at").where("archive_index = 7")
    assert [row.at for row in times.collect()] == [1_700_000_007.0]
    picked = spark.read.format(FORMAT).schema("queue STRING").options(**given).load()
    assert picked.distinct().collect() == [("a",)]


def test_a_stream_of_what_there_is_goes_on_where_it_was_and_commits(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    shard = add(broker, pb.EXPORT_LOG_FLOW_SAMPLES, FakeShard("n1", TELEMETRY, following=25))
    given = options(
        broker, "flow_samples", startingOffsets="earliest", maxRowsPerTrigger="10", group="lake"
    )
    found: list[list[int]] = []

    def write(rows: Any, _number: int) -> None:
        found.append(sorted(row.row_index for row in rows.select("row_index").collect()))

    for following in (25, 31):
        shard.following = following
        stream = spark.readStream.format(FORMAT).options(**given).load()
        writer = stream.writeStream.foreachBatch(write).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
        assert shard.groups["lake"].committed == following
    wanted = [range(10), range(10, 20), range(20, 25), range(25, 31)]
    assert found == [list(each) for each in wanted]


def test_a_wrong_option_is_told_when_it_is_loaded(spark: SparkSession, broker: Any) -> None:
    given = options(broker, "archive", startingOfsets="latest")
    with pytest.raises(AnalysisException, match=r"is startingOffsets meant\?"):
        spark.read.format(FORMAT).options(**given).load()
