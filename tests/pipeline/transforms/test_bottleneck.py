"""Bottleneck classes: one queue for each, and which one goes before which."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession
from tests.pipeline.telemetry_rows import at, same_shape

from headrace_pipeline.schema import analysis
from headrace_pipeline.schema.analysis import BOTTLENECKS, NODE_WINDOWS, QUEUE_WINDOWS
from headrace_pipeline.schema.column import Table
from headrace_pipeline.transforms.bottleneck import bottlenecks

WELL: Final[dict[str, Any]] = {
    "window_s": 60,
    "vhost": "/",
    "published": 6000,
    "delivered": 6000,
    "settled": 6000,
    "published_rate": 100.0,
    "published_rate_p95": 120.0,
    "settled_rate": 100.0,
    "published_rate_max": 130.0,
    "ready_first": 5,
    "ready_last": 0,
    "ready_max": 9,
    "ready_mean": 1.0,
    "waiting_share": 0.2,
    "unacked_mean": 4.0,
    "unacked_first": 4,
    "unacked_last": 4,
    "consumers_min": 4,
    "consumers_max": 4,
    "consumers_mean": 4.0,
    "consumers_busy_mean": 1.0,
    "busy_share": 0.25,
    "pending_share_p95": 0.01,
    "blocked_ms": 0,
    "blocked_commit_ms": 0,
    "saturated_ms": 0,
    "commit_ms_p50": 5.0,
    "commit_ms_p99": 12.0,
    "dead_lettered_failed": 0,
}
SATURATED: Final[dict[str, Any]] = {
    "waiting_share": 1.0,
    "busy_share": 0.98,
    "consumers_busy_mean": 3.9,
    "ready_last": 900,
    "unacked_mean": 40.0,
    "settled_rate": 60.0,
    "settled": 3600,
    "delivered": 3600,
}
UNREAD: Final[dict[str, Any]] = {
    "consumers_min": 0,
    "consumers_max": 0,
    "consumers_mean": 0.0,
    "settled_rate": 0.0,
    "delivered": 0,
    "settled": 0,
    "busy_share": None,
    "ready_last": 9000,
    "ready_max": 9000,
    "waiting_share": 1.0,
    "unacked_mean": 0.0,
    "unacked_first": 0,
    "unacked_last": 0,
}
CASES: Final[dict[str, tuple[dict[str, Any], str | None]]] = {
    "well": ({}, None),
    "saturated": (SATURATED, analysis.CONSUMERS_SATURATED),
    "raft": (
        SATURATED | {"blocked_ms": 9000, "blocked_commit_ms": 9000, "pending_share_p95": 0.9},
        analysis.RAFT_COMMIT,
    ),
    "slow disk": (SATURATED | {"commit_ms_p50": 300.0}, analysis.RAFT_COMMIT),
    "one slow sync": (SATURATED | {"commit_ms_p99": 800.0}, analysis.CONSUMERS_SATURATED),
    "one publisher above its account": (  # nothing is pending: its own limit stops it
        {"blocked_ms": 9000, "blocked_commit_ms": 9000},
        analysis.PUBLISHER_BURST,
    ),
    "older broker": ({"commit_ms_p50": None, "pending_share_p95": None}, None),
    "prefetch of one over a slow network": (
        SATURATED | {"unacked_mean": 4.0, "settled_rate": 2000.0, "settled": 120_000},
        analysis.PREFETCH_OR_SLOW_ACK,
    ),
    "nobody acknowledges": (
        SATURATED | {"settled": 0, "settled_rate": 0.0},
        analysis.PREFETCH_OR_SLOW_ACK,
    ),
    "acknowledged after ten minutes": (
        SATURATED | {"unacked_mean": 40_000.0},
        analysis.PREFETCH_OR_SLOW_ACK,
    ),
    "poison": ({"dead_lettered_failed": 70}, analysis.POISON_OR_CRASH),
    "crash": ({"delivered": 9000}, analysis.POISON_OR_CRASH),
    "one that was given back": ({"delivered": 6005}, None),
    "consumers went": ({"consumers_min": 0}, analysis.POISON_OR_CRASH),
    "burst": ({"published_rate_p95": 400.0, "ready_last": 4000}, analysis.PUBLISHER_BURST),
    "above its watermark": ({"saturated_ms": 500}, analysis.PUBLISHER_BURST),
    "a store that nobody reads": (UNREAD, None),
    "above its watermark and nobody reads": (
        UNREAD | {"saturated_ms": 60_000},
        analysis.CONSUMERS_SATURATED,
    ),
    "full and nobody reads": (
        UNREAD | {"blocked_ms": 50_000, "blocked_watermark_ms": 50_000},
        analysis.CONSUMERS_SATURATED,
    ),
    "stopped for its credit while nobody reads": (
        UNREAD | {"blocked_ms": 9000, "blocked_commit_ms": 9000},
        analysis.PUBLISHER_BURST,
    ),
}


def _rows(spark: SparkSession, table: Table, rows: list[dict[str, Any]]) -> Any:
    filled = [[row.get(name) for name in table.names] for row in rows]
    return spark.createDataFrame(filled, table.spark())


def test_first_class_that_holds_is_told_and_why(spark: SparkSession) -> None:
    minute = {"window_start": at(0), "day": at(0).date()}
    alarmed = {"window_start": at(60), "day": at(60).date()}
    queues = [WELL | minute | {"queue": name} | case for name, (case, _) in CASES.items()]
    queues += [WELL | alarmed | {"queue": "raft"} | CASES["raft"][0]]
    node: dict[str, Any] = {"window_s": 60, "alarm_ms": 0, "memory_alarm_ms": 0, "disk_alarm_ms": 0}
    nodes = [
        node | minute | {"node": "n1", "memory_alarm_ms": 400, "alarm_ms": 400},  # a moment
        node | alarmed | {"node": "n1"},
        node | alarmed | {"node": "n2", "disk_alarm_ms": 9000, "alarm_ms": 9000},
    ]
    frame = bottlenecks(_rows(spark, QUEUE_WINDOWS, queues), _rows(spark, NODE_WINDOWS, nodes))
    assert same_shape(frame, BOTTLENECKS)
    found = {(row["window_start"].minute, row["queue"]): row for row in frame.collect()}
    told = {name: row["bottleneck"] for (minute_of, name), row in found.items() if not minute_of}
    assert told == {name: expected for name, (_, expected) in CASES.items() if expected}
    assert found[1, "raft"]["bottleneck"] == analysis.DISK_ALARM
    assert found[1, "raft"]["because"] == "the disk was full for 9000 ms"
    because = found[0, "saturated"]["because"]
    assert because == "4 consumers are busy 98 % of the time, 100/s come and 60/s go, 900 wait"
    because = found[0, "full and nobody reads"]["because"]
    assert because == (
        "nobody consumes: 100/s come, 9000 wait, publishers were stopped for 50.0 s in sum"
    )
    assert all(row["because"] and "?" not in row["because"] for row in found.values())
