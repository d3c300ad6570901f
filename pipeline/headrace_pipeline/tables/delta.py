"""Commits of a Delta table, through the library `deltalake`."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction, RemoveAction

from headrace_pipeline.error import OptionError, PipelineError
from headrace_pipeline.limits import COMMIT_PAUSE_S, COMMIT_TRIES_MAX
from headrace_pipeline.schema.column import Kind, Table
from headrace_pipeline.tables.data_file import DataFile, Stats, high_text, low_text
from headrace_pipeline.tables.evolution import Stored, missing_columns
from headrace_pipeline.tables.partition import text_of
from headrace_pipeline.tables.place import Place, sync_local
from headrace_pipeline.tables.table_log import Compaction, ConflictError, Snapshot

_NO_STORE: Final = "Unknown scheme"  # what `deltalake` says where a URI is of no store
_KINDS: Final = {
    "long": Kind.INT64,
    "integer": Kind.INT32,
    "double": Kind.FLOAT64,
    "boolean": Kind.BOOL,
    "string": Kind.UTF8,
    "binary": Kind.BINARY,
    "timestamp": Kind.TIMESTAMP,
    "date": Kind.DATE,
}


class DeltaLog:
    """Commits of a Delta table. Each call sees what is there when it begins."""

    def __init__(self, place: Place, table: Table) -> None:
        self._place = place  # of the table
        self._table = table  # as declared

    def snapshot(self, version: int | None = None) -> Snapshot | None:
        """Return a version, or the newest; None where there is no table.

        Raises:
            PipelineError: there is no such version, or the object store says no.
        """
        try:
            with self._place.told():
                found = self._load(version)
        except DeltaError as error:
            raise PipelineError(f"{self._place.uri}: no version {version}: {error}") from None
        if found is None:
            return None
        return Snapshot(found.version(), stored_of(found), files_of(found))

    def last_batch(self, app_id: str) -> int | None:
        """Return the greatest batch of an application that is in the table, or None.

        Raises:
            PipelineError: the object store says no.
        """
        with self._place.told():
            found = self._load()
        return None if found is None else found.transaction_version(app_id)

    def staging(self) -> str:
        """Return the table's own directory: what no commit names is not seen."""
        return ""

    def commit(self, files: Sequence[DataFile], app_id: str, batch_id: int) -> int | None:
        """Make files part of the table, once for (app_id, batch_id).

        The table is made, and columns are added, where that is needed.

        That the batch is not there is asked of the version that the commit builds upon, and
        `deltalake` refuses it where another commit of the application came after that.

        Returns:
            The version, or None where a batch as new as this was there already: then the files are
            no part of the table.

        Raises:
            SchemaError: the table has other types or partitions.
            ConflictError: others were faster each time.
            PipelineError: the object store says no. The commit may be there or not: who tries the
                batch again finds out.
        """
        with self._place.told():
            return self._commit(files, app_id, batch_id)

    def _commit(self, files: Sequence[DataFile], app_id: str, batch_id: int) -> int | None:
        actions: list[AddAction | RemoveAction] = [add_action(file) for file in files]
        mine = CommitProperties(app_transactions=[Transaction(app_id, batch_id)])
        failure: DeltaError | None = None
        for _ in _attempts():
            try:
                found = self._ready()
                last = found.transaction_version(app_id)
                if last is not None and last >= batch_id:
                    return None
                found.create_write_transaction(
                    actions,
                    "append",
                    found.schema(),
                    list(self._table.partition_by),
                    commit_properties=mine,
                )
            except CommitFailedError as error:
                failure = error
                continue
            return self._synced(found)
        raise ConflictError(f"{self._place.uri}: others write all the time: {failure}")

    def compact(self, target_bytes: int, dry_run: bool) -> list[Compaction]:
        """Make large files of small ones, a commit for each partition; rows stay the same.

        Raises:
            ConflictError: someone else took the same files away; partitions before are done.
            PipelineError: the object store says no; likewise.
        """
        done = []
        with self._place.told():
            found = self._load()
            for small in small_files(files_of(found), target_bytes) if found else ():
                partition = small[0].partition
                made = None if dry_run else self._compact(small, target_bytes)
                byte_count = sum(file.byte_count for file in small)
                done.append(Compaction(partition, len(small), byte_count, made))
        return done

    def vacuum(self, retention_hours: float, dry_run: bool) -> list[str]:
        """Remove files that no version of the last hours holds; return them.

        Of files that no version ever held, those go that were written before these hours.

        Raises:
            PipelineError: the object store says no.
        """
        hours = round(retention_hours)
        with self._place.told():
            found = self._load()
            if found is None:
                return []
            return found.vacuum(hours, dry_run, enforce_retention_duration=False, full=True)

    def _load(self, version: int | None = None) -> DeltaTable | None:
        """Return a version of the table, or the newest; None where there is none.

        Raises:
            OptionError: there is no store of this kind.
        """
        try:
            return DeltaTable(self._place.uri, version, storage_options=self._place.options())
        except TableNotFoundError as error:
            if _NO_STORE in str(error):
                scheme = self._place.uri.partition("://")[0]
                raise OptionError(
                    "table", f"must be a path or the URI of a store such as s3://, not {scheme}://"
                ) from error
            return None

    def _ready(self) -> DeltaTable:
        """Return the table, with all columns that are declared.

        Raises:
            CommitFailedError: another one was faster.
            SchemaError: the table has other types or partitions.
        """
        found = self._load() or self._created()
        missing = missing_columns(stored_of(found), self._table, self._place.uri)
        if missing:
            added = _schema(self._table._replace(columns=missing))
            found.alter.add_columns(list(added.fields))
        return found

    def _created(self) -> DeltaTable:
        """Create the table, unless it exists by now; return it."""
        try:
            return DeltaTable.create(
                self._place.uri,
                schema=_schema(self._table),
                mode="error",
                partition_by=list(self._table.partition_by),
                name=self._table.name,
                storage_options=self._place.options(),
            )
        except DeltaError:
            found = self._load()
            if found is None:
                raise
            return found

    def _compact(self, small: list[DataFile], target_bytes: int) -> int:
        """Make large files of the small ones of a partition; return how many.

        Raises:
            ConflictError: someone else took the same files away.
        """
        partition = small[0].partition
        found = self._load()
        assert found is not None, "a table that was there is gone"
        chosen: Any = [(name, "=", text or "") for name, text in partition.items()]
        try:
            done = found.optimize.compact(
                chosen or None, target_bytes, max_concurrent_tasks=1, min_commit_interval=None
            )
        except CommitFailedError as error:
            raise ConflictError(f"{self._place.uri}: {partition}: {error}") from None
        self._synced(found)
        return int(done["numFilesAdded"])

    def _synced(self, found: DeltaTable) -> int:
        """Force new commits to the disk, because the source may drop the rows now.

        Returns:
            The version that is there now.
        """
        before = found.version()
        found.update_incremental()
        if self._place.local:
            log = self._place.path("_delta_log")
            for version in range(before, found.version() + 1):
                sync_local(f"{log}/{version:020d}.json")
            sync_local(log)
        return found.version()


