"""Minutes become steps: sums, peaks and last values are those of the minutes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.analysis_frames import MONDAY, Story

from headrace_pipeline.report.frames import Span
from headrace_pipeline.schema import analysis
from headrace_pipeline.schema.column import Table
from headrace_pipeline.transforms.condense import condense, condense_advice, condense_bottlenecks

STEP_S = 600


@pytest.fixture(scope="module")
def story() -> Story:
    """Half an hour of two queues, in minutes."""
    told = Story(Span(MONDAY, MONDAY + timedelta(minutes=30), 60))
    for step in range(30):
        told.queue(step, "a", step, step, ready_max=step % 10, leader=f"n{step // 10}")
        told.node(step, "n1", 10, left_out=1, skew_ms=step)
        told.blame(step, "a", 100, {"x": 0.75, "y": 0.25})
        told.slow(step, "a", analysis.CLASSES[step % 2], 60, f"because {step}")
        figures = {"arrival_rate_p95": float(step), "service_rate": 1.0}
        told.advise(step, "a", 2, 2 + step % 5, **figures)
    told.queue(3, "b", 60, 60)
    told.queue(4, "a", 9999, 9999)
    told.rows["queue_windows"][-1]["window_s"] = analysis.SHORT_S
    return told


def frame(spark: SparkSession, story: Story, table: Table) -> DataFrame:
    rows = pa.Table.from_pylist(
        [dict.fromkeys(table.names) | row for row in story.rows[table.name]], table.arrow()
    )
    return spark.createDataFrame(rows, table.spark())


def rows(found: DataFrame, table: Table) -> list[dict[str, Any]]:
    arrow = found.toArrow()
    assert arrow.column_names == list(table.names)
    assert arrow.schema.types == table.arrow().types
    return sorted(arrow.to_pylist(), key=lambda row: [str(row[name]) for name in table.key])


def test_queues_of_minutes_are_summed_in_steps(spark: SparkSession, story: Story) -> None:
    table = analysis.QUEUE_WINDOWS
    found = rows(condense(frame(spark, story, table), table, STEP_S), table)
    a = [row for row in found if row["queue"] == "a"]
    assert [row["window_start"] for row in a] == [
        MONDAY + timedelta(minutes=minutes) for minutes in (0, 10, 20)
    ]
    assert [row["published"] for row in a] == [
        sum(range(begin, begin + 10)) * 60 for begin in (0, 10, 20)
    ]
    assert [row["ready_max"] for row in a] == [9, 9, 9]
    assert [row["leader"] for row in a] == ["n0", "n1", "n2"]
    assert {row["window_s"] for row in found} == {STEP_S}
    assert [row["published"] for row in found if row["queue"] == "b"] == [3600]


def test_nodes_and_blame_keep_their_sums(spark: SparkSession, story: Story) -> None:
    table = analysis.NODE_WINDOWS
    nodes = rows(condense(frame(spark, story, table), table, STEP_S), table)
    assert [(row["left_out"], row["skew_ms"], row["samples"]) for row in nodes] == [
        *((10, 9, 600), (10, 19, 600), (10, 29, 600))
    ]
    table = analysis.BLAME
    blamed = rows(condense(frame(spark, story, table), table, 3600), table)
    assert {row["account_name"]: row["blamed_ms"] for row in blamed} == {"x": 2250, "y": 750}


def test_a_class_holds_for_as_long_as_its_minutes(spark: SparkSession, story: Story) -> None:
    table = analysis.BOTTLENECKS
    found = rows(condense_bottlenecks(frame(spark, story, table), STEP_S), table)
    assert len(found) == 6
    assert {row["window_s"] for row in found} == {300}
    assert {row["because"] for row in found[-2:]} == {"because 28", "because 29"}


def test_of_advice_that_which_changes_most_stays(spark: SparkSession, story: Story) -> None:
    table = analysis.CONSUMER_ADVICE
    found = rows(condense_advice(frame(spark, story, table), STEP_S), table)
    assert [(row["advised"], row["arrival_rate_p95"]) for row in found] == [
        *((6, 9.0), (6, 19.0), (6, 29.0))
    ]
