"""Tables as Spark writes and reads them, in both forms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.tables.table_rows import NAMES, THINGS, THINGS_2, frame, row, whole

from headrace_pipeline.error import SchemaError
from headrace_pipeline.schema.column import Kind, Table
from headrace_pipeline.tables import SinkTable, open_table, query_id
from headrace_pipeline.tables.read import read_remote
from headrace_pipeline.tables.sink_table import Format

FORMS: tuple[Format, ...] = ("delta", "parquet")
ROWS = 40


@pytest.fixture(params=FORMS)
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> SinkTable:
    """A table that is not there yet, in a folder with a name that is hard to read."""
    return open_table(str(tmp_path / "a table {1} [2]*"), THINGS, request.param)


def reopened(sink: SinkTable, table: Table) -> SinkTable:
    form: Format = "delta" if type(sink.log).__name__ == "DeltaLog" else "parquet"
    return open_table(sink.place.uri, table, form)


def numbers_of(rows: DataFrame) -> list[int]:
    return sorted(each.number for each in rows.select("number").collect())


def test_a_batch_that_is_written_twice_is_there_once(spark: SparkSession, sink: SinkTable) -> None:
    assert not sink.exists()
    assert sink.read(spark).collect() == []
    rows = frame(spark, range(ROWS))
    first = sink.write_batch(rows, "app", 5)
    assert (first.rows, first.skipped) == (ROWS, False)
    assert sink.write_batch(rows, "app", 5).skipped
    assert sink.write_batch(rows, "app", 4).skipped
    assert sink.last_batch("app") == 5
    assert whole(sink.read(spark)) == [row(number) for number in range(ROWS)]
    assert not sink.write_batch(rows.limit(0), "app", 6).skipped
    sink.write_batch(frame(spark, range(ROWS, ROWS + 3)), "other", 0)
    assert numbers_of(sink.read(spark)) == list(range(ROWS + 3))
    assert numbers_of(sink.read(spark, version=first.version)) == list(range(ROWS))


def test_conditions_pass_over_files_and_filter_rows(spark: SparkSession, sink: SinkTable) -> None:
    sink.write_batch(frame(spark, range(ROWS)), "app", 0)
    for name in filter(None, NAMES):
        wanted = [number for number in range(ROWS) if NAMES[number % len(NAMES)] == name]
        assert numbers_of(sink.read(spark, where=[("name", "=", name)])) == wanted
        assert {file.partition["name"] for file in sink.files([("name", "=", name)])} == {name}
    late = row(ROWS - 3)["at"]
    assert numbers_of(sink.read(spark, ["number"], [("at", ">=", late)])) == [37, 38, 39]
    assert len(sink.files([("at", ">=", late)])) == 3
    assert sink.read(spark, ["day", "number"]).columns == ["day", "number"]


def test_remote_files_are_read_as_local_ones(spark: SparkSession, sink: SinkTable) -> None:
    """Tasks of our own read the same rows that Spark does."""
    sink.write_batch(frame(spark, range(ROWS)), "app", 0)
    sink = reopened(sink, THINGS_2)
    remote = read_remote(spark, sink.place, THINGS_2, sink.files())
    assert whole(remote) == whole(sink.read(spark))


def fail_after_writing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give rows, and then die."""
    yield from batches
    raise ValueError("the task dies")


def test_tasks_that_fail_after_they_have_written_leave_nothing_to_be_seen(
    spark: SparkSession, sink: SinkTable
) -> None:
    sink.write_batch(frame(spark, range(3)), "app", 0)
    bad = frame(spark, range(3, ROWS)).mapInArrow(fail_after_writing, THINGS.spark())
    with pytest.raises(PythonException, match="the task dies"):
        sink.write_batch(bad, "app", 1)
    assert sink.last_batch("app") == 0
    assert numbers_of(sink.read(spark)) == [0, 1, 2]
    sink.write_batch(frame(spark, range(3, 5)), "app", 1)
    assert numbers_of(sink.read(spark)) == [0, 1, 2, 3, 4]


