"""A small table for tests, its rows, and what tasks and readers do without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from headrace_pipeline.schema.column import Column, Kind, Table
from headrace_pipeline.tables import SinkTable
from headrace_pipeline.tables.data_file import DataFile
from headrace_pipeline.tables.file_rows import file_rows
from headrace_pipeline.tables.write_task import Write, written

Row = dict[str, Any]

THINGS: Final = Table(
    "things",
    (
        Column("number", Kind.INT64, required=True),
        Column("name", Kind.UTF8),
        Column("at", Kind.TIMESTAMP),
        Column("share", Kind.FLOAT64),
        Column("body", Kind.BINARY),
        Column("flag", Kind.BOOL),
        Column("day", Kind.DATE),
    ),
    partition_by=("name", "day"),
    key=("number",),
)

# The same, one release later.
THINGS_2: Final = THINGS._replace(
    columns=(*THINGS.columns, Column("colour", Kind.UTF8, since=2), Column("size", Kind.INT32, 2))
)

# What people call queues, and what a path must not see; the empty text is null in Delta.
NAMES: Final = ("plain", "a/b c%:é+", "x=y", None, "{[*?]}\\^,", "日本", "a'\"#", "%2F")
_START: Final = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)


def row(number: int, table: Table = THINGS) -> Row:
    """Return the row of a number: the same each time, an hour later than the one before."""
    at = _START + dt.timedelta(hours=number, microseconds=number)
    whole = {
        "number": number,
        "name": NAMES[number % len(NAMES)],
        "at": at,
        "share": number / 7,
        "body": bytes([number % 256]) * (number % 5),
        "flag": number % 2 == 0,
        "day": at.date(),
        "colour": f"colour {number}",
        "size": number % 100,
    }
    return {name: whole[name] for name in table.names}


def batches_of(rows: list[Row], table: Table) -> list[pa.RecordBatch]:
    """Return rows as a task is given them, in batches of ten."""
    return [
        pa.RecordBatch.from_pylist(rows[start : start + 10], table.arrow())
        for start in range(0, len(rows), 10)
    ]


def run_tasks(sink: SinkTable, rows: list[Row], tasks: int = 2, **write: Any) -> list[DataFile]:
    """Do what the tasks of a batch do, and return their files."""
    told = Write(sink.place, sink.table, sink.log.staging(), **write)
    parts = [rows[number::tasks] for number in range(tasks)]
    return [file for part in parts for file in written(told, batches_of(part, sink.table))]


def read_rows(sink: SinkTable, version: int | None = None) -> list[Row]:
    """Return all rows, by number."""
    return sorted(rows_of(sink, sink.files(version=version)), key=lambda each: each["number"])


def rows_of(sink: SinkTable, files: Iterable[DataFile]) -> list[Row]:
    """Return the rows of some files."""
    return [
        row
        for file in files
        for batch in file_rows(sink.place.path(file.path), file, sink.table)
        for row in batch.to_pylist()
    ]
