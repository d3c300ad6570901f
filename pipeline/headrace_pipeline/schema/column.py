"""Columns and tables, defined once: Spark's types, Arrow's, and versions come from here.

Columns are only ever added, at the end, and the table's version grows with them. What was
written under an earlier version is read with nulls in the columns that it lacks.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import types as spark


class Kind(Enum):
    """Type of a column."""

    INT64 = "int64"
    INT32 = "int32"
    FLOAT64 = "float64"
    BOOL = "bool"
    UTF8 = "utf8"
    BINARY = "binary"
    TIMESTAMP = "timestamp"  # an instant, microseconds, UTC
    DATE = "date"


_SPARK: Final[dict[Kind, spark.DataType]] = {
    Kind.INT64: spark.LongType(),
    Kind.INT32: spark.IntegerType(),
    Kind.FLOAT64: spark.DoubleType(),
    Kind.BOOL: spark.BooleanType(),
    Kind.UTF8: spark.StringType(),
    Kind.BINARY: spark.BinaryType(),
    Kind.TIMESTAMP: spark.TimestampType(),
    Kind.DATE: spark.DateType(),
}

_ARROW: Final[dict[Kind, pa.DataType]] = {
    Kind.INT64: pa.int64(),
    Kind.INT32: pa.int32(),
    Kind.FLOAT64: pa.float64(),
    Kind.BOOL: pa.bool_(),
    Kind.UTF8: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.DATE: pa.date32(),
}


class Column(NamedTuple):
    """A column of a table."""

    name: str  # as Spark, Arrow and files have it
    kind: Kind  # what is in it
    since: int = 1  # version of the table that brought it
    # whether it never is null. Spark and Arrow are told that all may be: a reader must not fail on
    # the file of a future writer.
    required: bool = False


class Table(NamedTuple):
    """Schema of rows of one sort."""

    name: str  # of the table, in the singular of its rows' log or in words
    columns: tuple[Column, ...]  # in order; `since` never falls
    # names of the columns that files are divided by, outermost first
    partition_by: tuple[str, ...] = ()
    key: tuple[str, ...] = ()  # names of the columns that tell a row from all others

    @property
    def version(self) -> int:
        """The newest version."""
        return max(column.since for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    def at(self, version: int) -> Table:
        """Return the table as it was at a version."""
        columns = tuple(column for column in self.columns if column.since <= version)
        return self._replace(columns=columns)

    def without(self, *names: str) -> Table:
        """Return the table without some columns."""
        columns = tuple(column for column in self.columns if column.name not in names)
        return self._replace(columns=columns)

    def spark(self) -> spark.StructType:
        """Return Spark's schema."""
        fields = [spark.StructField(each.name, _SPARK[each.kind], True) for each in self.columns]
        return spark.StructType(fields)

    def arrow(self) -> pa.Schema:
        """Return Arrow's schema, to which batches must be cast exactly before Spark gets them."""
        return pa.schema([pa.field(each.name, _ARROW[each.kind], True) for each in self.columns])
