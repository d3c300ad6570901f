"""Blame: shares, what they sum to, and a culprit that was planted."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from tests.pipeline.telemetry_rows import CULPRIT, NOON, edge, planted, rows, same_shape, stopped

from headrace_pipeline.schema.analysis import BLAME
from headrace_pipeline.schema.log import DEBT_EDGES, FLOW_SAMPLES
from headrace_pipeline.transforms.blame import blame
from headrace_pipeline.transforms.cost import CARRIED_S
from headrace_pipeline.transforms.windows import account_windows, queue_windows


def _blamed(
    spark: SparkSession, samples: list[dict[str, Any]], edges: list[dict[str, Any]]
) -> DataFrame:
    seen = spark.createDataFrame(rows(FLOW_SAMPLES, samples))
    brought = spark.createDataFrame(rows(DEBT_EDGES, edges))
    return blame(queue_windows(seen, seconds=10), account_windows(brought, seen, 10))


def test_blame_is_divided_by_cost_and_added_up_over_queues(spark: SparkSession) -> None:
    samples = [
        stopped(1, "victim", "q1", 600, "queue-commands"),
        stopped(2, "victim", "q1", 300, "queue-commands"),
        stopped(1, "victim", "q2", 100, "queue-commands"),
        stopped(11, "victim", "q1", 50, "queue-commands"),
    ]
    edges = [
        edge(1, "a", "q1", copies=20),
        edge(1, "b", "q1", copies=10),
        edge(1, "b", "q2", copies=10),
        edge(1, "c", "q3", copies=1000),  # stops nobody
        edge(11, "d", "q1", copies=0, owed_messages=5, owed_octets=0),  # brings nothing, but owes
    ]
    frame = _blamed(spark, samples, edges)
    assert same_shape(frame, BLAME)
    second = (fn.unix_seconds("window_start") - int(NOON.timestamp())).alias("second")
    found = {
        (row["second"], row["queue"], row["origin_account"]): row
        for row in frame.select(second, "*").collect()
    }
    names = ("share", "blamed_ms", "queue_rank", "window_blamed_ms", "window_rank")
    assert {key: tuple(row[name] for name in names) for key, row in found.items()} == {
        (0, "q1", "a"): (pytest.approx(2 / 3), pytest.approx(600), 1, pytest.approx(600), 1),
        (0, "q1", "b"): (pytest.approx(1 / 3), pytest.approx(300), 2, pytest.approx(400), 2),
        (0, "q2", "b"): (1.0, 100.0, 1, pytest.approx(400), 2),
        (10, "q1", "d"): (1.0, 50.0, 1, 50.0, 1),
    }


def test_what_is_owed_counts_where_a_backlog_is_why_publishers_are_stopped(
    spark: SparkSession,
) -> None:
    queues = {"full": ("watermark",), "slow": ("credit",), "both": ("watermark", "credit")}
    samples = [stopped(1, "v", name, 100, by) for name, each in queues.items() for by in each]
    edges = [
        row
        for name in queues
        for row in (
            edge(2, "old", name, repaid_messages=1, owed_messages=30, owed_octets=0),
            edge(3, "new", name, copies=10),
        )
    ]
    found = _blamed(spark, samples, edges).collect()
    assert {(row["queue"], row["origin_account"]): row["share"] for row in found} == {
        ("full", "old"): pytest.approx(0.75),
        ("full", "new"): pytest.approx(0.25),
        ("slow", "new"): 1.0,
        ("both", "old"): pytest.approx(0.6),
        ("both", "new"): pytest.approx(0.4),
    }


def test_blame_is_carried_while_nobody_is_told_of(spark: SparkSession) -> None:
    last = 20 + CARRIED_S
    seconds = (1, 31, last, last + 10)
    samples = [stopped(each, "victim", "q1", 100, "watermark") for each in seconds]
    samples += [stopped(31, "victim", "q2", 7, "watermark"), stopped(31, "victim", "q3", 9, "x")]
    edges = [
        edge(11, "old", "q1", copies=1000),
        edge(21, "a", "q1", copies=30),
        edge(21, "b", "q1", copies=10),
        edge(11, "a", "q2", repaid_messages=1, owed_messages=5, owed_octets=0),
        edge(41, "late", "q3", copies=9),  # what comes afterwards is no cause
    ]
    second = (fn.unix_seconds("window_start") - int(NOON.timestamp())).alias("second")
    found = _blamed(spark, samples, edges).select(second, "*").collect()
    told = {(row["second"], row["queue"], row["origin_account"]): row for row in found}
    assert {key: row["blamed_ms"] for key, row in told.items()} == {
        (30, "q1", "a"): pytest.approx(75),
        (30, "q1", "b"): pytest.approx(25),
        (30, "q2", "a"): pytest.approx(7),
        (last, "q1", "a"): pytest.approx(75),
        (last, "q1", "b"): pytest.approx(25),
    }
    assert told[last, "q1", "a"]["day"] == told[last, "q1", "a"]["window_start"].date()


def test_shares_sum_to_one_and_blame_to_what_was_blocked(spark: SparkSession) -> None:
    """In 200 windows made up by chance: some without cost, some without anybody who waits."""
    chance = random.Random(7)  # one frame, for each run of Spark takes a second
    waits = [
        (chance.randrange(2000), chance.choice("abcde"), chance.choice("pqr")) for _ in range(500)
    ]
    samples = [stopped(*each, chance.randrange(1000), "credit") for each in waits]
    edges = [
        edge(chance.randrange(2000), chance.choice("abcde"), chance.choice("pqr"))
        | {"copies": chance.choice([0, chance.randrange(10_000)])}
        | {"octets": chance.choice([0, chance.randrange(1_000_000)])}
        for _ in range(500)
    ]
    found = _blamed(spark, samples, edges).collect()
    by_queue: dict[Any, list[Any]] = {}
    for row in found:
        by_queue.setdefault((row["window_start"], row["queue"]), []).append(row)
    assert len(by_queue) > 100
    for group in by_queue.values():
        assert sum(row["share"] for row in group) == pytest.approx(1)
        assert sum(row["blamed_ms"] for row in group) == pytest.approx(group[0]["blocked_ms"])
        assert all(0 < row["share"] <= 1 for row in group)
        assert min(row["queue_rank"] for row in group) == 1
    blocked: Counter[tuple[int, str]] = Counter()
    for each in samples:
        blocked[_window(each), each["blocked_queue"]] += each["blocked_ms"]
    paid = {(_window(each), each["queue"]) for each in edges if each["copies"] or each["octets"]}
    first = {queue: min(at for at, name in paid if name == queue) for queue in "pqr"}
    assert any(key not in paid and key[0] > first[key[1]] for key in blocked)  # carried
    assert any(at < first[queue] for at, queue in blocked)
    assert CARRIED_S > 2000
    expected = sum(ms for (at, queue), ms in blocked.items() if at >= first[queue])
    assert sum(row["blamed_ms"] for row in found) == pytest.approx(expected)


def _window(row: dict[str, Any]) -> int:
    return int((row["at"] - NOON).total_seconds()) // 10


def _assert_first(spark: SparkSession, seconds: int, exchanges: int) -> int:
    """Check that the culprit ranks first while it does it; return how many edges there are."""
    story = planted(seconds, exchanges)
    samples, edges = spark.createDataFrame(story.samples), spark.createDataFrame(story.edges)
    found = blame(queue_windows(samples, seconds=10), account_windows(edges, samples, 10))
    second = (fn.unix_seconds("window_start") - int(NOON.timestamp())).alias("second")
    first = found.where("window_rank = 1").select(second, "origin_account").distinct().collect()
    worst: dict[int, set[str]] = {}
    for row in first:
        worst.setdefault(row["second"], set()).add(row["origin_account"])
    affected = range(*story.affected, 10)
    assert len(affected) == 12
    assert {each: worst[each] for each in affected} == {each: {CULPRIT} for each in affected}
    others = [names for each, names in worst.items() if each not in affected]
    assert sum(CULPRIT in names for names in others) < len(others) / 2  # by chance only
    return int(story.edges.num_rows)


def test_planted_culprit_ranks_first_in_every_affected_window(spark: SparkSession) -> None:
    assert _assert_first(spark, 240, 1) > 20_000


@pytest.mark.full
def test_planted_culprit_ranks_first_among_millions_of_edges(spark: SparkSession) -> None:
    assert _assert_first(spark, 600, 40) > 2_500_000
