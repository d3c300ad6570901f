"""A small table for tests, its rows, as Spark has them, and what tasks and readers do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace_pipeline.schema.column import Column, Kind, Table
from headrace_pipeline.tables import SinkTable
from headrace_pipeline.tables.data_file import DataFile
from headrace_pipeline.tables.delta import DeltaLog
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


def frame(spark: SparkSession, numbers: range, table: Table = THINGS) -> DataFrame:
    """Return the rows of some numbers as Spark has them."""
    rows = [tuple(row(number, table).values()) for number in numbers]
    return spark.createDataFrame(rows, table.spark())


def whole(rows: DataFrame) -> list[Row]:
    """Return all rows that Spark has by number, instants in UTC."""
    found = []
    for each in rows.collect():
        values = each.asDict()
        values["at"] = values["at"].astimezone(dt.UTC)
        values["body"] = bytes(values["body"])
        found.append(values)
    return sorted(found, key=lambda each: each["number"])


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
    filesystem, found = sink.place.files(), []
    for file in files:
        with filesystem.open_input_file(file.path) as stream:
            for batch in file_rows(stream, file, sink.table):
                found += batch.to_pylist()
    return found


def come_between(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], *steps: tuple[type, str]
) -> None:
    """Run something once, when the next commit has read the state.

    Args:
        monkeypatch: which takes it back.
        act: what happens.
        steps: class and name of the methods after which it does; else those in which a commit of
            either form looks whether its batch is there.
    """
    left = [act]

    def between(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            if left:
                left.pop()()
            return found

        return wrapped

    for owner, name in steps or ((DeltaLog, "_ready"),):
        monkeypatch.setattr(owner, name, between(getattr(owner, name)))
