"""Commits of both forms of a table without Spark: others at once, crashes, and compaction."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.pipeline.tables.table_rows import (
    THINGS,
    THINGS_2,
    come_between,
    read_rows,
    row,
    run_tasks,
)

from headrace_pipeline.cli import main
from headrace_pipeline.error import OptionError, PipelineError
from headrace_pipeline.jobs.compact import compact_table
from headrace_pipeline.tables import ConflictError, SinkTable, open_stored, open_table
from headrace_pipeline.tables.parquet import ParquetLog
from headrace_pipeline.tables.sink_table import Format

MIB = 2**20


@pytest.fixture(params=["delta", "parquet"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], SinkTable]:
    """Open the table as another driver does."""
    return lambda: open_table(str(tmp_path / "table"), THINGS, request.param)


def numbers(sink: SinkTable) -> list[int]:
    return [each["number"] for each in read_rows(sink)]


def write(sink: SinkTable, start: int, count: int, batch: int, app: str = "app") -> None:
    rows = [row(number) for number in range(start, start + count)]
    sink.commit_files(run_tasks(sink, rows), app, batch)


def test_of_two_drivers_with_one_batch_one_comes_through(
    opened: Callable[[], SinkTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one commits between reading the state and the commit."""
    write(opened(), 0, 3, 0)
    late = opened()
    files = run_tasks(late, [row(number) for number in range(3, 6)])
    come_between(monkeypatch, lambda: write(opened(), 3, 3, 1))
    assert late.commit_files(files, "app", 1).skipped
    assert numbers(opened()) == [0, 1, 2, 3, 4, 5]


