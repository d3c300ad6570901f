"""Values of partition columns: as text, and as the names of directories.

Texts are Delta's. Directories are Hive's, `column=value`, escaped as Spark does it, so that any
reader of Parquet files knows them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final, TypeAlias

from headrace_pipeline.error import SchemaError
from headrace_pipeline.schema.column import Column, Kind, Table

Value: TypeAlias = int | str | bool | dt.date | dt.datetime | None

NULL_DIRECTORY: Final = "__HIVE_DEFAULT_PARTITION__"
KINDS: Final = frozenset({Kind.INT32, Kind.INT64, Kind.UTF8, Kind.DATE, Kind.BOOL})

_ESCAPED: Final = frozenset({*map(chr, range(0x20)), *"\"#%'*/:=?\\{[]^", "\x7f"})


def partition_columns(table: Table) -> tuple[Column, ...]:
    """Return the columns that files are divided by, outermost first.

    Raises:
        SchemaError: there is no such column, or it cannot name a directory.
    """
    by_name = {column.name: column for column in table.columns}
    for name in table.partition_by:
        if name not in by_name:
            raise SchemaError(f"table {table.name} is partitioned by {name}, which it has not")
        if by_name[name].kind not in KINDS:
            kind = by_name[name].kind.value
            raise SchemaError(f"table {table.name} cannot be partitioned by {name}: it is {kind}")
    return tuple(by_name[name] for name in table.partition_by)


def text_of(value: Value) -> str | None:
    """Return a value as Delta's text; the empty text is null there, and so it is here."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def value_of(text: str | None, kind: Kind) -> Value:
    """Return the value of a text.

    Raises:
        ValueError: it is none of that kind.
    """
    if text is None or text == "" or kind is Kind.UTF8:
        return text or None
    if kind is Kind.DATE:
        return dt.date.fromisoformat(text)
    if kind is Kind.BOOL:
        return {"true": True, "false": False}[text]
    return int(text)


def directory_of(values: Mapping[str, str | None]) -> str:
    """Return the directory of a partition, below the table's; "" where there are no columns.

    Args:
        values: texts by column, outermost first.
    """
    return "/".join(f"{_escape(name)}={_name(value)}" for name, value in values.items())


def _name(value: str | None) -> str:
    return NULL_DIRECTORY if value is None else _escape(value)


def _escape(text: str) -> str:
    return "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in text)
