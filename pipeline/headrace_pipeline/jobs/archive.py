"""The job `archive`: settled messages, and what happened to queues, flow into tables.

Each log is a stream of its own with a checkpoint below the job's. A batch becomes one commit of its
table that says whose batch it was, so that a driver may die at any point: what it wrote again after
that is there once. The group at the brokers follows one batch behind, and stops a driver that goes
on beside a newer one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace_pipeline.jobs.running import await_queries
from headrace_pipeline.limits import ARCHIVE_ROWS_PER_TRIGGER
from headrace_pipeline.options.connection import Connection
from headrace_pipeline.schema.archive import ARCHIVE_MESSAGES, QUEUE_EVENT_ROWS
from headrace_pipeline.schema.column import Table
from headrace_pipeline.tables import SinkTable, open_table, query_id
from headrace_pipeline.tables.sink_table import Format
from headrace_pipeline.transforms.archive import archive_messages, queue_event_rows

log = logging.getLogger(__name__)


class ArchiveSettings(NamedTuple):
    """Settings of the job."""

    connection: Connection  # of the brokers
    table: str  # path or URI of the table of messages
    checkpoint: str  # folder that says how far the job is; it belongs to these tables
    events_table: str | None = None  # of the table of queue events; None for none
    format: Format = "delta"  # of the tables
    storage_options_file: str | None = None  # with options of the tables' object store
    queues: str = "*"  # names with `*` and `?`, between commas
    group: str = "archive"  # by which brokers know the job
    # from one batch to the next; None to end when what there is now is written
    every_minutes: float | None = 5.0
    rows_max: int = ARCHIVE_ROWS_PER_TRIGGER  # of a batch
    # or goes on with a warning where brokers have dropped rows unread
    fails_on_data_loss: bool = True


def run_archive(spark: SparkSession, settings: ArchiveSettings) -> None:
    """Write until the process is told to stop, or all is written that there was.

    Raises:
        OptionError: a table's place is wrong.
        StreamingQueryException: rows cannot be read or written.
    """
    queries = [_messages(spark, settings)]
    if settings.events_table is not None:
        queries.append(_events(spark, settings, settings.events_table))
    await_queries(queries)


def _messages(spark: SparkSession, settings: ArchiveSettings) -> StreamingQuery:
    own = {"queue": settings.queues, "includeHeaders": "true"}
    rows = _read(spark, settings, "archive", own)
    sink = _open(settings, settings.table, ARCHIVE_MESSAGES)
    return _start(settings, archive_messages(rows), sink)


def _events(spark: SparkSession, settings: ArchiveSettings, table: str) -> StreamingQuery:
    rows = _read(spark, settings, "queue_events", {})
    return _start(settings, queue_event_rows(rows), _open(settings, table, QUEUE_EVENT_ROWS))


def _open(settings: ArchiveSettings, path: str, table: Table) -> SinkTable:
    options = settings.storage_options_file
    return open_table(path, table, settings.format, storage_options_file=options)


def _read(
    spark: SparkSession, settings: ArchiveSettings, name: str, own: dict[str, str]
) -> DataFrame:
    reader = spark.readStream.format("headrace_log").options(
        **settings.connection.options(),
        log=name,
        startingOffsets="earliest",
        maxRowsPerTrigger=str(settings.rows_max),
        failOnDataLoss=str(settings.fails_on_data_loss).lower(),
        group=settings.group,
        **own,
    )
    return reader.load()


def _start(settings: ArchiveSettings, rows: DataFrame, sink: SinkTable) -> StreamingQuery:
    name = sink.table.name
    writer = (
        rows.writeStream.foreachBatch(writer_of(sink))
        .option("checkpointLocation", f"{settings.checkpoint.rstrip('/')}/{name}")
        .queryName(f"archive {name}")
    )
    if settings.every_minutes is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{settings.every_minutes * 60:g} seconds").start()


def writer_of(sink: SinkTable) -> Callable[[DataFrame, int], None]:
    """Return what a stream does with each batch."""

    def write(rows: DataFrame, batch_id: int) -> None:
        done = sink.write_batch(rows, query_id(rows), batch_id)
        if done.skipped:
            log.info("%s has batch %d already", sink.place.uri, batch_id)
        elif done.version is not None:
            text = "%s: batch %d is version %d: %d rows in %d files"
            log.info(text, sink.place.uri, batch_id, done.version, done.rows, done.files)

    return write
