"""Common interface of both forms of a table: a log of commits, each with files and its batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace_pipeline.error import PipelineError
from headrace_pipeline.tables.data_file import DataFile
from headrace_pipeline.tables.evolution import Stored


class ConflictError(PipelineError):
    """Others wrote to the table again and again; nothing of this commit is in it."""


class Snapshot(NamedTuple):
    """A version of a table.

    Attributes:
        version: its number, from 0.
        stored: columns and partitions.
        files: all that are in it.
    """

    version: int
    stored: Stored
    files: tuple[DataFile, ...]


class Compaction(NamedTuple):
    """Result of compacting a partition, or of a dry run.

    Attributes:
        partition: texts by column.
        files: small ones.
        octets: of these.
        made: files that they became, or None where nothing was done.
    """

    partition: dict[str, str | None]
    files: int
    octets: int
    made: int | None


class TableLog(Protocol):
    """Commits of a table. Each call sees the state at its beginning."""

    def snapshot(self, version: int | None = None) -> Snapshot | None:
        """Return a version, or the newest; None where there is no table.

        Raises:
            PipelineError: there is no such version.
        """
        ...

    def last_batch(self, app_id: str) -> int | None:
        """Return the greatest batch of an application that is in the table, or None."""
        ...

    def staging(self) -> str:
        """Return the directory below the table's that tasks of one batch write to."""
        ...

    def commit(self, files: Sequence[DataFile], app_id: str, batch_id: int) -> int | None:
        """Make files part of the table, once for (app_id, batch_id).

        The table is made, and columns are added, where that is needed.

        Returns:
            The version, or None where a batch as new as this was there already: then the files are
            no part of the table.

        Raises:
            SchemaError: the table has other types or partitions.
            ConflictError: others were faster each time.
        """
        ...

    def compact(self, target_octets: int, dry_run: bool) -> list[Compaction]:
        """Make large files of small ones, a partition at a time; rows stay the same.

        Raises:
            ConflictError: someone else took the same files away; partitions before are done.
        """
        ...

    def vacuum(self, retention_hours: float, dry_run: bool) -> list[str]:
        """Remove files that no version of the last hours holds; return them."""
        ...
