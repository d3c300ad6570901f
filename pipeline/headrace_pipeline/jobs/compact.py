"""The job `compact`: merges small files of a table, and removes unused files.

It needs no Spark, and may run beside writers: what they add meanwhile stays, and what it takes away
stays on the disk for the hours of the retention, for those who read it.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace_pipeline.error import OptionError
from headrace_pipeline.limits import COMPACT_BYTES_LEAST, VACUUM_HOURS_LEAST
from headrace_pipeline.tables import SinkTable
from headrace_pipeline.tables.table_log import Compaction


class CompactReport(NamedTuple):
    """Result of a compaction, or of a dry run."""

    compactions: tuple[Compaction, ...]  # partitions with small files, and what became of them
    vacuumed: tuple[str, ...]  # files that were removed
    files: int  # of the table, after it
    byte_count: int  # of these
    dry_run: bool  # nothing was changed


def compact_table(
    sink: SinkTable, target_bytes: int, retention_hours: int, dry_run: bool
) -> CompactReport:
    """Make large files of small ones, and remove what no version of the last hours holds.

    Args:
        sink: the table.
        target_bytes: size of files that are large enough.
        retention_hours: for which files stay that are no part of the table: a reader of an older
            version has so long, and so has a task from its first row to its batch's commit.
        dry_run: only say what would be done.

    Raises:
        OptionError: a number is too small to be safe or useful.
        ConflictError: another compaction is at work; partitions before are done.
    """
    if retention_hours < VACUUM_HOURS_LEAST:
        raise OptionError(
            "retention-hours",
            f"must be at least {VACUUM_HOURS_LEAST}: files of a batch that is being written are no "
            "part of the table yet",
        )
    if target_bytes < COMPACT_BYTES_LEAST:
        raise OptionError("target-bytes", f"must be at least {COMPACT_BYTES_LEAST}")
    compactions = sink.log.compact(target_bytes, dry_run)
    vacuumed = sink.log.vacuum(retention_hours, dry_run)
    files = sink.files()
    byte_count = sum(file.byte_count for file in files)
    return CompactReport(tuple(compactions), tuple(vacuumed), len(files), byte_count, dry_run)
