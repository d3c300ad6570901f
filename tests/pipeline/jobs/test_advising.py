"""Advice that is sent to brokers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.telemetry_rows import NOON, at

from headrace_client.advice import CONSUMERS, AdviceItem
from headrace_client.error import NotFoundError
from headrace_pipeline.jobs.advising import give_advice
from headrace_pipeline.schema.analysis import CONSUMER_ADVICE


class _Advice:
    def __init__(self, gone: str = "") -> None:
        self.given: list[AdviceItem] = []
        self._gone = gone

    def put(self, items: list[AdviceItem]) -> None:
        """Take all, or none."""
        if any(each.queue == self._gone for each in items):
            raise NotFoundError("no such queue")
        self.given += items


class _Client:
    def __init__(self, gone: str = "") -> None:
        self.advice = _Advice(gone)


def _row(queue: str, minute: int, advised: int) -> dict[str, Any]:
    start = at(60 * minute)
    return {
        "window_start": start,
        "window_s": 60,
        "vhost": "/",
        "queue": queue,
        "advised": advised,
        "consumers": 2,
        "baseline": 2,
        "began_at": at(0),
        "backlog": 30,
        "valid_until": start + timedelta(seconds=360),
        "arrival_rate_p95": 100.0,
        "service_rate": 25.0,
        "drain_s": 300,
        "wanted": 6,
        "bottleneck": None,
        "because": "2 consumers are too few",
        "day": NOON.date(),
    }


@pytest.mark.parametrize("gone", ["", "removed"])
def test_newest_advice_that_holds_is_given_and_that_on_queues_that_are_gone_is_not(
    spark: SparkSession, gone: str
) -> None:
    rows = [_row("orders", 0, 5), _row("orders", 9, 6), _row("lapsed", 1, 7)]
    rows += [_row("removed", 9, 8)] if gone else []
    filled = [[row[name] for name in CONSUMER_ADVICE.names] for row in rows]
    frame = spark.createDataFrame(filled, CONSUMER_ADVICE.spark())
    client: Any = _Client(gone)
    assert give_advice(client, frame, at(600)) == 1
    [item] = client.advice.given
    figures = {
        "arrival_rate_p95": 100.0,
        "service_rate": 25.0,
        "backlog": 30.0,
        "drain_s": 300.0,
        "consumers": 2.0,
        "baseline": 2.0,
        "wanted": 6.0,
    }
    until_ms = int(at(540 + 360).timestamp() * 1000)
    why = "2 consumers are too few"
    assert item == AdviceItem("/", "orders", CONSUMERS, 6, 2, why, until_ms, figures)
