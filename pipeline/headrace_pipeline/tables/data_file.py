"""A file of a table: its place, and the statistics of its rows."""

from __future__ import annotations

import datetime as dt
from typing import Final, NamedTuple

import msgspec

from headrace_pipeline.schema.column import Kind, Table
from headrace_pipeline.tables.partition import Value, text_of, value_of

TEXT_MAX: Final = 32  # characters of a text's bound, as Delta has it; more only fills the log
_GREATEST: Final = "\U0010ffff"
_ROUNDED: Final = dt.timedelta(milliseconds=1)  # other writers cut instants to milliseconds
_LAST: Final = dt.datetime.max.replace(tzinfo=dt.UTC) - _ROUNDED  # that can be rounded up


class Stats(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Statistics of a file in Delta's log, by column; bounds hold, but may not be met."""

    num_records: int
    min_values: dict[str, int | str] = {}
    max_values: dict[str, int | str] = {}
    null_count: dict[str, int] = {}


class DataFile(msgspec.Struct, frozen=True):
    """A file of a table."""

    path: str  # below the table's directory, as it is on the disk
    byte_count: int  # its size
    partition: dict[str, str | None]  # texts by column, as Delta has them
    stats: Stats  # of its rows
    written_at_ms: int  # Unix time

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.stats.num_records


class Bounds(NamedTuple):
    """Bounds of a column's values in a file; None: not known."""

    low: Value  # the least
    high: Value  # the greatest
    nulls: int | None  # how many are null; None: not known


def bounds(file: DataFile, table: Table, name: str) -> Bounds:
    """Return the bounds of a column's values in a file, in Python's types."""
    kind = next(column.kind for column in table.columns if column.name == name)
    if name in file.partition:
        value = value_of(file.partition[name], kind)
        return Bounds(value, value, file.rows if value is None else 0)
    low = _read(file.stats.min_values.get(name), kind)
    high = _read(file.stats.max_values.get(name), kind)
    if isinstance(high, dt.datetime):
        high = high + _ROUNDED if high <= _LAST else None
    return Bounds(low, high, file.stats.null_count.get(name))


def low_text(value: Value) -> int | str | None:
    """Return a lower bound as Delta's JSON has it."""
    return value[:TEXT_MAX] if isinstance(value, str) else _write(value)


def high_text(value: Value) -> int | str | None:
    """Return an upper bound as Delta's JSON has it."""
    if isinstance(value, str) and len(value) > TEXT_MAX:
        return value[:TEXT_MAX] + _GREATEST
    return value if isinstance(value, str) else _write(value)


def _write(value: Value) -> int | str | None:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value if isinstance(value, int) else text_of(value)


def _read(value: int | str | None, kind: Kind) -> Value:
    if isinstance(value, str) and kind is Kind.TIMESTAMP:
        return dt.datetime.fromisoformat(value)
    if isinstance(value, str) and kind is Kind.DATE:
        return dt.date.fromisoformat(value)
    return value
