"""Rows of a table's files as a DataFrame."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace_pipeline.error import SchemaError
from headrace_pipeline.schema.column import Table
from headrace_pipeline.tables.data_file import DataFile
from headrace_pipeline.tables.file_rows import file_rows
from headrace_pipeline.tables.parquet import REMOVED
from headrace_pipeline.tables.place import Place
from headrace_pipeline.tables.where import Where, row_filter

_GLOB: Final = re.compile(r"([\\{}\[\]*?,])")


def read_files(
    spark: SparkSession,
    place: Place,
    table: Table,
    files: Sequence[DataFile],
    columns: Sequence[str] | None,
    where: Sequence[Where],
) -> DataFrame:
    """Return the rows of files that fulfil all conditions.

    Local files are read by Spark itself, those of an object store by Python tasks: Spark would need
    a library of the JVM for each store, and its own set of secrets.

    Args:
        spark: which reads them.
        place: of the table.
        table: as declared.
        files: to be read.
        columns: their names, in order; None for all.
        where: the conditions.

    Raises:
        SchemaError: there is no such column.
    """
    names = table.names if columns is None else tuple(columns)
    for name in names:
        if name not in table.names:
            raise SchemaError(f"table {table.name} has no column {name}")
    needed = {*names, *(each.column for each in where)}
    wanted = table.without(*(name for name in table.names if name not in needed))
    if not files:
        rows = spark.createDataFrame([], wanted.spark())
    elif place.local:
        rows = _read_local(spark, place, table, files)
    else:
        rows = read_remote(spark, place, wanted, files)
    return rows.where(row_filter(where)).select(*names)


def _read_local(
    spark: SparkSession, place: Place, table: Table, files: Iterable[DataFile]
) -> DataFrame:
    by_root: defaultdict[str, list[str]] = defaultdict(list)
    for file in files:
        root = place.path(REMOVED) if file.path.startswith(f"{REMOVED}/") else place.uri
        by_root[root].append(_GLOB.sub(r"\\\1", place.path(file.path)))
    reader = spark.read.schema(table.spark())
    parts = [
        reader.option("basePath", root).parquet(*paths).select(*table.names)
        for root, paths in by_root.items()
    ]
    return reduce(DataFrame.union, parts)


def read_remote(
    spark: SparkSession, place: Place, wanted: Table, files: Sequence[DataFile]
) -> DataFrame:
    """Return the rows of files of an object store, a task for each file.

    Args:
        spark: which runs the tasks.
        place: of the table.
        wanted: columns to be read.
        files: at least one.
    """
    texts = [(msgspec.json.encode(file).decode(),) for file in files]
    listed = spark.createDataFrame(texts, "file string").repartition(len(texts))
    return listed.mapInArrow(partial(read_task, place, wanted), wanted.spark())


def read_task(
    place: Place, wanted: Table, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Give the rows of files (column `file`: JSON of a `DataFile`), with exactly these columns.

    Raises:
        PipelineError: the object store says no.
    """
    with place.told():
        filesystem = place.files()
    for batch in batches:
        for text in batch.column("file").to_pylist():
            file = msgspec.json.decode(text, type=DataFile)
            with place.told(), filesystem.open_input_file(file.path) as stream:
                yield from file_rows(stream, file, wanted)
