"""Which archived messages are replayed, where to, and in which order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from headrace_pipeline.error import OptionError
from headrace_pipeline.jobs.replay import Replay, look
from headrace_pipeline.options.connection import Connection
from headrace_pipeline.schema.log import ARCHIVE
from headrace_pipeline.transforms.replay import (
    BLOCK_ROWS,
    Selection,
    Target,
    in_order,
    messages,
    select,
    summary,
)

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def row(index: int, **given: Any) -> dict[str, Any]:
    """An archived message, settled so many seconds after noon."""
    found: dict[str, Any] = dict.fromkeys(ARCHIVE.names)
    found |= {
        "shard": "1",
        "incarnation": 7,
        "archive_index": index,
        "vhost": "/",
        "queue": "a",
        "exchange": "x",
        "routing_key": "k",
        "outcome": "acked",
        "settled_at": AT + timedelta(seconds=index),
        "properties": b"\x00\x00",
        "payload": b"p%d" % index,
        "payload_bytes": 2,
    }
    return found | given


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    given = [
        row(0),
        row(1, queue="b", outcome="rejected"),
        row(2, vhost="other"),
        row(3, message_id="m", headers='{"a": 1}'),
        row(4, payload=None, payload_bytes=9),
        row(BLOCK_ROWS + 1, shard="2", queue="b"),
    ]
    values = [tuple(each.values()) for each in given]
    return spark.createDataFrame(values, ARCHIVE.spark()).cache()


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (Selection("/"), [0, 1, 3, 4, BLOCK_ROWS + 1]),
        (Selection("other"), [2]),
        (Selection("/", ("b",)), [1, BLOCK_ROWS + 1]),
        (Selection("/", ("a", "b"), ("rejected",)), [1]),
        (Selection("/", since=AT + timedelta(seconds=1), until=AT + timedelta(seconds=4)), [1, 3]),
        (Selection("/", where="message_id = 'm' or archive_index = 0"), [0, 3]),
    ],
)
def test_rows_are_selected(rows: DataFrame, selection: Selection, wanted: list[int]) -> None:
    assert sorted(each.archive_index for each in select(rows, selection).collect()) == wanted


def test_rows_are_counted(rows: DataFrame) -> None:
    assert [tuple(each) for each in summary(rows).collect()] == [
        ("/", "a", "acked", 3, 13, 1),
        ("/", "b", "acked", 1, 2, 0),
        ("/", "b", "rejected", 1, 2, 0),
        ("other", "a", "acked", 1, 2, 0),
    ]


def test_messages_go_where_they_came_from_or_where_one_says(rows: DataFrame) -> None:
    first = rows.where("archive_index = 0")
    assert messages(first, Target()).first() == (
        *("1", 7, 0, 0, "x", "k"),
        bytearray(b"\x00\x00"),
        bytearray(b"p0"),
    )
    found = messages(first, Target("", "q")).first()
    assert found is not None
    assert (found.exchange, found.routing_key) == ("", "q")


def test_a_block_is_in_one_partition_and_in_order(spark: SparkSession) -> None:
    indexes = spark.range(3 * BLOCK_ROWS - 20, 3 * BLOCK_ROWS + 20, 1, 4).orderBy(F.rand(1))
    given = indexes.selectExpr("'1' shard", "7L incarnation", "id archive_index").withColumn(
        "block", F.shiftright("archive_index", BLOCK_ROWS.bit_length() - 1)
    )
    spread = in_order(given, 3).withColumn("partition", F.spark_partition_id())
    found = [(each.partition, each.block, each.archive_index) for each in spread.collect()]
    assert {block for _, block, _ in found} == {2, 3}
    for block in (2, 3):
        mine = [each for each in found if each[1] == block]
        assert len({partition for partition, _, _ in mine}) == 1
        assert [index for _, _, index in mine] == sorted(index for _, _, index in mine)
        assert len(mine) == 20


def test_a_dry_run_counts_and_shows_samples(rows: DataFrame) -> None:
    replay = Replay("r", Connection("b:7672"), Selection("/", ("a",)), Target(routing_key="to"))
    report = look(rows, replay)
    assert (report.selected, report.skipped, report.published) == (3, 1, 0)
    sample = next(each for each in report.samples if each.archive_index == 3)
    assert (sample.exchange, sample.routing_key, sample.payload) == ("x", "to", b"p3")
    assert (sample.payload_bytes, sample.headers) == (2, '{"a": 1}')


@pytest.mark.parametrize("where", ["nothing = 1", "and"])
def test_a_condition_that_is_none_is_refused(rows: DataFrame, where: str) -> None:
    replay = Replay("r", Connection("b:7672"), Selection("/", where=where))
    with pytest.raises(OptionError, match="option where: is no condition on the archive's"):
        look(rows, replay)