def test_drivers_of_two_applications_both_come_through(
    opened: Callable[[], SinkTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(opened(), 0, 3, 0)
    late = opened()
    files = run_tasks(late, [row(number) for number in range(3, 6)])
    come_between(monkeypatch, lambda: write(opened(), 6, 3, 7, "other"))
    assert late.commit_files(files, "app", 1).rows == 3
    assert numbers(opened()) == list(range(9))
    assert (opened().last_batch("app"), opened().last_batch("other")) == (1, 7)


def test_of_two_drivers_that_make_the_table_both_come_through(
    opened: Callable[[], SinkTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one makes it after this one has seen none."""
    late = opened()
    files = run_tasks(late, [row(number) for number in range(3)])
    come_between(monkeypatch, lambda: write(opened(), 3, 3, 0, "other"), (type(late.log), "_load"))
    assert late.commit_files(files, "app", 0).rows == 3
    assert numbers(opened()) == list(range(6))


def test_a_driver_that_dies_before_files_are_moved_has_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next access moves the files that the commit names."""
    path = str(tmp_path / "table")
    with monkeypatch.context() as patch:
        patch.setattr(ParquetLog, "_move", lambda *_: None)
        write(open_table(path, THINGS, "parquet"), 0, 3, 0)
    assert os.listdir(tmp_path / "table" / "_staged")
    assert numbers(open_table(path, THINGS, "parquet")) == [0, 1, 2]
    assert os.listdir(tmp_path / "table" / "_staged") == []


def plain_numbers(root: Path) -> list[int]:
    """Return the numbers that a reader sees which lists the directory itself."""
    paths = (each.relative_to(root) for each in root.rglob("*.parquet"))
    seen = [root / each for each in paths if not each.parts[0].startswith("_")]
    return sorted(n for each in seen for n in pq.ParquetFile(each).read()["number"].to_pylist())


@pytest.fixture
def plain(tmp_path: Path) -> Callable[[], SinkTable]:
    """Open a Parquet table with two batches of 8 rows as another driver does."""
    path = str(tmp_path / "plain")
    for batch in range(2):
        write(open_table(path, THINGS, "parquet"), batch * 8, 8, batch)
    return lambda: open_table(path, THINGS, "parquet")


def test_a_compaction_that_dies_before_files_are_moved_has_committed(
    plain: Callable[[], SinkTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next driver moves the new files to their places, and the replaced ones away."""
    root, old = Path(plain().place.uri), plain().log.snapshot()
    assert old is not None
    with monkeypatch.context() as patch:
        patch.setattr(ParquetLog, "_move", lambda *_: None)
        plain().log.compact(MIB, dry_run=False)
    assert plain_numbers(root) == list(range(16))
    assert numbers(plain()) == plain_numbers(root) == list(range(16))
    assert len(plain().files()) == len(list(root.glob("name=*/*/*.parquet"))) == 8
    assert [each["number"] for each in read_rows(plain(), old.version)] == list(range(16))


@pytest.mark.parametrize("step", ["_rows", "_replace"])
def test_of_two_compactions_at_once_one_comes_through(
    plain: Callable[[], SinkTable], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The other one commits before this one reads the files, or before it commits."""
    others = [plain().log]
    original = getattr(ParquetLog, step)

    def late(*arguments: Any) -> Any:
        if others:
            others.pop().compact(MIB, dry_run=False)
        return original(*arguments)

    monkeypatch.setattr(ParquetLog, step, late)
    with pytest.raises(ConflictError, match="another compaction is at work"):
        plain().log.compact(MIB, dry_run=False)
    assert numbers(plain()) == plain_numbers(Path(plain().place.uri)) == list(range(16))


def test_a_table_of_the_other_form_is_refused(tmp_path: Path) -> None:
    forms: list[tuple[Format, Format]] = [("delta", "parquet"), ("parquet", "delta")]
    for form, other in forms:
        write(open_table(str(tmp_path / form), THINGS, form), 0, 3, 0)
        with pytest.raises(OptionError, match=f"format: must be {form}"):
            open_table(str(tmp_path / form), THINGS, other)


def test_two_compactions_of_the_same_files_are_one(opened: Callable[[], SinkTable]) -> None:
    """The later one ends, and rows are there once."""
    for batch in range(3):
        write(opened(), batch * 8, 8, batch)
    found = opened().log.snapshot()
    assert found is not None
    assert opened().log.compact(MIB, dry_run=True)[0].made is None
    before = len(opened().files())
    done = opened().log.compact(MIB, dry_run=False)
    assert all(each.made == 1 for each in done)
    assert len(opened().files()) == before - sum(each.files - 1 for each in done)
    assert numbers(opened()) == list(range(24))
    assert opened().log.compact(MIB, dry_run=False) == []
    late = opened()
    if isinstance(late.log, ParquetLog):
        with pytest.raises(ConflictError, match="another compaction is at work"):
            late.log._compact(list(found.files), MIB)
    assert numbers(opened()) == list(range(24))


def test_compaction_keeps_columns_of_a_newer_release(tmp_path: Path) -> None:
    for form in ("delta", "parquet"):
        path = str(tmp_path / form)
        write(open_table(path, THINGS, form), 0, 8, 0)
        newer = open_table(path, THINGS_2, form)
        newer.commit_files(run_tasks(newer, [row(n, THINGS_2) for n in range(8, 16)]), "app", 1)
        assert compact_table(open_stored(path), MIB, 1, dry_run=False).files == 8
        colours = [each["colour"] for each in read_rows(newer)]
        assert colours == [None] * 8 + [f"colour {number}" for number in range(8, 16)]


def test_vacuum_leaves_what_is_being_written(opened: Callable[[], SinkTable]) -> None:
    """Files of a batch whose commit comes later stay, and orphans of yesterday go."""
    write(opened(), 0, 3, 0)
    orphans = run_tasks(opened(), [row(number) for number in range(3)])
    sink = opened()
    running = run_tasks(sink, [row(number) for number in range(3, 6)])
    for file in orphans:
        os.utime(sink.place.path(file.path), (0, 0))
    report = compact_table(opened(), MIB, 1, dry_run=True)
    assert sorted(report.vacuumed) == sorted(file.path for file in orphans)
    compact_table(opened(), MIB, 1, dry_run=False)
    assert not any(Path(sink.place.path(file.path)).exists() for file in orphans)
    sink.commit_files(running, "app", 1)
    assert numbers(opened()) == list(range(6))


def test_numbers_that_are_not_safe_are_refused(opened: Callable[[], SinkTable]) -> None:
    with pytest.raises(OptionError, match="retention-hours: must be at least 1"):
        compact_table(opened(), MIB, 0, dry_run=True)
    with pytest.raises(OptionError, match="target-bytes: must be at least"):
        compact_table(opened(), 1000, 1, dry_run=True)


def test_the_command_says_what_it_did(opened: Callable[[], SinkTable]) -> None:
    for batch in range(2):
        write(opened(), batch * 8, 8, batch)
    path = opened().place.uri
    command = ["compact", "--table", path, "--target-bytes", str(MIB)]
    dry = CliRunner().invoke(main.make_group(), [*command, "--dry-run"])
    assert "name=plain/day=2026-11-22: 2 files of" in dry.output
    assert dry.output.count("would become fewer") == 8
    done = CliRunner().invoke(main.make_group(), command)
    assert done.output.count("became 1") == 8
    assert "the table has 8 files of" in done.output


def test_no_table_and_no_version_are_told(opened: Callable[[], SinkTable], tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no table"):
        open_stored(str(tmp_path / "nothing"))
    write(opened(), 0, 3, 0)
    with pytest.raises(PipelineError, match="no version 9"):
        opened().files(version=9)


def test_a_parquet_table_in_an_object_store_is_refused() -> None:
    with pytest.raises(OptionError, match="must be delta for an object store"):
        open_table("s3://bucket/table", THINGS, "parquet")


def test_a_parquet_table_of_an_earlier_build_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table" / "_commits").mkdir(parents=True)
    with pytest.raises(OptionError, match="has commits of an earlier build"):
        open_table(str(tmp_path / "table"), THINGS, "parquet")


def test_secrets_stay_out_of_places(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="must hold no password"):
        open_table("s3://key:secret@bucket/table", THINGS)
    file = tmp_path / "options.json"
    file.write_text('{"aws_secret_access_key": "hidden", "aws_region"', encoding="utf-8")
    sink = open_table("s3://bucket/table", THINGS, storage_options_file=str(file))
    with pytest.raises(OptionError, match="must be a JSON object of texts") as caught:
        sink.place.options()
    assert "hidden" not in str(caught.value) + repr(sink.place)
    assert caught.value.__cause__ is None
