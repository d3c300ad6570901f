"""A task that writes: rows in, files written, their statistics out.

A task commits nothing. Each attempt writes files of its own, so that of two attempts, or of one
that dies, nothing is seen but what the driver takes from the one that Spark counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from headrace_pipeline import limits
from headrace_pipeline.error import SchemaError
from headrace_pipeline.schema.column import Kind, Table
from headrace_pipeline.schema.conform import beyond_calendar
from headrace_pipeline.tables.data_file import DataFile
from headrace_pipeline.tables.file_writer import FileWriter
from headrace_pipeline.tables.partition import directory_of, partition_columns, text_of
from headrace_pipeline.tables.place import Place

RESULT: Final = "file string"  # Spark's schema of what a task gives

_OF_CALENDAR: Final = frozenset({Kind.TIMESTAMP, Kind.DATE})

_Key = tuple[str | None, ...]


class Write(NamedTuple):
    """Settings of tasks that write; can be pickled."""

    place: Place  # of the table
    table: Table  # whose columns rows have, in order
    below: str = ""  # directory for the files, below the table's; "" for the table's own
    rows_target: int = limits.FILE_ROWS_TARGET  # at which a file is finished
    bytes_target: int = limits.FILE_BYTES_TARGET  # likewise, compressed
    buffer_bytes_max: int = limits.TASK_BUFFER_BYTES_MAX  # of rows that are held


def write_files(write: Write, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows, and give a row for each file (column `file`: JSON of a `DataFile`).

    Args:
        write: what the task is told.
        batches: its rows; their columns stand in any order.

    Yields:
        One batch, when all files are whole; without rows where none were given. Files are no part
        of the table before a commit names them.

    Raises:
        SchemaError: a column that is required has a null, or one has an instant or day that no
            calendar has. Files that are not finished are removed; vacuum takes the others.
        PipelineError: the object store says no; likewise.
        OSError: the file system says no; likewise.
    """
    files = list(written(write, batches))
    texts = [msgspec.json.encode(file).decode() for file in files]
    yield pa.record_batch({"file": pa.array(texts, pa.string())})


def written(write: Write, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
    """Write rows and give the files when they are finished.

    Raises:
        SchemaError: see `write_files`; so is OSError.
    """
    task = _Task(write)
    try:
        for batch in batches:
            with write.place.told():
                task.add(cast(batch, write.table))
            yield from task.take_finished()
        with write.place.told():
            task.finish_all()
        yield from task.take_finished()
    except BaseException:
        task.abandon()
        raise


def cast(batch: pa.RecordBatch, table: Table) -> pa.RecordBatch:
    """Return a batch with exactly the types of a table, whose columns it has.

    Raises:
        SchemaError: a column that is required has a null, or one has an instant or day that no
            calendar has: Python and other readers of Parquet would fail on it.
    """
    schema = table.arrow()
    arrays = [batch.column(field.name).cast(field.type) for field in schema]
    for column, array in zip(table.columns, arrays, strict=True):
        if column.required and array.null_count:
            raise SchemaError(
                f"column {column.name} of {table.name} has {array.null_count} nulls, and must "
                "have none: look at what computes it"
            )
        wrong = beyond_calendar(array) if column.kind in _OF_CALENDAR else None
        if wrong is not None:
            raise SchemaError(
                f"column {column.name} of {table.name} has a time out of the years 1 to 9999 in "
                f"{_row_name(batch, table, wrong)}: correct it, or write null"
            )
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _row_name(batch: pa.RecordBatch, table: Table, place: int) -> str:
    """Return what to call a row: by its key, where that can be printed."""
    names = [column.name for column in table.columns if column.name in table.key]
    kinds = {column.kind for column in table.columns if column.name in table.key}
    if not names or kinds & _OF_CALENDAR:
        return f"row {place} of a batch of {batch.num_rows}"
    values = [f"{name} = {batch.column(name)[place].as_py()!r}" for name in names]
    return f"the row with {', '.join(values)}"


class _Task:
    def __init__(self, write: Write) -> None:
        self._write = write
        self._columns = partition_columns(write.table)
        self._open: dict[_Key, FileWriter] = {}
        self._finished: list[DataFile] = []
        self._name = f"part-{uuid.uuid4()}"
        self._files = 0

    def add(self, batch: pa.RecordBatch) -> None:
        for key, rows in self._divided(batch):
            file = self._file(key)
            file.add(rows)
            if file.held_bytes >= limits.ROW_GROUP_BYTES:
                file.write()
            if file.rows >= self._write.rows_target or file.byte_count >= self._write.bytes_target:
                self._finish(key)
        self._make_room()

    def take_finished(self) -> list[DataFile]:
        finished, self._finished = self._finished, []
        return finished

    def finish_all(self) -> None:
        for key in list(self._open):
            self._finish(key)

    def abandon(self) -> None:
        for file in self._open.values():
            file.abandon()
        self._open.clear()

    def _divided(self, batch: pa.RecordBatch) -> Iterator[tuple[_Key, pa.RecordBatch]]:
        """Give the rows of each partition, in order, and the texts that name it."""
        if not batch.num_rows:
            return
        codes = np.zeros(batch.num_rows, np.int64)
        values: list[list[str | None]] = []
        for column in self._columns:
            coded = batch.column(column.name).dictionary_encode("encode")
            texts = [text_of(value) for value in coded.dictionary.to_pylist()]
            codes = codes * len(texts) + coded.indices.to_numpy()
            values.append(texts)
        order = np.argsort(codes, kind="stable")
        ordered, sizes = np.unique(codes, return_counts=True)
        rows, start = batch.take(pa.array(order)) if len(ordered) > 1 else batch, 0
        for code, size in zip(ordered.tolist(), sizes.tolist(), strict=True):
            yield _key(code, values), rows.slice(start, size)
            start += size

    def _file(self, key: _Key) -> FileWriter:
        if key not in self._open:
            if len(self._open) >= limits.OPEN_FILES_MAX:
                self._finish(max(self._open, key=lambda each: self._open[each].rows))
            names = (column.name for column in self._columns)
            partition = dict(zip(names, key, strict=True))
            name = f"{self._name}-{self._files:05d}.zstd.parquet"
            parts = self._write.below, directory_of(partition), name
            path = "/".join(part for part in parts if part)
            self._files += 1
            self._open[key] = FileWriter(self._write.place, self._write.table, path, partition)
        return self._open[key]

    def _finish(self, key: _Key) -> None:
        self._finished.append(self._open[key].finish())
        del self._open[key]

    def _make_room(self) -> None:
        held = sum(file.held_bytes for file in self._open.values())
        while held > self._write.buffer_bytes_max:
            file = max(self._open.values(), key=lambda each: each.held_bytes)
            held -= file.held_bytes
            file.write()


def _key(code: int, values: list[list[str | None]]) -> _Key:
    key: list[str | None] = []
    for texts in reversed(values):
        code, index = divmod(code, len(texts))
        key.append(texts[index])
    return tuple(reversed(key))
