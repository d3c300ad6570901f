"""Rows of logs as rows of the archive's tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from headrace_pipeline.schema.archive import ARCHIVE_MESSAGES, BUCKETS, QUEUE_EVENT_ROWS
from headrace_pipeline.schema.column import Column, Kind
from headrace_pipeline.schema.log import ARCHIVE, QUEUE_EVENTS
from headrace_pipeline.transforms.archive import archive_messages, bucket_of, queue_event_rows

# Files of all tables lie by these: none may ever change.
GOLDEN = {
    ("/", "orders.in"): 12,
    ("/", ""): 2,
    ("prod", "orders.in"): 15,
    ("/", "é日本"): 13,
    ("a", "b/c"): 1,
    ("a/b", "c"): 4,
}


def test_buckets_never_change() -> None:
    assert {name: bucket_of(*name) for name in GOLDEN} == GOLDEN


def test_buckets_of_a_thousand_queues_are_even() -> None:
    counts = [0] * BUCKETS
    for number in range(1600):
        counts[bucket_of("/", f"queue-{number}")] += 1
    assert min(counts) > 60
    assert max(counts) < 150


def test_columns_of_the_tables_stay_where_they_are() -> None:
    """Columns of a later log version come behind those of version 1 of the table."""
    first = ARCHIVE_MESSAGES.at(1)
    assert first.names == (*ARCHIVE.at(1).names, "schema_version", "bucket", "day")
    assert ARCHIVE_MESSAGES.names[: len(first.names)] == first.names
    assert set(ARCHIVE_MESSAGES.names) == {*ARCHIVE.names, "schema_version", "bucket", "day"}
    assert (ARCHIVE_MESSAGES.partition_by, ARCHIVE_MESSAGES.key) == (("bucket", "day"), ARCHIVE.key)
    assert QUEUE_EVENT_ROWS.partition_by == ("day",)
    added = QUEUE_EVENTS._replace(
        columns=(*QUEUE_EVENTS.columns, Column("colour", Kind.UTF8, since=9))
    )
    assert added.version == 9


@pytest.fixture
def far_zone(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark in a time zone where the day is another one."""
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def test_rows_get_bucket_and_day_in_any_time_zone(far_zone: SparkSession) -> None:
    midnight = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)
    settled = [midnight - dt.timedelta(microseconds=1), midnight, None]
    days = [dt.date(2026, 11, 21), dt.date(2026, 11, 22), None]
    rows = [
        (vhost, queue, at, day)
        for vhost, queue in GOLDEN
        for at, day in zip(settled, days, strict=True)
    ]
    given = far_zone.createDataFrame(
        rows, "vhost string, queue string, settled_at timestamp, expected date"
    )
    found = archive_messages(given).collect()
    assert len(found) == len(rows)
    for row in found:
        assert (row.bucket, row.day) == (GOLDEN[row.vhost, row.queue], row.expected)
        assert row.schema_version == ARCHIVE.version


def test_events_get_the_day(spark: SparkSession) -> None:
    at = dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
    (row,) = queue_event_rows(spark.createDataFrame([(at,)], "at timestamp")).collect()
    assert (row.day, row.schema_version) == (dt.date(1969, 12, 31), QUEUE_EVENTS.version)
