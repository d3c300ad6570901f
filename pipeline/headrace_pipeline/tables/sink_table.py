"""A table that Spark writes batch by batch, each once, and reads without a library of the JVM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from headrace_pipeline.error import OptionError, PipelineError
from headrace_pipeline.limits import FILES_PER_COMMIT_MAX, GATHER_TASKS_MAX
from headrace_pipeline.schema.column import Table
from headrace_pipeline.tables.data_file import DataFile
from headrace_pipeline.tables.delta import DeltaLog
from headrace_pipeline.tables.evolution import absent_columns, missing_columns, stored_table
from headrace_pipeline.tables.parquet import STAGED, ParquetLog
from headrace_pipeline.tables.partition import partition_columns
from headrace_pipeline.tables.place import Place, place_of
from headrace_pipeline.tables.read import read_files
from headrace_pipeline.tables.table_log import Snapshot
from headrace_pipeline.tables.where import conditions, may_match
from headrace_pipeline.tables.write_task import RESULT, Write, write_files

Format = Literal["delta", "parquet"]


class Written(NamedTuple):
    """Result of writing a batch."""

    version: int | None  # of the table that has it; None where no commit was made
    files: int  # that were added
    rows: int  # in these
    byte_count: int  # of these
    skipped: bool  # whether the batch was there already


class SinkTable:
    """A table at a place."""

    def __init__(self, place: Place, table: Table, log: DeltaLog, gather: bool) -> None:
        partition_columns(table)
        self.place = place
        self.table = table  # its columns, partitions and name
        self.log = log  # its commits
        # whether rows of a partition are brought together before they are written, which makes
        # fewer and larger files for a shuffle
        self._gather = gather

    def exists(self) -> bool:
        """Say whether anything was ever written to it."""
        return self.log.snapshot() is not None

    def last_batch(self, app_id: str) -> int | None:
        """Return the greatest batch of an application that is in the table, or None."""
        return self.log.last_batch(app_id)

    def write_batch(self, rows: DataFrame, app_id: str, batch_id: int) -> Written:
        """Write rows once for (app_id, batch_id), however often it is tried.

        Tasks write files; the driver makes them part of the table in one commit that says whose
        batch it was. What tasks wrote for a batch that did not come so far is never seen, and is
        removed by `vacuum`.

        Args:
            rows: columns by name, in any order; those missing are null.
            app_id: of a stream, such as its query's id (`query_id`).
            batch_id: never falls within the app: one that is not above the last is skipped.

        Raises:
            SchemaError: rows or the table have other columns or types. Nothing is written.
            ConflictError: others were faster each time. Nothing is seen.
        """
        absent = absent_columns(rows.schema, self.table)
        last = self.log.last_batch(app_id)
        if last is not None and last >= batch_id:
            return Written(None, 0, 0, 0, True)
        nulls = {field.name: F.lit(None).cast(field.dataType) for field in absent}
        whole = self._gathered(rows.withColumns(nulls).select(*self.table.names))
        write = Write(self.place, self.table, self.log.staging())
        results = whole.mapInArrow(partial(write_files, write), RESULT)
        return self.commit_files(_collected(results), app_id, batch_id)

    def commit_files(self, files: Sequence[DataFile], app_id: str, batch_id: int) -> Written:
        """Make files that tasks have written part of the table; see `write_batch`.

        Raises:
            SchemaError: the table has other types or partitions.
            ConflictError: others were faster each time.
        """
        if not files:
            return Written(None, 0, 0, 0, False)
        version = self.log.commit(files, app_id, batch_id)
        if version is None:
            return Written(None, 0, 0, 0, True)
        rows, byte_count = sum(file.rows for file in files), sum(file.byte_count for file in files)
        return Written(version, len(files), rows, byte_count, False)

    def files(
        self, where: Iterable[tuple[str, Any, Any]] = (), version: int | None = None
    ) -> tuple[DataFile, ...]:
        """Return the files that may hold rows that fulfil all conditions (see `read`)."""
        found = self._snapshot(version)
        if found is None:
            return ()
        chosen = conditions(self.table, where)
        return tuple(file for file in found.files if may_match(file, self.table, chosen))

    def read(
        self,
        spark: SparkSession,
        columns: Sequence[str] | None = None,
        where: Iterable[tuple[str, Any, Any]] = (),
        version: int | None = None,
    ) -> DataFrame:
        """Return rows, of one version; columns that files lack are null.

        Args:
            spark: which reads them.
            columns: to be read; None for all.
            where: (column, operator, value), all of which hold for each row: see `Where`. Files
                whose partition or bounds rule that out are not opened.
            version: None for the newest.

        Returns:
            Rows; none where nothing was ever written.

        Raises:
            SchemaError: there is no such column, or the table has other types.
            PipelineError: there is no such version.
        """
        chosen = conditions(self.table, where)
        files = self.files(chosen, version)
        return read_files(spark, self.place, self.table, files, columns, chosen)

    def _snapshot(self, version: int | None) -> Snapshot | None:
        found = self.log.snapshot(version)
        if found is None and version is not None:
            raise PipelineError(f"{self.place.uri}: there is no table")
        if found is not None:
            missing_columns(found.stored, self.table, self.place.uri)
        return found

    def _gathered(self, rows: DataFrame) -> DataFrame:
        if not (self._gather and self.table.partition_by):
            return rows
        tasks = min(max(rows.sparkSession.sparkContext.defaultParallelism, 1), GATHER_TASKS_MAX)
        return rows.repartition(tasks, *self.table.partition_by)


def open_table(
    uri: str,
    table: Table,
    format: Format = "delta",  # noqa: A002 - as Spark calls it
    *,
    storage_options_file: str | None = None,
    gather: bool = True,
) -> SinkTable:
    """Return a table; nothing is read or written yet.

    Args:
        uri: a path, or for Delta the URI of an object store.
        table: its columns, partitions and name.
        format: "delta" or "parquet".
        storage_options_file: path of a JSON object with the object store's options.
        gather: see `SinkTable`.

    Raises:
        OptionError: the place or format is none.
        SchemaError: the table cannot be partitioned as declared.
    """
    place = place_of(uri, storage_options_file)
    return SinkTable(place, table, _log(place, table, format), gather)


def open_stored(uri: str, *, storage_options_file: str | None = None) -> SinkTable:
    """Return a table with the columns and in the form that it has on the disk.

    Raises:
        OptionError: the place is none.
        PipelineError: there is no table.
        SchemaError: it has a type that we have no word for.
    """
    place = place_of(uri, storage_options_file)
    name = place.uri.rpartition("/")[2]
    form = "parquet" if _is_plain(place) else "delta"
    found = _log(place, Table(name, ()), form).snapshot()
    if found is None:
        raise PipelineError(f"{place.uri}: there is no table")
    table = stored_table(found.stored, name)
    return SinkTable(place, table, _log(place, table, form), gather=True)


def _is_plain(place: Place) -> bool:
    """Return whether a plain Parquet table was begun at a place."""
    return place.local and Path(place.uri, STAGED).is_dir()


def _log(place: Place, table: Table, form: str) -> DeltaLog:
    """Return the log of commits of a table.

    Raises:
        OptionError: there is no such form, or the table at the place has the other one.
    """
    plain = _is_plain(place)
    if form != "parquet" and plain:
        raise OptionError("format", f"must be parquet: {place.uri} was written so")
    if form == "parquet" and not plain and place.local and Path(place.uri, "_delta_log").is_dir():
        raise OptionError("format", f"must be delta: {place.uri} was written so")
    if form == "delta":
        return DeltaLog(place, table)
    if form == "parquet":
        return ParquetLog(place, table)
    raise OptionError("format", f"must be delta or parquet, not {form!r}")


def query_id(rows: DataFrame) -> str:
    """Return the id of the query of the current batch, within `foreachBatch`.

    It belongs to the checkpoint, so it outlives the driver.

    Raises:
        PipelineError: no streaming query runs here.
    """
    found = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not found:
        raise PipelineError("query_id is known only to the function of foreachBatch")
    return found


def _collected(results: DataFrame) -> list[DataFile]:
    rows = results.collect()
    if len(rows) > FILES_PER_COMMIT_MAX:
        raise PipelineError(
            f"a batch makes more than {FILES_PER_COMMIT_MAX} files: partition by columns with "
            "fewer values, or make batches smaller"
        )
    return [msgspec.json.decode(row.file, type=DataFile) for row in rows]