def test_columns_that_come_later_are_null_before(spark: SparkSession, sink: SinkTable) -> None:
    sink.write_batch(frame(spark, range(2)), "app", 0)
    newer = reopened(sink, THINGS_2)
    assert [each.colour for each in newer.read(spark).collect()] == [None, None]
    newer.write_batch(frame(spark, range(2, 4), THINGS_2), "app", 1)
    newer.write_batch(frame(spark, range(4, 6)), "app", 2)  # rows without them
    found = {each.number: each.colour for each in newer.read(spark).collect()}
    assert found == {0: None, 1: None, 2: "colour 2", 3: "colour 3", 4: None, 5: None}
    sink.write_batch(frame(spark, range(6, 8)), "app", 3)  # the older release beside it
    assert numbers_of(sink.read(spark)) == list(range(8))
    assert len(sink.read(spark).columns) == len(THINGS.columns)


def changed(kind: Kind) -> Table:
    columns = [
        each._replace(kind=kind) if each.name == "share" else each for each in THINGS.columns
    ]
    return THINGS._replace(columns=tuple(columns))


def test_other_types_and_columns_are_refused(spark: SparkSession, sink: SinkTable) -> None:
    rows = frame(spark, range(3))
    with pytest.raises(SchemaError, match="column number of table things must be bigint, not"):
        sink.write_batch(rows.withColumn("number", rows.number.cast("string")), "app", 0)
    with pytest.raises(SchemaError, match="no column colour: drop it"):
        sink.write_batch(rows.withColumn("colour", rows.name), "app", 0)
    assert not sink.exists()
    sink.write_batch(rows, "app", 0)
    other = reopened(sink, changed(Kind.INT64))
    with pytest.raises(SchemaError, match="column share is float64 there and int64 here"):
        other.read(spark)
    with pytest.raises(SchemaError, match="types never change"):
        other.write_batch(rows.withColumn("share", rows.number), "app", 1)
    with pytest.raises(SchemaError, match="partitioned by name, day and not by day"):
        reopened(sink, THINGS._replace(partition_by=("day",))).read(spark)
    assert numbers_of(sink.read(spark)) == [0, 1, 2]


def test_a_null_where_none_may_be_is_refused(spark: SparkSession, sink: SinkTable) -> None:
    rows = frame(spark, range(3)).selectExpr("*", "nullif(number, 1) as other")
    rows = rows.drop("number").withColumnRenamed("other", "number")
    with pytest.raises(PythonException, match="column number of things has 1 nulls"):
        sink.write_batch(rows, "app", 0)
    assert not sink.exists()


def test_other_readers_see_the_rows(spark: SparkSession, sink: SinkTable) -> None:
    """Any reader of Parquet files, or of Delta, sees the committed rows."""
    sink.write_batch(frame(spark, range(ROWS)), "app", 0)
    if type(sink.log).__name__ == "DeltaLog":
        from deltalake import DeltaTable

        numbers = DeltaTable(sink.place.uri).to_pyarrow_table()["number"].to_pylist()
        assert sorted(numbers) == list(range(ROWS))
    else:
        path = "".join(f"\\{each}" if each in "{}[]*" else each for each in sink.place.uri)
        assert numbers_of(spark.read.parquet(path)) == list(range(ROWS))


def test_the_id_of_a_query_outlives_it(
    spark: SparkSession, sink: SinkTable, tmp_path: Path
) -> None:
    """A stream that is started again with its checkpoint goes on as the same application."""
    seen: list[tuple[str, int]] = []
    source = tmp_path / "source"

    def write(rows: DataFrame, batch_id: int) -> None:
        seen.append((query_id(rows), batch_id))
        sink.write_batch(rows, query_id(rows), batch_id)

    def run() -> None:
        query: Any = spark.readStream.schema(THINGS.spark()).parquet(str(source)).writeStream
        query = query.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    for part in range(2):
        frame(spark, range(part * 5, part * 5 + 5)).coalesce(1).write.mode("append").parquet(
            str(source)
        )
        run()
    assert [batch for _, batch in seen] == [0, 1]
    assert len({query for query, _ in seen}) == 1
    assert numbers_of(sink.read(spark)) == list(range(10))
    for name in ("1", ".1.crc"):  # as if the driver had died before it
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    run()
    assert [batch for _, batch in seen] == [0, 1, 1]
    assert numbers_of(sink.read(spark)) == list(range(10))
