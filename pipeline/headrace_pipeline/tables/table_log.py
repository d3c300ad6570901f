"""Values of a log of commits: versions of a table, and compactions."""

from __future__ import annotations

from typing import NamedTuple

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
    """Compaction of a partition, done or planned.

    Attributes:
        partition: texts by column.
        files: small ones.
        byte_count: of these.
        made: files that they became, or None where nothing was done.
    """

    partition: dict[str, str | None]
    files: int
    byte_count: int
    made: int | None
