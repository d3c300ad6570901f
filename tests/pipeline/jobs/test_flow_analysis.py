"""Steps of the job `flow` on landed rows: killed in the middle of one, it writes nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.telemetry_rows import CULPRIT, NOON, Story, at, planted

from headrace_pipeline.jobs.flow_analysis import AdviceTerms, FlowAnalysis
from headrace_pipeline.jobs.flow_tables import FlowTables, Place
from headrace_pipeline.schema.analysis import ANALYSIS
from headrace_pipeline.transforms.event_time import land
from headrace_pipeline.transforms.horizon import SILENT_S, Told, complete_minutes

FIRST = int(NOON.timestamp()) // 60


def _land(spark: SparkSession, tables: FlowTables, story: Story, batch: int, part: Any) -> None:
    for name, rows in (
        ("flow_samples", story.samples),
        ("flow_events", story.events),
        ("debt_edges", story.edges),
    ):
        frame = land(spark.createDataFrame(rows.filter(part(rows["at"]))))
        tables.by_name[name].write_batch(frame, "landing", batch)


def _rows(folder: Path, name: str) -> list[dict[str, Any]]:
    if not (folder / name).exists():
        return []
    found = pa.table(DeltaTable(folder / name).to_pyarrow_table()).to_pylist()
    rows = [{key: _rounded(value) for key, value in row.items()} for row in found]
    return sorted(rows, key=lambda row: [str(row[key]) for key in ANALYSIS[name].key])


@pytest.mark.full
def test_step_that_dies_between_two_tables_is_done_again_without_a_row_twice(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = planted(200)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    tables = FlowTables(spark, Place(str(whole)))
    _land(spark, tables, story, 0, lambda times: pc.is_valid(times))
    analysis = FlowAnalysis(spark, tables, AdviceTerms())
    assert analysis.next_minutes() == range(FIRST, FIRST + 3)
    analysis.make(range(FIRST, FIRST + 3))
    assert not analysis.next_minutes()

    tables = FlowTables(spark, Place(str(killed)))
    early = pa.scalar(at(130), pa.timestamp("us", tz="UTC"))
    _land(spark, tables, story, 0, lambda times: pc.less(times, early))
    analysis = FlowAnalysis(spark, tables, AdviceTerms())
    assert analysis.next_minutes() == range(FIRST, FIRST + 2)
    with monkeypatch.context() as patch:
        patch.setattr(tables, "write", _dying(tables.write, "queue_windows"))
        with pytest.raises(KeyboardInterrupt):
            analysis.make(range(FIRST, FIRST + 2))
    assert _rows(killed, "blame")
    assert not _rows(killed, "node_windows")
    _land(spark, tables, story, 1, lambda times: pc.greater_equal(times, early))
    again = FlowAnalysis(spark, FlowTables(spark, Place(str(killed))), AdviceTerms())
    assert again.next_minutes() == range(FIRST, FIRST + 3)
    again.make(range(FIRST, FIRST + 3))
    for name in ANALYSIS:
        assert _rows(killed, name) == _rows(whole, name), name
    first = {
        row["window_start"]: row["origin_account"]
        for row in _rows(whole, "blame")
        if row["window_rank"] == 1 and row["window_s"] == 10
    }
    assert {first[at(second)] for second in range(60, 180, 10)} == {CULPRIT}


def _rounded(value: Any) -> Any:
    """Sums of floats depend on the order in which tasks end."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


def _dying(write: Callable[..., None], name: str) -> Callable[..., None]:
    def die(table: str, rows: DataFrame, minutes: range) -> None:
        if table == name:
            raise KeyboardInterrupt
        write(table, rows, minutes)

    return die


NOW = FIRST * 60.0 + 1000


@pytest.mark.parametrize(
    ("nodes", "since", "expected"),
    [
        ([], None, range(0)),
        ([Told("n1", 0, 59.9, 0)], None, range(0)),
        ([Told("n1", 0, 60, 0), Told("n2", 0, 121, 0)], None, range(1)),
        ([Told("n1", 60, 180, 0), Told("n2", 70, 200, 0)], 1, range(1, 3)),
        ([Told("n1", 600, 700, 0)], 1, range(10, 11)),  # nobody told of anything meanwhile
        ([Told("n1", 5, 400, 0), Told("n2", 5, 70, -SILENT_S - 1)], None, range(6)),  # n2 is down
        ([Told("n1", 5, 400, -900), Told("n2", 5, 70, -900)], None, range(1)),  # all were read once
    ],
)
def test_minutes_are_complete_when_all_nodes_that_are_heard_of_have_told_of_later_ones(
    nodes: list[Told], since: int | None, expected: range
) -> None:
    begin = FIRST * 60
    told = [
        each._replace(first=begin + each.first, last=begin + each.last, landed=NOW + each.landed)
        for each in nodes
    ]
    found = complete_minutes(told, since + FIRST if since is not None else None, NOW)
    if not expected:
        assert not found
    else:
        assert found == range(FIRST + expected.start, FIRST + expected.stop)
