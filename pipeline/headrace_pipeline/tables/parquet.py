"""Commits of a plain Parquet table: a directory that any reader of Parquet files can read.

The log of commits is Delta's. Tasks write to a directory below `_staged`, which readers pass over
as they do all names with `_`. After a commit its files are moved to where they belong, and those
that compaction has replaced to `_removed`, for versions of the past, until vacuum takes them. If
the driver died before it moved them, the next one to open the table does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import RemoveAction

from headrace_pipeline.error import OptionError
from headrace_pipeline.schema.column import Table
from headrace_pipeline.tables.data_file import DataFile
from headrace_pipeline.tables.delta import DeltaLog, add_action, files_of, stored_of
from headrace_pipeline.tables.evolution import stored_table
from headrace_pipeline.tables.file_rows import file_rows
from headrace_pipeline.tables.place import Place, sync_local
from headrace_pipeline.tables.table_log import Compaction, ConflictError, Snapshot
from headrace_pipeline.tables.write_task import Write, written

STAGED: Final = "_staged"
REMOVED: Final = "_removed"
_COMPACTION: Final = "headrace-compaction"  # application whose batches are compactions
_OTHER: Final = "another compaction is at work, wait until it has ended"


class ParquetLog(DeltaLog):
    """Commits of a plain Parquet table; see `DeltaLog`.

    Args:
        place: of the table, which must be local.
        table: as declared.

    Raises:
        OptionError: the place is an object store, or has a table of an earlier build.
    """

    def __init__(self, place: Place, table: Table) -> None:
        if not place.local:
            raise OptionError(
                "format", "must be delta for an object store: a Parquet table moves its files"
            )
        super().__init__(place, table)
        self._root = Path(place.uri)
        if (self._root / "_commits").is_dir():
            raise OptionError(
                "path", f"{place.uri} has commits of an earlier build, which this one does not read"
            )

    def snapshot(self, version: int | None = None) -> Snapshot | None:
        """Return a version, or the newest; None where there is no table."""
        self._roll_forward()
        found = super().snapshot(version)
        if found is None:
            return None
        return found._replace(files=tuple(map(self._where_it_is, found.files)))

    def staging(self) -> str:
        """Return a new directory below the table's that tasks of one batch write to."""
        return f"{STAGED}/{uuid.uuid4()}"

    def commit(self, files: Sequence[DataFile], app_id: str, batch_id: int) -> int | None:
        """Make files part of the table, once for (app_id, batch_id); see `DeltaLog`."""
        self._roll_forward()
        added = _moved(files)
        version = super().commit(added, app_id, batch_id)
        if version is not None:
            self._move(_staging_of(files), added)
        return version

    def compact(self, target_bytes: int, dry_run: bool) -> list[Compaction]:
        """Make large files of small ones, a commit for each partition; see `DeltaLog`."""
        self._roll_forward()
        return super().compact(target_bytes, dry_run)

    def vacuum(self, retention_hours: float, dry_run: bool) -> list[str]:
        """Remove files that no version of the last hours holds; return them.

        Of files that no version ever held, those go that were written before these hours.
        """
        self._roll_forward()
        before = time.time() - retention_hours * 3600
        found = [
            path for name in (STAGED, REMOVED) for path in (self._root / name).rglob("*.parquet")
        ]
        gone = [path for path in found if path.stat().st_mtime < before]
        for path in () if dry_run else gone:
            path.unlink()
        return [str(path.relative_to(self._root)) for path in gone]

    def _compact(self, small: list[DataFile], target_bytes: int) -> int:
        """Write the rows of files into new ones, with all columns that the table has.

        The number of the version read is the commit's batch: of two that read the same version
        one comes through.
        """
        found = self._load()
        assert found is not None, "a table that was there is gone"
        if not {file.path for file in small} <= {file.path for file in files_of(found)}:
            raise ConflictError(f"{self._root}: {_OTHER}")
        table = stored_table(stored_of(found), self._place.uri)
        write = Write(self._place, table, self.staging(), 2**63, target_bytes)
        try:
            made = list(written(write, self._rows(small, table)))
            self._replace(found, small, made)
        except (FileNotFoundError, CommitFailedError):
            shutil.rmtree(self._root / write.below, ignore_errors=True)
            raise ConflictError(f"{self._root}: {_OTHER}") from None
        return len(made)

    def _replace(self, found: DeltaTable, small: list[DataFile], made: list[DataFile]) -> None:
        now_ms = int(time.time() * 1000)
        added = _moved(made)
        found.create_write_transaction(
            [
                *(RemoveAction(file.path, False, now_ms) for file in small),
                *(add_action(file, data_change=False) for file in added),
            ],
            "append",
            found.schema(),
            list(stored_of(found).partition_by),
            commit_properties=CommitProperties(
                app_transactions=[Transaction(_COMPACTION, found.version())]
            ),
        )
        self._synced(found)
        self._move(_staging_of(made), added, [file.path for file in small])

    def _rows(self, files: Iterable[DataFile], table: Table) -> Iterator[pa.RecordBatch]:
        for file in files:
            with pa.OSFile(self._place.path(file.path)) as stream:
                yield from file_rows(stream, file, table)

    def _roll_forward(self) -> None:
        """Move what commits name and their drivers did not.

        Files below the table's directory, but those staged and removed, were part of the table
        before they came there. Those listed before the newest version is read and not in it were
        replaced by compaction.
        """
        staged = [path.relative_to(self._root) for path in (self._root / STAGED).rglob("*.parquet")]
        if not staged:
            return
        listed = {
            str(path.relative_to(self._root))
            for folder in self._root.glob("[!_]*")
            for path in ([folder] if folder.is_file() else folder.rglob("*.parquet"))
        }
        found = super().snapshot()
        files = {} if found is None else {file.path: file for file in found.files}
        by_staging: dict[str, list[DataFile]] = {}
        for path in staged:
            file = files.get(str(Path(*path.parts[2:])))
            if file is not None:
                by_staging.setdefault(str(Path(*path.parts[:2])), []).append(file)
        for staging, added in by_staging.items():
            self._move(staging, added, sorted(listed - set(files)))

    def _move(self, staging: str, added: Sequence[DataFile], removed: Sequence[str] = ()) -> None:
        """Move the files of a commit; its staging directory, which goes last, shows the rest."""
        for path in removed:
            _rename(self._root / path, self._root / REMOVED / path)
        for file in added:
            _rename(self._root / staging / file.path, self._root / file.path)
        shutil.rmtree(self._root / staging, ignore_errors=True)  # files of tasks that did not count

    def _where_it_is(self, file: DataFile) -> DataFile:
        if (self._root / file.path).exists():
            return file
        return msgspec.structs.replace(file, path=f"{REMOVED}/{file.path}")


def _staging_of(files: Sequence[DataFile]) -> str:
    return "/".join(files[0].path.split("/")[:2])


def _moved(files: Sequence[DataFile]) -> list[DataFile]:
    """Return files as they are named once they are moved out of their staging directory."""
    staging = _staging_of(files)
    return [
        msgspec.structs.replace(file, path=file.path.removeprefix(f"{staging}/")) for file in files
    ]


def _rename(source: Path, target: Path) -> None:
    """Move a file, unless another driver has done so; its time becomes that of the move."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        source.rename(target)
        os.utime(target)
        sync_local(str(target.parent))
