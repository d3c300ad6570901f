"""Conditions on the columns of a table: they filter rows, and pass over files without any."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import reduce
from typing import Any, Final, Literal, NamedTuple

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from headrace_pipeline.error import SchemaError
from headrace_pipeline.schema.column import Table
from headrace_pipeline.tables.data_file import Bounds, DataFile, bounds
from headrace_pipeline.tables.partition import Value

_COMPARE: Final = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Where(NamedTuple):
    """A condition that all rows that are read fulfil; null fulfils none."""

    column: str  # its name
    op: Literal["=", "<", "<=", ">", ">=", "in"]  # what must hold between the column and the value
    value: Value | Iterable[Value]  # of the column's type; for `in` several


def conditions(table: Table, given: Iterable[tuple[str, Any, Any]]) -> tuple[Where, ...]:
    """Return conditions in one form.

    Raises:
        SchemaError: there is no such column or operator.
    """
    found = []
    for column, op, value in given:
        if column not in table.names:
            raise SchemaError(f"table {table.name} has no column {column}")
        if op not in _COMPARE and op != "in":
            raise SchemaError(f"{op!r} is none of {', '.join((*_COMPARE, 'in'))}")
        found.append(Where(column, op, tuple(value) if op == "in" else value))
    return tuple(found)


def may_match(file: DataFile, table: Table, where: Iterable[Where]) -> bool:
    """Say whether a file may hold rows that fulfil all conditions."""
    return all(_may(bounds(file, table, each.column), each, file.rows) for each in where)


def row_filter(where: Iterable[Where]) -> SparkColumn:
    """Return the conditions as Spark has them."""
    return reduce(operator.and_, map(_spark, where), F.lit(True))


def _spark(where: Where) -> SparkColumn:
    column = F.col(where.column)
    if where.op == "in":
        return column.isin(list(_several(where)))
    filtered: SparkColumn = _COMPARE[where.op](column, F.lit(where.value))
    return filtered


def _several(where: Where) -> tuple[Value, ...]:
    assert isinstance(where.value, tuple), where
    return where.value


def _may(known: Bounds, where: Where, rows: int) -> bool:
    if known.nulls is not None and known.nulls == rows:
        return False
    if where.op == "in":
        return any(_within(known, "=", value) for value in _several(where))
    return _within(known, where.op, where.value)


def _within(known: Bounds, op: str, value: Any) -> bool:
    if known.low is not None and op in ("=", "<", "<=") and value < known.low:
        return False
    return known.high is None or op not in ("=", ">", ">=") or bool(value <= known.high)
