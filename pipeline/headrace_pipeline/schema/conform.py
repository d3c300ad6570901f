"""Batches as tables declare them: Spark looks at the types of the first one only, and then trusts.

What is older than the table lacks columns, which are null; what is newer has more, which are left
out. Nothing else is changed but what `conform` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace_pipeline.error import SchemaError
from headrace_pipeline.schema.column import Table
from headrace_pipeline.schema.log import RENAMED

# What calendars have, and Python: the years 1 to 9999. A publisher may write what it likes into the
# property `timestamp`.
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_SECONDS: Final = 86_400


def conform(
    batch: pa.RecordBatch, table: Table, given: Mapping[str, pa.Array] | None = None
) -> pa.RecordBatch:
    """Return a batch with exactly the columns and types of a table, in its order.

    Instants in milliseconds become microseconds, UTC; those that no calendar has become null.
    Integers of 32 bits become such of 64. Columns that the broker calls otherwise are renamed.

    Args:
        batch: any number of rows.
        table: what they are to be.
        given: columns that the batch has not, as long as it; they come first and are not renamed.

    Raises:
        SchemaError: a column has another type, or one that always was required lacks a value.
    """
    known = _renamed(batch, table)
    known.update(given or {})
    schema = table.arrow()
    arrays = []
    for column, field in zip(table.columns, schema, strict=True):
        where = f"{table.name}.{column.name}"
        array = known.get(column.name)
        if array is None:
            array = pa.nulls(batch.num_rows, field.type)
        elif array.type != field.type:
            array = _cast(array, field.type, where)
        if column.required and column.since == 1 and array.null_count:
            raise SchemaError(f"{where}: must have a value in each row, and lacks some")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def beyond_calendar(array: pa.Array) -> int | None:
    """Return the place of the first instant or day that no calendar has; None where there is none.

    Args:
        array: timestamps, or days since 1970 (`date32`).
    """
    numbers, first, last = _numbers(array)
    if _within(numbers, first, last):
        return None
    outside = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
    return int(pc.index(pc.fill_null(outside, False), True).as_py())


def _renamed(batch: pa.RecordBatch, table: Table) -> dict[str, Any]:
    """Return columns by the names that they have here.

    What has the new name already was renamed before.
    """
    names = batch.schema.names
    if len(set(names)) < len(names):
        raise SchemaError(f"{table.name}: a batch has two columns of one name")
    renamed = RENAMED.get(table.name, {})
    found: dict[str, Any] = {}
    for name, array in zip(names, batch.columns, strict=True):
        new = renamed.get(name, name)
        found[name if new in names else new] = array
    return found


def _cast(array: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    """Return an array as another type that holds all that it has.

    Raises:
        SchemaError: it does not.
    """
    given = array.type
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(given) and given.tz is not None:
        return _instants(array).cast(kind)
    wider = pa.types.is_int32(given) and pa.types.is_int64(kind)
    large = (given, kind) in {(pa.large_string(), pa.string()), (pa.large_binary(), pa.binary())}
    if not (wider or large or pa.types.is_null(given)):
        raise SchemaError(f"{where}: must be {kind}, and is {given}")
    try:
        return array.cast(kind)
    except pa.ArrowInvalid as error:
        raise SchemaError(f"{where}: {error}") from None


def _instants(array: pa.Array) -> pa.Array:
    """Return instants, null for those that no calendar has."""
    numbers, first, last = _numbers(array)
    if _within(numbers, first, last):
        return array.cast(pa.timestamp(array.type.unit, tz="UTC"))
    fits = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
    kept = pc.if_else(fits, numbers, pa.scalar(None, pa.int64()))
    return kept.view(pa.timestamp(array.type.unit, tz="UTC"))


def _numbers(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Return instants or days as numbers, and the first and the last one that calendars have."""
    if pa.types.is_date32(array.type):
        days = array.view(pa.int32())
        return days, _FIRST_SECOND // _DAY_SECONDS, _LAST_SECOND // _DAY_SECONDS
    unit = _PER_SECOND[array.type.unit]
    first = max(_FIRST_SECOND * unit, -(1 << 63))
    last = min((_LAST_SECOND + 1) * unit - 1, (1 << 63) - 1)
    return array.view(pa.int64()), first, last


def _within(numbers: pa.Array, first: int, last: int) -> bool:
    """Return whether all numbers are within bounds; nulls are."""
    found = pc.min_max(numbers).as_py()
    return found["min"] is None or (first <= found["min"] and found["max"] <= last)
