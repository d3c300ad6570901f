"""Values of a log of commits: versions of a table, and compactions."""

from __future__ import annotations

from typing import NamedTuple

from headrace_pipeline.error import PipelineError
from headrace_pipeline.tables.data_file import DataFile
from headrace_pipeline.tables.evolution import Stored


class ConflictError(PipelineError):
    """Others wrote to the table again and again; nothing of this commit is in it."""


class Snapshot(NamedTuple):
    """A version of a table."""

    version: int  # its number, from 0
    stored: Stored  # columns and partitions
    files: tuple[DataFile, ...]  # all that are in it


class Compaction(NamedTuple):
    """Compaction of a partition, done or planned."""

    partition: dict[str, str | None]  # texts by column
    files: int  # small ones
    byte_count: int  # of these
    made: int | None  # files that they became, or None where nothing was done
