"""Batches become exactly what tables declare, whichever version they were written in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from headrace_broker.codecs.column_block import encode_columns
from headrace_broker.runtime.archive.columns import SCHEMA as ARCHIVE_SCHEMA
from headrace_broker.runtime.telemetry.schema import SCHEMAS
from headrace_pipeline.arrow_block import to_batch
from headrace_pipeline.error import SchemaError
from headrace_pipeline.schema.column import Column, Kind, Table
from headrace_pipeline.schema.conform import conform
from headrace_pipeline.schema.log import LOGS
from headrace_pipeline.schema.queue import QUEUE_MESSAGES

MS = pa.timestamp("ms", tz="UTC")
SAMPLE: dict[int, Any] = {1: 5, 2: 5, 3: 0.5, 4: True, 5: "x", 6: b"x", 7: 1000}  # by ExportType
TABLE = Table(
    "things",
    (
        Column("id", Kind.INT64, required=True),
        Column("at", Kind.TIMESTAMP),
        Column("text", Kind.UTF8),
        Column("more", Kind.INT64, since=2, required=True),
    ),
)
OLD = TABLE.at(1)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def things(**more: Any) -> pa.RecordBatch:
    return batch(
        id=pa.array([1, 2]), at=pa.array([1000, None], MS), text=pa.array(["a", None]), **more
    )


# Evolution


def test_rows_of_an_old_version_have_nulls_in_newer_columns() -> None:
    found = conform(things(), TABLE)
    assert found.schema == TABLE.arrow()
    assert found.column("more").null_count == 2


def test_columns_of_a_newer_version_are_left_out() -> None:
    found = conform(things(more=pa.array([3, 4]), newest=pa.array(["x", "y"])), OLD)
    assert found.schema == OLD.arrow()
    assert found.to_pydict()["id"] == [1, 2]


def test_there_and_back_through_both_versions_keeps_what_both_know() -> None:
    new = conform(things(more=pa.array([3, 4])), TABLE)
    again = conform(conform(new, OLD), TABLE)
    assert again.drop_columns(["more"]) == new.drop_columns(["more"])
    assert again.column("more").null_count == 2


@pytest.mark.parametrize("name", sorted(LOGS))
def test_what_this_broker_writes_fills_the_table_of_its_log(name: str) -> None:
    schema = ARCHIVE_SCHEMA if name == "archive" else SCHEMAS[name]
    block = encode_columns(schema, [[SAMPLE[kind]] for _, kind in schema.columns])
    table = LOGS[name]
    where = {"shard": pa.array(["n1"]), "incarnation": pa.array([7]), table.key[-1]: pa.array([0])}
    required = {each.name for each in table.columns if each.required}
    found = conform(to_batch(schema, block), table, where)
    assert found.schema == table.arrow() == to_arrow_schema(table.spark(), timezone="UTC")
    empty = {each for each in found.schema.names if found.column(each).null_count}
    assert not empty & required
    assert empty <= {each.name for each in table.columns if each.since > schema.version}


# Types


def test_milliseconds_become_microseconds_and_the_same_instant() -> None:
    found = conform(things(), OLD)
    assert found.column("at").to_pylist() == [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), None]


@given(st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1), min_size=1))
def test_any_number_of_milliseconds_is_an_instant_or_null(numbers: list[int | None]) -> None:
    times = pa.array(numbers, pa.int64()).view(MS)
    ids = pa.array(range(len(numbers)), pa.int64())
    found = conform(batch(id=ids, at=times), OLD).column("at")
    for number, micros in zip(numbers, found.view(pa.int64()).to_pylist(), strict=True):
        assert micros is None or micros == 1000 * (number or 0)
        fits = number is not None and -62_135_596_800_000 <= number < 253_402_300_800_000
        assert (micros is not None) == fits
    found.to_pylist()  # Python has a time for each


def test_small_integers_and_large_texts_become_what_is_declared() -> None:
    given_rows = batch(id=pa.array([1], pa.int32()), text=pa.array(["x"], pa.large_string()))
    assert conform(given_rows, OLD).to_pydict() == {"id": [1], "at": [None], "text": ["x"]}


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"id": pa.array(["1"])}, "things.id: must be int64, and is string"),
        ({"id": pa.array([1.5])}, "things.id: must be int64, and is double"),
        ({"id": pa.array([1]), "at": pa.array([5])}, "things.at: must be timestamp"),
        (
            {"id": pa.array([1]), "at": pa.array([5], pa.timestamp("ms"))},
            "things.at: must be timestamp",
        ),
        ({"id": pa.array([None], pa.int64())}, "things.id: must have a value in each row"),
        ({"text": pa.array(["x"])}, "things.id: must have a value in each row"),
    ],
)
def test_what_cannot_be_cast_without_guessing_is_refused(
    columns: dict[str, Any], text: str
) -> None:
    with pytest.raises(SchemaError, match=text):
        conform(batch(**columns), OLD)


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["id", "id"])
    with pytest.raises(SchemaError, match="two columns of one name"):
        conform(twice, OLD)


# Names


def test_the_brokers_name_is_not_taken_for_another_column_of_ours() -> None:
    table = LOGS["queue_events"]
    given_rows = batch(at=pa.array([0], MS), incarnation=pa.array([5]))
    where = {"shard": pa.array(["n1"]), "incarnation": pa.array([7]), "row_index": pa.array([0])}
    found = conform(given_rows, table, where)
    assert found.column("incarnation").to_pylist() == [7]
    assert found.column("queue_incarnation").to_pylist() == [5]
    assert conform(found, table) == found


def test_what_conforms_is_left_as_it_is() -> None:
    rows = batch(
        vhost=pa.array(["/"]),
        queue=pa.array(["q"]),
        lease=pa.array([1]),
        lease_offset=pa.array([0]),
        queue_message_id=pa.array([3]),
    )
    once = conform(rows, QUEUE_MESSAGES)
    assert conform(once, QUEUE_MESSAGES) == once
