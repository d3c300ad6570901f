"""Tables against a naive model: whatever happens in whatever order, each batch is there once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.pipeline.tables.table_rows import THINGS, THINGS_2, Row, read_rows, row, run_tasks

from headrace_pipeline.schema.column import Table
from headrace_pipeline.tables import SinkTable, open_table
from headrace_pipeline.tables.sink_table import Format

SMALL = 10**9  # bytes: all files are smaller, so compaction takes them all


class NaiveTable(RuleBasedStateMachine):
    """Two drivers with streams of their own, compaction, vacuum, crashes and a new release."""

    format: Format

    @initialize()
    def begin(self) -> None:
        """Make an empty directory; the model is a list of rows, and batches by application."""
        self.folder = tempfile.TemporaryDirectory(prefix="headrace-table-")
        self.path = str(Path(self.folder.name, "a table [1]"))
        self.rows: list[Row] = []
        self.batches: dict[str, int] = {}
        self.versions: dict[int, list[int]] = {}
        self.table = THINGS
        self.next = 0

    def teardown(self) -> None:
        """Remove it."""
        self.folder.cleanup()

    def opened(self, table: Table | None = None) -> SinkTable:
        """Open the table anew, as each driver does."""
        return open_table(self.path, table or self.table, self.format)

    def new_rows(self, count: int) -> list[Row]:
        self.next += count
        return [row(number, self.table) for number in range(self.next - count, self.next)]

    @rule(app=st.sampled_from("ab"), count=st.integers(1, 25), ahead=st.integers(1, 3))
    def write(self, app: str, count: int, ahead: int) -> None:
        """A batch comes through; its number is above the last one."""
        sink, rows = self.opened(), self.new_rows(count)
        batch = self.batches.get(app, -1) + ahead
        done = sink.commit_files(run_tasks(sink, rows), app, batch)
        assert (done.rows, done.skipped) == (count, False)
        self.rows += rows
        self.batches[app] = batch
        assert done.version is not None
        self.versions[done.version] = [each["number"] for each in self.rows]

    @rule(app=st.sampled_from("ab"), count=st.integers(1, 25), before=st.integers(0, 2))
    def write_again(self, app: str, count: int, before: int) -> None:
        """A driver that died after its commit writes the batch again, in other files."""
        if self.batches.get(app, -1) - before >= 0:
            sink, rows = self.opened(), [row(number, self.table) for number in range(count)]
            files = run_tasks(sink, rows, tasks=3)
            done = sink.commit_files(files, app, self.batches[app] - before)
            assert done.skipped
            assert done.version is None

    @rule(count=st.integers(1, 25))
    def die_before_the_commit(self, count: int) -> None:
        """Tasks have written, and no driver takes their files."""
        run_tasks(self.opened(), self.new_rows(count))

    @rule()
    def upgrade(self) -> None:
        """From here on rows have two columns more; older ones have nulls there."""
        self.table = THINGS_2

    @rule()
    def compact(self) -> None:
        """Small files become larger ones."""
        self.opened().log.compact(SMALL, dry_run=False)

    @rule()
    def vacuum(self) -> None:
        """All that is not of the newest version goes."""
        self.opened().log.vacuum(0, dry_run=False)
        self.versions.clear()

    @invariant()
    def is_the_same(self) -> None:
        """The table has the model's rows, and knows its batches."""
        for table in (self.table, THINGS):  # a reader of the older release sees no new columns
            rows = sorted(self.rows, key=lambda each: each["number"])
            expected = [{name: each.get(name) for name in table.names} for each in rows]
            assert read_rows(self.opened(table)) == expected
        sink = self.opened()
        assert {app: sink.last_batch(app) for app in "ab"} == {
            app: self.batches.get(app) for app in "ab"
        }

    @invariant()
    def versions_stay(self) -> None:
        """Versions of the past have what they had."""
        for version, numbers in list(self.versions.items())[-3:]:
            found = read_rows(self.opened(), version)
            assert [each["number"] for each in found] == sorted(numbers)


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_batches_are_there_once(form: Format) -> None:
    """Any order of what drivers do leaves the rows of the batches that came through."""

    class Formed(NaiveTable):
        format = form

    case = Formed.TestCase
    case.settings = settings(
        max_examples=10,
        stateful_step_count=10,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    case().runTest()
