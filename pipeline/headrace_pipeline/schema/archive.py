"""Rows of the tables that the job `archive` writes: those of the logs, and where files of them lie.

The columns of a log that a later version adds come behind those that are here, as in any table.
"""

from __future__ import annotations

from typing import Final

from headrace_pipeline.schema.column import Column, Kind, Table
from headrace_pipeline.schema.log import ARCHIVE, QUEUE_EVENTS

BUCKETS: Final = 16  # for ever: rows of a queue are found by its bucket


def _landed(name: str, log: Table, *own: Column) -> Table:
    columns = sorted((*log.columns, *own), key=lambda column: column.since)  # stable
    return Table(name, tuple(columns), tuple(each.name for each in own[1:]), log.key)


# schema_version: of the log, as the job knew it when it wrote the row.
# bucket: of vhost and queue, 0 to 15. A table has thousands of queues, and files must not be small.
# day: of settled_at, and of `at`; UTC.
ARCHIVE_MESSAGES: Final = _landed(
    "archive_messages",
    ARCHIVE,
    Column("schema_version", Kind.INT32),
    Column("bucket", Kind.INT32),
    Column("day", Kind.DATE),
)
QUEUE_EVENT_ROWS: Final = _landed(
    "queue_events", QUEUE_EVENTS, Column("schema_version", Kind.INT32), Column("day", Kind.DATE)
)
