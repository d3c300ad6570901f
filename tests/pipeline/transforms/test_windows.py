"""Windows, by hand: some rows in, and each figure as it is worked out on paper."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from tests.pipeline.telemetry_rows import NOON, at, edge, node, queue, rows, same_shape, stopped

from headrace_pipeline.schema.analysis import ACCOUNT_WINDOWS, LANDED, NODE_WINDOWS, QUEUE_WINDOWS
from headrace_pipeline.schema.log import DEBT_EDGES, FLOW_EVENTS, FLOW_SAMPLES
from headrace_pipeline.transforms.event_time import land, once
from headrace_pipeline.transforms.windows import (
    account_windows,
    in_stream,
    node_windows,
    queue_windows,
    with_alarms,
    with_saturation,
)


def _found(frame: DataFrame, *keys: str) -> dict[Any, dict[str, Any]]:
    """Rows by keys; the time of a window as seconds after noon."""
    start = (fn.unix_seconds("window_start") - int(NOON.timestamp())).alias("second")
    found = [row.asDict() for row in frame.select(start, "*").collect()]
    made = {tuple(row[key] for key in ("second", *keys)): row for row in found}
    assert len(made) == len(found), "a window twice"
    return made


def _event(second: float, event: str, episode: str | None, **more: Any) -> dict[str, Any]:
    return {"at": at(second), "event": event, "kind": "queue", "id": "7", "name": "orders"} | {
        **more,
        "episode": episode,
    }


def test_queue_of_a_window_has_rates_waits_and_who_was_stopped(spark: SparkSession) -> None:
    busy: dict[str, Any] = {"consumers": 4, "unacked": 40}
    samples = rows(
        FLOW_SAMPLES,
        [
            queue(0.2, published=100, settled=50, ready=0, consumers_busy=0, **busy),
            queue(1.2, published=300, settled=50, ready=250, consumers_busy=4, **busy),
            queue(2.2, published=0, settled=50, ready=200, oldest_ready_ms=900, **busy)
            | {"elapsed_ms": 500, "consumers_busy": 2, "pending_octets": 1 << 19},
            stopped(1.2, "a", "orders", 700, "queue-commands"),
            stopped(2.2, "a", "orders", 100, "account"),
            stopped(2.2, "b", "orders", 30, "watermark"),
            stopped(2.2, "c", "others", 30, "credit"),
            queue(10.0, published=7),
        ],
    )
    dead = rows(
        FLOW_EVENTS,
        [
            _event(3, "dead_lettered", None, vhost="/", queue="orders", messages=3)
            | {"reason": "delivery_limit"},
            _event(3, "dead_lettered", None, vhost="/", queue="orders", messages=2)
            | {"reason": "expired"},
        ],
    )
    frame = queue_windows(spark.createDataFrame(samples), spark.createDataFrame(dead), 10)
    assert same_shape(frame, QUEUE_WINDOWS)
    found = _found(frame, "queue")
    assert set(found) == {(0, "orders"), (0, "others"), (10, "orders")}
    orders = found[0, "orders"]
    expected = {
        "window_s": 10,
        "vhost": "/",
        "day": date(2026, 3, 2),
        "leader": "n1",
        "samples": 3,
        "published": 400,
        "settled": 150,
        "published_rate": 40.0,
        "settled_rate": 15.0,
        "published_rate_max": 300.0,
        "settled_rate_max": 100.0,
        "settled_rate_p95": 100.0,
        "ready_first": 0,
        "ready_last": 200,
        "ready_max": 250,
        "ready_mean": 150.0,
        "oldest_ready_ms_max": 900,
        "unacked_mean": 40.0,
        "consumers_mean": 4.0,
        "consumers_busy_mean": 2.0,
        "busy_share": 0.5,  # 0 s, 4 s, 1 s of 4 * 2.5 s
        "pending_share_p95": 0.5,
        "pending_share_max": 0.5,
        "commit_ms_p99": None,
        "blocked_ms": 830,
        "blocked_commit_ms": 700,
        "blocked_account_ms": 100,
        "blocked_watermark_ms": 30,
        "blocked_connections": 2,
        "dead_lettered": 5,
        "dead_lettered_failed": 3,
    }
    assert {name: orders[name] for name in expected} == expected
    assert orders["waiting_share"] == pytest.approx(2 / 3)
    others = found[0, "others"]
    assert (others["samples"], others["published"], others["blocked_ms"]) == (0, 0, 30)
    assert (others["ready_max"], others["busy_share"]) == (None, None)


def test_what_newer_brokers_tell_counts_before_what_was_looked_at(spark: SparkSession) -> None:
    samples = rows(
        FLOW_SAMPLES,
        [queue(second, consumers=2, consumers_busy=2, settled=1) for second in range(3)],
    )
    newer = spark.createDataFrame(samples).withColumn("consumer_busy_ms", fn.lit(500))
    newer = newer.withColumn("commit_ms_p50", fn.lit(4.0))
    late = fn.when(fn.col("row_index") == 1, 90.0).otherwise(9.0)
    newer = newer.withColumn("commit_ms_p99", late)
    newer = newer.withColumn("pending_command_octets", fn.lit(30))
    newer = newer.withColumn("pending_command_octets_max", fn.lit(40))
    newer = newer.withColumn("pending_commands", fn.lit(11))
    row = queue_windows(newer, seconds=60).collect()[0]
    assert (row["consumers_busy_mean"], row["busy_share"]) == (0.5, 0.25)
    assert (row["commit_ms_p50"], row["commit_ms_p99"]) == (4.0, 90.0)
    assert (row["pending_share_p95"], row["pending_commands_max"]) == (0.75, 11)


def test_saturation_lasts_as_long_as_its_episodes_do(spark: SparkSession) -> None:
    place = {"vhost": "/", "queue": "orders"}
    events = rows(
        FLOW_EVENTS,
        [
            _event(-500, "saturated", "n1-4-1", started_at=at(-500), **place),  # killed with it
            _event(-400, "blocked", "n1-5-1", started_at=at(-400)),
            _event(4, "saturated", "n1-5-2", started_at=at(4), **place),
            _event(13, "saturation_cleared", "n1-5-2", started_at=at(4), **place),
            _event(18, "saturated", "n1-5-3", started_at=at(18), **place),  # goes on
        ],
    )
    samples = rows(FLOW_SAMPLES, [queue(second) for second in (1, 11, 21)])
    frame = spark.createDataFrame(events)
    windows = queue_windows(spark.createDataFrame(samples), seconds=10)
    found = _found(with_saturation(windows, frame))
    assert {key[0]: row["saturated_ms"] for key, row in found.items()} == {
        0: 6000,
        10: 5000,
        20: 10_000,
    }


def test_node_of_a_window_has_its_alarms_and_how_long_its_clients_were_stopped(
    spark: SparkSession,
) -> None:
    samples = rows(
        FLOW_SAMPLES,
        [
            node(0, published=10, memory_used=100, disk_free=9000, cpu_ms=500),
            node(1, published=30, memory_used=700, disk_free=8000, cpu_ms=1000, loop_lag_ms=80),
            stopped(1, "a", "orders", 300, "credit"),
            stopped(1, "b", "orders", 0, "credit"),
            stopped(1, "c", "orders", 40, "publish-rate") | {"blocked_queue": None},
            node(2, "n2") | {"node": "n2"},
        ],
    )
    alarm = {"kind": "node", "id": "n1/memory", "name": "n1", "reason": "memory"}
    events = rows(
        FLOW_EVENTS,
        [
            _event(2, "alarm_set", "n1-1-1", started_at=at(1.5)) | alarm,
            _event(5, "alarm_cleared", "n1-1-1", started_at=at(1.5)) | alarm,
        ],
    )
    frame = node_windows(spark.createDataFrame(samples), 10)
    frame = with_alarms(frame, spark.createDataFrame(events))
    assert same_shape(frame, NODE_WINDOWS)
    found = _found(frame, "node")
    expected = {
        "samples": 2,
        "published": 40,
        "published_rate": 4.0,
        "published_rate_max": 30.0,
        "memory_used_max": 700,
        "memory_limit": 1000,
        "disk_free_min": 8000,
        "cpu_share": 0.75,
        "cpu_share_p95": 1.0,
        "loop_lag_ms_max": 80.0,
        "skew_ms": 0,
        "blocked_ms": 340,
        "blocked_elsewhere_ms": 40,
        "blocked_connections": 2,
        "alarm_ms": 3500,
        "memory_alarm_ms": 3500,
        "disk_alarm_ms": 0,
    }
    row = found[0, "n1"]
    assert {name: row[name] for name in expected} == expected
    assert found[0, "n2"]["alarm_ms"] == 0


def test_account_of_a_window_has_what_it_brought_through_what(spark: SparkSession) -> None:
    edges = rows(
        DEBT_EDGES,
        [
            edge(0, "a", copies=100, octets=5000, replica_octets=10_000, charged_messages=110)
            | {"charged_octets": 5000, "owed_messages": 9, "owed_octets": 400},
            edge(1, "a", copies=20, octets=1000, exchange="amq.fanout", owed_messages=3),
            edge(1, "b", copies=1, octets=10),
            edge(1, "a", "others", copies=1),
        ],
    )
    samples = rows(FLOW_SAMPLES, [stopped(1, "c", "orders", 300, "credit")])
    frame = account_windows(spark.createDataFrame(edges), spark.createDataFrame(samples), 10)
    assert same_shape(frame, ACCOUNT_WINDOWS)
    found = _found(frame, "queue", "origin_account")
    keys = {(0, "orders", "a"), (0, "orders", "b"), (0, "orders", "c"), (0, "others", "a")}
    assert set(found) == keys
    expected = {
        "copies": 120,
        "octets": 6000,
        "replica_octets": 10_000,
        "copies_rate": 12.0,
        "exchange": "amq.topic",
        "exchanges": 2,
        "account_name": "name of a",
        "owed_messages_max": 9,
        "charged_messages": 110,
        "blocked_ms": 0,
        "cost_us": 120 * 20 + 6000 * 0.005 + 10_000 * 0.008,
    }
    row = found[0, "orders", "a"]
    assert {name: row[name] for name in expected} == expected
    waits = found[0, "orders", "c"]
    assert (waits["copies"], waits["cost_us"], waits["blocked_ms"]) == (0, 0.0, 300)


def test_clock_that_is_ahead_is_set_back_and_rows_that_landed_twice_are_one(
    spark: SparkSession,
) -> None:
    samples = rows(FLOW_SAMPLES, [node(0), node(1)])
    frame = spark.createDataFrame(samples)
    year = fn.expr("interval 3650 days")
    ahead = frame.withColumn("at", fn.when(fn.col("row_index") == 1, fn.col("at") + year))
    ahead = ahead.withColumn("at", fn.coalesce("at", fn.lit(NOON)))
    landed = land(ahead)
    table = LANDED["flow_samples"]
    assert same_shape(landed.select(*table.names), table)
    found = landed.orderBy("row_index").collect()
    assert (found[0]["at"], found[0]["skew_ms"]) == (frame.collect()[0]["at"], 0)
    assert found[1]["at"] == found[1]["landed_at"]
    assert found[1]["skew_ms"] > 86_400_000
    assert found[1]["day"] == found[1]["landed_at"].date()
    again = once(landed.unionByName(land(frame)), LANDED["flow_samples"])
    assert again.count() == 2


def told_now(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        now = pa.array([datetime.now(UTC)] * batch.num_rows, pa.timestamp("us", tz="UTC"))
        yield pa.RecordBatch.from_arrays([now], ["at"])


def test_rows_that_nodes_make_while_a_query_runs_are_not_ahead(spark: SparkSession) -> None:
    rows_of_now = spark.range(1).mapInArrow(told_now, "at timestamp")
    [row] = land(rows_of_now.withColumn("started", fn.current_timestamp())).collect()
    assert row["at"] > row["started"]
    assert row["skew_ms"] == 0


def test_windows_stream_with_a_watermark_and_say_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    given = [queue(second, published=10, ready=second % 3) for second in range(40)]
    given += [stopped(second, "a", "orders", 5, "credit") for second in range(40)]
    samples = rows(FLOW_SAMPLES, given)
    # heartbeats alone move time on: windows end when the watermark has passed them
    parts = [samples, rows(FLOW_SAMPLES, [node(1000)]), rows(FLOW_SAMPLES, [node(1001)])]
    for number, part in enumerate(parts):
        pq.write_table(part, tmp_path / f"{number}.parquet")
    stream = spark.readStream.schema(FLOW_SAMPLES.spark()).option("maxFilesPerTrigger", 1)
    windows = queue_windows(in_stream(stream.parquet(str(tmp_path))), seconds=10)
    query = (
        windows.writeStream.format("memory")
        .queryName("streamed")
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    streamed = spark.table("streamed").orderBy("window_start").collect()
    batch = queue_windows(spark.createDataFrame(samples), seconds=10).orderBy("window_start")
    assert streamed == batch.collect()
    assert len(streamed) == 4
