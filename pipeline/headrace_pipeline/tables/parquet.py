"""Commits of a plain Parquet table: a directory that any reader of Parquet files can read.

Tasks write to a directory below `_staged`, which readers pass over as they do all names with `_`.
A commit is a file in `_commits`. What it names is moved to where it belongs after that: by who made
the commit or, if that one died, by whoever looks at the table next. What compaction has replaced is
moved to `_removed`, for versions of the past, until vacuum takes it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from headrace_pipeline.error import OptionError
from headrace_pipeline.schema.column import Table
from headrace_pipeline.tables.attempt import attempts
from headrace_pipeline.tables.commit_files import CommitFiles
from headrace_pipeline.tables.data_file import DataFile
from headrace_pipeline.tables.delta import small_files
from headrace_pipeline.tables.evolution import Stored, missing_columns, stored_table
from headrace_pipeline.tables.file_rows import file_rows
from headrace_pipeline.tables.manifest import Commit, State, new_columns
from headrace_pipeline.tables.place import Place, sync_local
from headrace_pipeline.tables.table_log import Compaction, ConflictError, Snapshot
from headrace_pipeline.tables.write_task import Write, written

STAGED: Final = "_staged"
REMOVED: Final = "_removed"
_OTHER: Final = "another compaction is at work, wait until it has ended"


class ParquetLog:
    """Commits of a plain Parquet table; see `TableLog`.

    Args:
        place: of the table, which must be local.
        table: as declared.

    Raises:
        OptionError: the place is an object store.
    """

    def __init__(self, place: Place, table: Table) -> None:
        if not place.local:
            raise OptionError(
                "format", "must be delta for an object store: a Parquet table moves its files"
            )
        self._place = place
        self._table = table
        self._root = Path(place.uri)
        self._commits = CommitFiles(place.uri)

    def snapshot(self, version: int | None = None) -> Snapshot | None:
        """Return a version, or the newest; None where there is no table.

        Raises:
            PipelineError: there is no such version.
        """
        self._roll_forward()
        state = self._commits.state(version)
        if state is None:
            return None
        files = tuple(map(self._where_it_is, state.files.values()))
        return Snapshot(state.version, state.stored(), files)

    def last_batch(self, app_id: str) -> int | None:
        """Return the greatest batch of an application that is in the table, or None."""
        state = self._commits.state()
        return None if state is None else state.batches.get(app_id)

    def staging(self) -> str:
        """Return a new directory below the table's that tasks of one batch write to."""
        return f"{STAGED}/{uuid.uuid4()}"

    def commit(self, files: Sequence[DataFile], app_id: str, batch_id: int) -> int | None:
        """Make files part of the table, once for (app_id, batch_id); see `TableLog`.

        Raises:
            SchemaError: the table has other types or partitions.
            ConflictError: others were faster each time.
        """
        self._roll_forward()
        staged = "/".join(files[0].path.split("/")[:2])
        added = [_moved(file, staged) for file in files]
        mine = Commit(_now_ms(), staged, added, app_id=app_id, batch_id=batch_id)
        return self._commit(mine, lambda state: state.batches.get(app_id, -1) < batch_id)

    def compact(self, target_octets: int, dry_run: bool) -> list[Compaction]:
        """Make large files of small ones, a commit for each partition; see `TableLog`.

        Raises:
            ConflictError: someone else took the same files away; partitions before are done.
        """
        found = self.snapshot()
        if found is None:
            return []
        done = []
        for small in small_files(found.files, target_octets):
            made = None if dry_run else self._compact(small, found.stored, target_octets)
            octets = sum(file.octets for file in small)
            done.append(Compaction(small[0].partition, len(small), octets, made))
        return done

    def vacuum(self, retention_hours: float, dry_run: bool) -> list[str]:
        """Remove files that no version of the last hours holds; return them.

        Of files that no version ever held, those go that were written before these hours.
        """
        self._roll_forward()
        state = self._commits.state()
        if state is None:
            return []
        before = _now_ms() - int(retention_hours * 3_600_000)
        old = [path for path, at_ms in state.removed.items() if at_ms < before]
        gone = [self._root / REMOVED / path for path in old]
        gone = [path for path in gone if path.exists()]
        gone += [path for path in self._orphans() if path.stat().st_mtime * 1000 < before]
        if not dry_run:
            for path in gone:
                path.unlink()
            if old:
                self._commit(Commit(_now_ms(), "", forgotten=old), lambda _state: True)
            self._commits.drop_before(before)
        return [str(path.relative_to(self._root)) for path in gone]

    def _commit(self, commit: Commit, may: Callable[[State], bool]) -> int | None:
        """Make a commit and move its files; return its version, or None if it may not be.

        Args:
            commit: without what the table needs for its columns.
            may: whether it may follow a state.
        """
        for _ in attempts():
            state = self._commits.state() or State()
            if not may(state):
                return None
            if self._commits.add(self._evolved(commit, state), state):
                self._move(commit)
                return state.version + 1
        raise ConflictError(f"{self._root}: others write all the time")

    def _evolved(self, commit: Commit, state: State) -> Commit:
        """Return a commit that brings the columns that it needs and the table lacks."""
        if not commit.app_id:
            return commit
        if state.version < 0:
            columns, partition_by = self._table.columns, list(self._table.partition_by)
        else:
            columns = missing_columns(state.stored(), self._table, self._place.uri)
            partition_by = []
        return msgspec.structs.replace(
            commit, columns=new_columns(columns), partition_by=partition_by
        )

    def _compact(self, small: list[DataFile], stored: Stored, target_octets: int) -> int:
        """Write the rows of files into new ones, with all columns that the table has."""
        staged = self.staging()
        table = stored_table(stored, self._place.uri)
        write = Write(self._place, table, staged, 2**63, target_octets)
        try:
            made = list(written(write, self._rows(small, table)))
        except FileNotFoundError:
            raise ConflictError(f"{self._root}: {_OTHER}") from None
        paths = [file.path for file in small]
        added = [_moved(file, staged) for file in made]
        commit = Commit(_now_ms(), staged, added, paths)
        if self._commit(commit, lambda state: all(path in state.files for path in paths)) is None:
            shutil.rmtree(self._root / staged)
            raise ConflictError(f"{self._root}: {_OTHER}")
        return len(made)

    def _rows(self, files: Iterable[DataFile], table: Table) -> Iterator[pa.RecordBatch]:
        for file in files:
            with pa.OSFile(self._place.path(file.path)) as stream:
                yield from file_rows(stream, file, table)

    def _roll_forward(self) -> None:
        """Complete the moves of committed files that a dead driver left."""
        folder = self._root / STAGED
        left = set(os.listdir(folder)) if folder.is_dir() else set()
        if left:
            by_staged = self._commits.staged()
            for staged in sorted(left & {each.rpartition("/")[2] for each in by_staged}):
                self._move(self._commits.commit(by_staged[f"{STAGED}/{staged}"]))

    def _move(self, commit: Commit) -> None:
        for path in commit.removed:
            _rename(self._root / path, self._root / REMOVED / path)
        for file in commit.added:
            _rename(self._root / commit.staged / file.path, self._root / file.path)
        if commit.staged:  # what is left is of tasks that did not count; what stays, comes again
            shutil.rmtree(self._root / commit.staged, ignore_errors=True)

    def _where_it_is(self, file: DataFile) -> DataFile:
        if (self._root / file.path).exists():
            return file
        return msgspec.structs.replace(file, path=f"{REMOVED}/{file.path}")

    def _orphans(self) -> Iterator[Path]:
        return (self._root / STAGED).rglob("*.parquet")


def _moved(file: DataFile, staged: str) -> DataFile:
    return msgspec.structs.replace(file, path=file.path.removeprefix(f"{staged}/"))


def _rename(source: Path, target: Path) -> None:
    """Move a file, unless someone has done so."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        source.rename(target)
        sync_local(str(target.parent))


def _now_ms() -> int:
    return int(time.time() * 1000)