def _attempts() -> Iterator[int]:
    """Give the numbers of attempts to commit, from 0, with growing pauses between."""
    for attempt in range(COMMIT_TRIES_MAX):
        if attempt:
            time.sleep(COMMIT_PAUSE_S * 2 ** (attempt - 1) * random.uniform(1, 2))  # noqa: S311
        yield attempt


def small_files(files: Sequence[DataFile], target_bytes: int) -> list[list[DataFile]]:
    """Return the files of each partition that has several that are smaller than the target."""
    by_partition: defaultdict[tuple[str | None, ...], list[DataFile]] = defaultdict(list)
    for file in files:
        if file.byte_count < target_bytes:
            by_partition[tuple(file.partition.values())].append(file)
    return [small for small in by_partition.values() if len(small) > 1]


def _schema(table: Table) -> Schema:
    return Schema.from_arrow(table.arrow())


def stored_of(found: DeltaTable) -> Stored:
    """Return the columns and partitions of a version of the table."""
    kinds: dict[str, Kind | None] = {}
    for field in found.schema().fields:
        primitive = isinstance(field.type, PrimitiveType)
        kinds[field.name] = _KINDS.get(field.type.type) if primitive else None
    return Stored(kinds, tuple(found.metadata().partition_columns))


def add_action(file: DataFile, data_change: bool = True) -> AddAction:
    """Return the action that adds a file; without `data_change` its rows were there before."""
    stats = msgspec.json.encode(file.stats).decode()
    return AddAction(
        file.path, file.byte_count, file.partition, file.written_at_ms, data_change, stats
    )


def files_of(found: DeltaTable) -> tuple[DataFile, ...]:
    """Return the files of a version of the table."""
    return tuple(map(_file, pa.table(found.get_add_actions(flatten=False)).to_pylist()))


def _file(row: dict[str, Any]) -> DataFile:
    lows = {name: low_text(low) for name, low in (row.get("min") or {}).items()}
    highs = {name: high_text(high) for name, high in (row.get("max") or {}).items()}
    stats = Stats(
        row["num_records"],
        {name: low for name, low in lows.items() if low is not None},
        {name: high for name, high in highs.items() if high is not None},
        {name: n for name, n in (row.get("null_count") or {}).items() if n is not None},
    )
    values = row.get("partition") or {}
    partition = {name: text_of(value) for name, value in values.items()}
    path = unquote(row["path"])
    return DataFile(path, row["size_bytes"], partition, stats, row["modification_time"])
