"""Advice as a table: from windows of a minute, in whatever pieces they come."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.telemetry_rows import at, same_shape

from headrace_pipeline.schema.analysis import BOTTLENECKS, CONSUMER_ADVICE, QUEUE_WINDOWS
from headrace_pipeline.schema.column import Table
from headrace_pipeline.transforms.consumer_advice import consumer_advice


def _rows(spark: SparkSession, table: Table, rows: list[dict[str, Any]]) -> DataFrame:
    filled = [[row.get(name) for name in table.names] for row in rows]
    return spark.createDataFrame(filled, table.spark())


def _minutes(name: str, bottleneck: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Windows and bottlenecks of six minutes in which much waits."""
    queues, found = [], []
    for minute in range(6):
        window = {"window_start": at(60 * minute), "window_s": 60, "day": at(0).date()}
        of = window | {"vhost": "/", "queue": name}
        consumers = {"consumers_mean": 2.0, "consumers_busy_mean": 2.0, "settled_rate": 50.0}
        queues.append(of | consumers | {"published_rate_p95": 100.0, "ready_last": 3000})
        found.append(of | {"bottleneck": bottleneck})
    return queues, found


def test_saturated_consumers_are_advised_on_and_a_raft_bound_queue_is_not(
    spark: SparkSession,
) -> None:
    saturated, why = _minutes("orders", "consumers_saturated")
    bound, slow = _minutes("ledger", "raft_commit")
    queues = _rows(spark, QUEUE_WINDOWS, saturated + bound).cache()
    classes = _rows(spark, BOTTLENECKS, why + slow).cache()
    nothing = _rows(spark, CONSUMER_ADVICE, [])
    frame = consumer_advice(queues, classes, nothing, at(0))
    assert same_shape(frame, CONSUMER_ADVICE)
    found = frame.orderBy("window_start").collect()
    assert [row["queue"] for row in found] == ["orders"] * 5
    expected = {
        "window_start": found[0]["began_at"],
        "window_s": 60,
        "advised": 6,
        "wanted": 6,
        "consumers": 2,
        "baseline": 2,
        "arrival_rate_p95": 100.0,
        "service_rate": 25.0,
        "backlog": 3000,
        "drain_s": 300,
        "bottleneck": "consumers_saturated",
        "because": "2 consumers are too few: 100/s come, 3000 wait and should be gone in 300 s, "
        "a busy consumer settles 25.0/s",
    }
    assert {name: found[0][name] for name in expected} == expected
    assert (found[0]["valid_until"] - found[0]["window_start"]).total_seconds() == 360
    # in two pieces, the second of which knows what the first has advised, it is the same
    early = [row for row in found if row["window_start"] < found[2]["window_start"]]
    before = spark.createDataFrame(early, CONSUMER_ADVICE.spark())
    later = consumer_advice(queues, classes, before, at(180))
    assert later.orderBy("window_start").collect() == found[2:]
