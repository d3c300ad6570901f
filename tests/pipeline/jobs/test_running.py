"""Queries of a job end with a signal, with their data, or with a failure."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace_pipeline.jobs.running import await_queries


def started(spark: SparkSession, folder: Path, on_batch=None, **trigger) -> StreamingQuery:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    writer = rows.writeStream.option("checkpointLocation", str(folder))
    writer = writer.foreachBatch(on_batch or (lambda batch, number: None))
    return writer.trigger(**(trigger or {"processingTime": "1 second"})).start()


def test_a_signal_stops_all_queries(spark: SparkSession, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def tell(batch: DataFrame, number: int) -> None:
        if signal.getsignal(signal.SIGTERM) is not before:  # somebody waits
            os.kill(os.getpid(), signal.SIGTERM)

    queries = [started(spark, tmp_path / "quiet"), started(spark, tmp_path / "telling", tell)]
    await_queries(queries)
    assert [each.isActive for each in queries] == [False, False]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_query_that_fails_stops_the_others_and_is_raised(
    spark: SparkSession, tmp_path: Path
) -> None:
    def fail(batch: DataFrame, number: int) -> None:
        raise ValueError("no such table")

    other = started(spark, tmp_path / "other")
    failing = started(spark, tmp_path / "failing", fail)
    with pytest.raises(StreamingQueryException, match="no such table"):
        await_queries([other, failing])
    assert not other.isActive


def test_queries_that_have_read_all_end_by_themselves(spark: SparkSession, tmp_path: Path) -> None:
    query = started(spark, tmp_path / "now", availableNow=True)
    await_queries([query])
    assert not query.isActive
    assert query.exception() is None
