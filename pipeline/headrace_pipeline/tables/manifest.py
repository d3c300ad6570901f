"""Commits of a plain Parquet table as values: a commit, and what all up to one come to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace_pipeline.schema.column import Column, Kind
from headrace_pipeline.tables.data_file import DataFile
from headrace_pipeline.tables.evolution import Stored


class Commit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One commit: a file with this is what makes a batch part of the table.

    Attributes:
        at_ms: Unix time.
        staged: directory below the table's in which the files that are added may still be.
        added: files, where they are in the end.
        removed: paths of files that are in the table no more.
        forgotten: paths of files that were removed before, and are on the disk no more.
        columns: kinds by name, in order; those that were not there before.
        partition_by: of the first commit.
        app_id: whose batch it is; "" for none's.
        batch_id: its number.
    """

    at_ms: int
    staged: str
    added: list[DataFile] = []
    removed: list[str] = []
    forgotten: list[str] = []
    columns: dict[str, str] = {}
    partition_by: list[str] = []
    app_id: str = ""
    batch_id: int = -1


class State(msgspec.Struct, frozen=True):
    """Sum of all commits up to a version.

    Attributes:
        version: of the last one.
        columns: kinds by name, in order.
        partition_by: names of the partition columns.
        files: all that are in the table, by path.
        batches: greatest batch by application.
        removed: Unix time in ms at which each file that may still be there was removed.
    """

    version: int = -1
    columns: dict[str, str] = {}
    partition_by: list[str] = []
    files: dict[str, DataFile] = {}
    batches: dict[str, int] = {}
    removed: dict[str, int] = {}

    def after(self, commit: Commit) -> State:
        """Return the state after one more commit."""
        files = {path: file for path, file in self.files.items() if path not in commit.removed}
        files |= {file.path: file for file in commit.added}
        batches = dict(self.batches)
        if commit.app_id:
            batches[commit.app_id] = commit.batch_id
        removed = self.removed | dict.fromkeys(commit.removed, commit.at_ms)
        for path in commit.forgotten:
            removed.pop(path, None)
        return State(
            self.version + 1,
            self.columns | commit.columns,
            self.partition_by or commit.partition_by,
            files,
            batches,
            removed,
        )

    def stored(self) -> Stored:
        """Return what the table has on the disk."""
        kinds = {kind.value: kind for kind in Kind}
        columns = {name: kinds.get(text) for name, text in self.columns.items()}
        return Stored(columns, tuple(self.partition_by))


def new_columns(columns: Sequence[Column]) -> dict[str, str]:
    """Return columns as a commit has them."""
    return {column.name: column.kind.value for column in columns}
