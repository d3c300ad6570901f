"""Comparison of a stored table with its declaration.

Columns may be missing on either side: one that the disk lacks is added at the end when rows are
next written, and one that the declaration lacks was written by a newer release and stays null.
Types and partitions never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import types as spark

from headrace_pipeline.error import SchemaError
from headrace_pipeline.schema.column import Column, Kind, Table


class Stored(NamedTuple):
    """Columns and partitions of a stored table."""

    kinds: dict[str, Kind | None]  # by column, in order; None for a type that we have no word for
    partition_by: tuple[str, ...]  # names of the partition columns


def stored_table(stored: Stored, name: str) -> Table:
    """Return the table that is on the disk, whatever it was declared as.

    Raises:
        SchemaError: it has a type that we have no word for.
    """
    unknown = [column for column, kind in stored.kinds.items() if kind is None]
    if unknown:
        raise SchemaError(f"{name}: columns of other types than ours: {', '.join(unknown)}")
    columns = tuple(Column(column, kind) for column, kind in stored.kinds.items() if kind)
    return Table(name, columns, stored.partition_by)


def missing_columns(stored: Stored, table: Table, where: str) -> tuple[Column, ...]:
    """Return the columns that the disk lacks.

    Args:
        stored: what is on the disk.
        table: as declared.
        where: for messages.

    Raises:
        SchemaError: a type or the partition columns differ.
    """
    for column in table.columns:
        kind = stored.kinds.get(column.name, column.kind)
        if kind is not column.kind:
            had = "another type" if kind is None else kind.value
            raise SchemaError(
                f"{where}: column {column.name} is {had} there and {column.kind.value} here; types "
                "never change: give another path, or write the table anew"
            )
    if stored.partition_by != table.partition_by:
        raise SchemaError(
            f"{where}: it is partitioned by {', '.join(stored.partition_by) or 'nothing'} and not "
            f"by {', '.join(table.partition_by) or 'nothing'}: give another path"
        )
    return tuple(column for column in table.columns if column.name not in stored.kinds)


def absent_columns(given: spark.StructType, table: Table) -> Sequence[spark.StructField]:
    """Return the fields that rows lack, which are written as null.

    Raises:
        SchemaError: rows have columns that the table has not, or of another type.
    """
    declared = {field.name: field for field in table.spark()}
    for field in given:
        if field.name not in declared:
            raise SchemaError(
                f"table {table.name} has no column {field.name}: drop it, or declare it"
            )
        want = declared[field.name].dataType
        if field.dataType != want:
            raise SchemaError(
                f"column {field.name} of table {table.name} must be {want.simpleString()}, not "
                f"{field.dataType.simpleString()}: cast it"
            )
    return [field for name, field in declared.items() if name not in given.names]
