"""When rows were, as windows see it.

Nothing here depends on the time zone of the session: days and windows are UTC's.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace_pipeline.schema.column import Table


def utc_day(instant: Column) -> Column:
    """Return the day of an instant."""
    return fn.date_from_unix_date(fn.floor(fn.unix_seconds(instant) / 86_400).cast("int"))


def land(rows: DataFrame) -> DataFrame:
    """Return rows of a log as they are kept: tables LANDED of `schema.analysis`.

    A node whose clock is ahead of ours would tell of seconds that are still to come, in windows in
    which nobody else is. Its rows are told as of now, which is when each has been read, by the
    clock of who reads; `skew_ms` says by how much they were ahead.
    A clock that is behind cannot be told from rows that come late, and is left alone.

    Args:
        rows: of a log, streaming or not; with `at`.
    """
    # Spark's own current time is that of the start of the query, and rows are made while it runs.
    millis = fn.reflect(fn.lit("java.lang.System"), fn.lit("currentTimeMillis"))
    now = fn.timestamp_millis(millis.cast("long"))
    ahead_us = fn.unix_micros("at") - fn.unix_micros("landed_at")
    return (
        rows.withColumn("landed_at", now)
        .withColumn("skew_ms", fn.greatest(fn.floor(ahead_us / 1000), fn.lit(0)).cast("long"))
        .withColumn("at", fn.least("at", "landed_at"))
        .withColumn("day", utc_day(fn.col("at")))
    )


def once(landed: DataFrame, table: Table) -> DataFrame:
    """Return landed rows without repetitions.

    A job that is started with a new checkpoint lands once more what the brokers still have.

    Args:
        landed: rows that were landed.
        table: of LANDED.
    """
    return landed.dropDuplicates(list(table.key))


def window_of(instant: Column, seconds: int) -> Column:
    """Return the window of an instant, a struct with `start` and `end`."""
    return fn.window(instant, f"{seconds} seconds")


def windowed(grouped: DataFrame, seconds: int, table: Table) -> DataFrame:
    """Return groups by `window` as rows of a table, with nulls for missing columns.

    Args:
        grouped: with a column `window`, and others by the table's names.
        seconds: length of the windows.
        table: of `schema.analysis`.
    """
    start = fn.col("window.start")
    given = {"window_start": start, "window_s": fn.lit(seconds), "day": utc_day(start)}
    return as_table(grouped, table, given)


def as_table(rows: DataFrame, table: Table, given: dict[str, Column] | None = None) -> DataFrame:
    """Return rows with the columns of a table, in order and cast, and no others.

    Args:
        rows: with columns by the table's names; what they have not is null.
        table: whose columns these shall be.
        given: columns that are made, by name.
    """
    made = given or {}
    columns = []
    for field in table.spark().fields:
        value = made.get(field.name)
        if value is None:
            value = fn.col(field.name) if field.name in rows.columns else fn.lit(None)
        columns.append(value.cast(field.dataType).alias(field.name))
    return rows.select(columns)


def column_or_null(rows: DataFrame, name: str, kind: str) -> Column:
    """Return a column that earlier versions of a log had not; null in their rows.

    Args:
        rows: which may lack it.
        name: of the column.
        kind: that it has where it is, as SQL says it.
    """
    return fn.col(name) if name in rows.columns else fn.lit(None).cast(kind)
