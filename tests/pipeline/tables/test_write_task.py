"""Rows that a task refuses to write, and the error text."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.pipeline.tables.table_rows import THINGS, row

from headrace_pipeline.error import SchemaError
from headrace_pipeline.schema.column import Table
from headrace_pipeline.tables.write_task import cast

LAST_MICROS = 253_402_300_800 * 1_000_000 - 1
FIRST_MICROS = -62_135_596_800 * 1_000_000
LAST_DAY = 2_932_896


def batch(times: list[int | None], days: list[int | None]) -> pa.RecordBatch:
    """Rows 0, 1, ... with these instants, in microseconds, and days since 1970."""
    rows = pa.RecordBatch.from_pylist([row(number) for number in range(len(times))], THINGS.arrow())
    at = pa.array(times, pa.int64()).view(pa.timestamp("us", tz="UTC"))
    day = pa.array(days, pa.int32()).view(pa.date32())
    names = THINGS.names
    columns = [{"at": at, "day": day}.get(name, rows.column(name)) for name in names]
    return pa.RecordBatch.from_arrays(columns, schema=THINGS.arrow())


def test_all_times_that_a_calendar_has_are_taken() -> None:
    rows = batch([FIRST_MICROS, LAST_MICROS, None], [LAST_DAY, None, 0])
    assert cast(rows, THINGS).equals(rows)
    assert cast(batch([], []), THINGS).num_rows == 0
    assert cast(batch([None], [None]), THINGS).num_rows == 1


@pytest.mark.parametrize(
    ("times", "days", "column"),
    [
        ([0, None, LAST_MICROS + 1], [0, 0, 0], "at"),
        ([0, 0, FIRST_MICROS - 1], [0, 0, 0], "at"),
        ([0, 0, 2**63 - 1], [0, 0, 0], "at"),
        ([0, 0, 0], [0, None, LAST_DAY + 1], "day"),
    ],
)
@pytest.mark.parametrize(
    ("key", "named"), [(("number",), "the row with number = 2"), ((), "row 2 of a batch of 3")]
)
def test_a_time_that_no_calendar_has_is_refused_by_row_and_column(
    times: list[int | None], days: list[int | None], column: str, key: tuple[str, ...], named: str
) -> None:
    table: Table = THINGS._replace(key=key)
    told = f"column {column} of things has a time out of the years 1 to 9999 in {named}: correct it"
    with pytest.raises(SchemaError, match=told):
        cast(batch(times, days), table)


def test_a_row_whose_key_is_the_time_is_named_by_its_place() -> None:
    with pytest.raises(SchemaError, match="in row 1 of a batch of 2"):
        cast(batch([0, LAST_MICROS + 1], [0, 0]), THINGS._replace(key=("at", "number")))
