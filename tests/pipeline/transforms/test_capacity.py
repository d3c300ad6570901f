"""Distance of nodes and queues from their limits, from three weeks of made-up minutes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.telemetry_rows import NOON, same_shape

from headrace_pipeline.schema.analysis import CAPACITY, NODE_WINDOWS, QUEUE_WINDOWS
from headrace_pipeline.schema.column import Table
from headrace_pipeline.transforms.capacity import capacity


def _rows(spark: SparkSession, table: Table, rows: list[dict[str, Any]]) -> DataFrame:
    filled = [[row.get(name) for name in table.names] for row in rows]
    return spark.createDataFrame(filled, table.spark())


def _windows(days: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Twenty minutes of each day: n1 grows by 100/s a day, n2 does not; orders was at its limit."""
    nodes, queues = [], []
    for number in range(days * 20):
        start = NOON + timedelta(days=number // 20, minutes=number % 20)
        window = {"window_start": start, "window_s": 60, "day": start.date()}
        rate = 1000.0 + 100 * (number // 20)
        of = {"cpu_share_p95": 0.5, "loop_lag_ms_p95": 3.0, "memory_limit": 1000}
        of |= {
            "memory_used_max": 200,
            "disk_limit": 1000,
            "disk_free_min": 9000 - number // 20 * 100,
        }
        nodes.append(
            window | of | {"node": "n1", "published_rate": rate, "published_rate_max": rate * 2}
        )
        nodes.append(
            window | of | {"node": "n2", "published_rate": 700.0, "published_rate_max": 800.0}
        )
        is_full = number < 6
        stops = {"blocked_ms": 9000 if is_full else 0, "blocked_watermark_ms": 0}
        moves = {"published_rate": 5000.0 if is_full else 300.0, "published_rate_max": 5100.0}
        queues.append(window | stops | moves | {"vhost": "/", "queue": "orders"})
    return nodes, queues


def test_capacity_has_peaks_knees_and_weeks_that_are_left(spark: SparkSession) -> None:
    nodes, queues = _windows(21)
    knees = spark.createDataFrame(
        [("node", None, "n1", 10_000.0)], "kind string, vhost string, name string, knee double"
    )
    frame = capacity(_rows(spark, NODE_WINDOWS, nodes), _rows(spark, QUEUE_WINDOWS, queues), knees)
    assert same_shape(frame, CAPACITY)
    found = {(row["name"], row["measure"]): row for row in frame.collect()}
    grows = found["n1", "published_rate"]
    assert (grows["peak"], grows["limit"], grows["limit_from"]) == (6000.0, 10_000.0, "given")
    assert grows["growth_per_week"] == pytest.approx(700)
    assert grows["weeks_to_limit"] == pytest.approx((10_000 - grows["p95"]) / 700)
    assert 2800 <= grows["p95"] <= 3000
    stays = found["n2", "published_rate"]
    assert (stays["limit"], stays["used_share"], stays["weeks_to_limit"]) == (None, None, None)
    queue = found["orders", "published_rate"]
    assert (queue["limit"], queue["limit_from"], queue["vhost"]) == (5000.0, "measured", "/")
    disk = found["n1", "disk_free"]
    assert (disk["peak"], disk["limit"], disk["limit_from"]) == (7000.0, 1000.0, "configured")
    assert disk["growth_per_week"] == pytest.approx(-700)
    assert disk["used_share"] == pytest.approx(1000 / disk["p95"])
    assert disk["weeks_to_limit"] == pytest.approx((disk["p95"] - 1000) / 700)
    memory = found["n2", "memory_used"]
    assert (memory["used_share"], memory["weeks_to_limit"]) == (0.2, None)


def test_few_days_are_no_trend(spark: SparkSession) -> None:
    nodes, queues = _windows(6)
    frame = capacity(_rows(spark, NODE_WINDOWS, nodes), _rows(spark, QUEUE_WINDOWS, queues))
    found = [row for row in frame.collect() if row["name"] == "n1"]
    assert {row["growth_per_week"] for row in found} == {None}
    assert {row["days"] for row in found} == {6}
