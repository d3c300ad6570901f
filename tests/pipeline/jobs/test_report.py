"""From tables on a disk to a page."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from tests.pipeline.analysis_frames import MONDAY, Story

from headrace_pipeline.cli.instant import read_instant
from headrace_pipeline.cli.report import report
from headrace_pipeline.error import OptionError, PipelineError
from headrace_pipeline.jobs import report as job
from headrace_pipeline.report.frames import Frames, Span, nothing
from headrace_pipeline.schema import analysis

SPAN = Span(MONDAY, MONDAY + timedelta(hours=1), 60)
HISTORY = timedelta(days=28)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An hour in which `loud` floods the queue `orders`, and the hour before."""
    place = tmp_path_factory.mktemp("tables")
    story = Story(Span(MONDAY - timedelta(hours=1), MONDAY + timedelta(hours=1), 60))
    for step in range(120):
        blocked = 30_000 if 80 <= step < 90 else 0
        limits = {"blocked_watermark_ms": blocked, "published_rate_p95": 100.0}
        story.queue(step, "orders", 100 + blocked / 100, 100, blocked_ms=blocked, **limits)
        story.node(step, "n1", 100)
        story.brought(step, "orders", "loud", 10 + blocked / 100, "shop")
        if blocked:
            story.blame(step, "orders", blocked, {"loud": 0.9, "calm": 0.1})
            story.slow(step, "orders", analysis.CONSUMERS_SATURATED, 60, "two are busy")
    for table in analysis.ANALYSIS.values():
        rows = [dict.fromkeys(table.names) | row for row in story.rows[table.name]]
        if rows:
            arrow = pa.Table.from_pylist(rows, table.arrow())
            write_deltalake(place / table.name, arrow, partition_by=list(table.partition_by))
    return str(place)


KNEES = [("queue", "/", "orders", 800.0), ("node", None, "n1", 12000.5)]


@pytest.fixture(scope="module")
def frames(spark: SparkSession, tables: str) -> Frames:
    """Return the input of a report of the second hour."""
    analysis_of = job.read_tables(spark, job.TablesAt(tables), SPAN, HISTORY)
    return job.collect(analysis_of, SPAN, job.knee_frame(spark, KNEES))


def test_a_page_is_made_of_what_tables_hold(frames: Frames, tables: str, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    byte_count = job.write_report(frames, SPAN, tables, out)
    text = out.read_text(encoding="utf-8")
    assert out.stat().st_size == byte_count
    assert list(tmp_path.iterdir()) == [out]
    said = re.sub("<[^>]*>", "", text).replace("\u202f", " ")
    assert "orders blocked publishers for 5 min in sum (100 % of all blocked time)" in said
    assert "loud is blamed for 90 % of the waiting at orders" in said
    assert "Telemetry covers 100 % of the time of 1 node" in said
    assert frames.queues["published"].sum() == 60 * 60 * 100 + 10 * 60 * 300


def test_what_is_not_there_is_said_with_the_job_that_makes_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(PipelineError, match=r"no table queue_windows below .*run flow"):
        job.read_tables(spark, job.TablesAt(str(tmp_path)), SPAN, HISTORY)


def test_limits_that_were_measured_are_what_peaks_are_held_against(
    frames: Frames, tmp_path: Path
) -> None:
    file = tmp_path / "knees.csv"
    file.write_text("kind,vhost,name,knee\nqueue,/,orders,800\nnode,,n1,12000.5\n")
    assert job.read_knees(file) == KNEES
    limits = frames.capacity.set_index("name")["limit"]
    assert (limits["orders"], limits["n1"]) == (800.0, 12000.5)


@pytest.mark.parametrize(
    "line", ["queue,/,orders", "queue,/,orders,fast", "shop,/,orders,1", "node,,n1,-1", "node,,,1"]
)
def test_a_file_of_limits_that_is_wrong_says_where(tmp_path: Path, line: str) -> None:
    file = tmp_path / "knees.csv"
    file.write_text(f"kind,vhost,name,knee\nnode,,n1,5\n{line}\n")
    with pytest.raises(OptionError, match="line 3 is not"):
        job.read_knees(file)


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be written"):
        job.write_report(nothing(), SPAN, "x", tmp_path / "no" / "report.html")
    taken = tmp_path / "taken"
    (taken / "inside").mkdir(parents=True)
    with pytest.raises(OptionError, match="cannot be written"):
        job.write_report(nothing(), SPAN, "x", taken)
    assert [each.name for each in tmp_path.iterdir()] == ["taken"]


def test_times_are_utc_or_ages() -> None:
    assert read_instant("2026-11-16") == MONDAY
    assert read_instant("2026-11-16T01:00+01:00") == MONDAY
    before = datetime.now(UTC)
    found = read_instant("7d")
    assert before <= found + timedelta(days=7) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "yesterday"], "such as 7d"),
        (["--from", "0d"], "such as 7d"),
        (["--from", "2026-11-16", "--to", "2026-11-15"], "must be before --to"),
        (["--format", "csv"], "'csv' is not one of"),
        (["--endpoints", ""], "--endpoints"),
    ],
)
def test_wrong_options_are_refused_before_spark_starts(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(report, arguments)
    assert result.exit_code == 2
    assert said in result.output
