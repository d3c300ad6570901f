"""Rows of logs as rows of the archive's tables."""

from __future__ import annotations

import zlib

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from headrace_pipeline.schema.archive import ARCHIVE_MESSAGES, BUCKETS
from headrace_pipeline.schema.log import ARCHIVE, QUEUE_EVENTS

__all__ = ["ARCHIVE_MESSAGES", "archive_messages", "bucket_of", "queue_event_rows"]

_DAY_S = 86_400
_BETWEEN = "\0"  # is in no name of a vhost or queue


def archive_messages(rows: DataFrame) -> DataFrame:
    """Return rows of the log `archive` with bucket, day and schema_version.

    Args:
        rows: columns of `schema.log.ARCHIVE`, all or some, with vhost, queue and settled_at.
    """
    name = F.concat_ws(_BETWEEN, "vhost", "queue")
    bucket = F.pmod(F.crc32(name), F.lit(BUCKETS)).cast("int")
    version = F.lit(ARCHIVE.version).cast("int")
    own = {"schema_version": version, "bucket": bucket, "day": _day("settled_at")}
    return rows.withColumns(own)


def queue_event_rows(rows: DataFrame) -> DataFrame:
    """Return rows of the log `queue_events` with day and schema_version.

    Args:
        rows: columns of `schema.log.QUEUE_EVENTS`, all or some, with `at`.
    """
    version = F.lit(QUEUE_EVENTS.version).cast("int")
    return rows.withColumns({"schema_version": version, "day": _day("at")})


def bucket_of(vhost: str, queue: str) -> int:
    """Return the bucket of a queue, 0 to 15, so that its rows are in few files."""
    return zlib.crc32(f"{vhost}{_BETWEEN}{queue}".encode()) % BUCKETS


def _day(instant: str) -> Column:
    """Return the day in UTC, whatever the session's time zone is."""
    seconds = F.unix_seconds(instant)
    days = (seconds - F.pmod(seconds, F.lit(_DAY_S))) / _DAY_S
    return F.date_from_unix_date(days.cast("int"))
