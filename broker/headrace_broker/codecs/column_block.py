"""Rows as columns: buffers that a reader can use as they are as Arrow arrays.

A block is the buffers of its columns, one behind the other, each at a multiple of 8 bytes: a
bitmap of which rows have a value (empty where all have), for text and bytes 32-bit offsets, and
the values, little-endian.

Source: Arrow columnar format 1.x, "Physical memory layout".
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

# Types of columns; numbers are those of ExportType in export.proto.
INT64: Final = 1
INT32: Final = 2
FLOAT64: Final = 3
BOOL: Final = 4
UTF8: Final = 5
BINARY: Final = 6
TIMESTAMP_MS: Final = 7

ALIGNMENT: Final = 8  # bytes at whose multiples buffers begin
BLOCK_BYTES_MAX: Final = (1 << 31) - 1  # of a column's values, for its offsets are 32 bits

Column: TypeAlias = tuple[str, int]  # name and type

_TYPECODES: Final = {INT64: "q", INT32: "i", FLOAT64: "d", TIMESTAMP_MS: "q"}
_PADDING: Final = bytes(ALIGNMENT)


class Schema(NamedTuple):
    """Columns of the rows of a block."""

    version: int  # grows when columns are added at the end; none is ever removed or changed
    columns: tuple[Column, ...]  # names and types


class ColumnBlock(NamedTuple):
    """Rows as bytes."""

    rows: int  # how many, 1 or more
    buffer_bytes: tuple[int, ...]  # of each buffer: two a column, three of UTF8 and BINARY
    body: bytes  # the buffers


def encode_columns(schema: Schema, columns: Sequence[Sequence[Any]]) -> ColumnBlock:
    """Return a block of columns of equal length, None for no value; UTF-8 may come as bytes.

    Raises ValueError: a column is missing or of another length; OverflowError: too large a number.
    """
    if len(columns) != len(schema.columns):
        raise ValueError(f"there are {len(columns)} columns, not {len(schema.columns)}")
    rows = len(columns[0])
    buffers: list[bytes] = []
    for (name, kind), values in zip(schema.columns, columns, strict=True):
        if len(values) != rows:
            raise ValueError(f"{name}: there are {len(values)} values, not {rows}")
        _encode_column(buffers, kind, values)
    parts: list[bytes] = []
    lengths: list[int] = []
    for buffer in buffers:
        parts.append(buffer)
        lengths.append(len(buffer))
        parts.append(_PADDING[: -len(buffer) % ALIGNMENT])
    return ColumnBlock(rows, tuple(lengths), b"".join(parts))


def _encode_column(buffers: list[bytes], kind: int, values: Sequence[Any]) -> None:
    rows = len(values)
    missing = values.count(None)
    if missing == rows:
        _encode_nothing(buffers, kind, rows)
        return
    if missing:
        buffers.append(_bitmap([value is not None for value in values]))
        empty: Any = "" if kind == UTF8 else b"" if kind == BINARY else 0
        values = [empty if value is None else value for value in values]
    else:
        buffers.append(b"")
    if kind == BOOL:
        buffers.append(_bitmap(values))
    elif kind == UTF8:
        _encode_bytes(buffers, [_utf8(text) for text in values])
    elif kind == BINARY:
        _encode_bytes(buffers, values)
    else:
        buffers.append(_data(array(_TYPECODES[kind], values)))


def _utf8(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "replace")


def _encode_nothing(buffers: list[bytes], kind: int, rows: int) -> None:
    """Write a column without a value."""
    bitmap = bytes((rows + 7) // 8)
    buffers.append(bitmap)
    if kind == BOOL:
        buffers.append(bitmap)
    elif kind in (UTF8, BINARY):
        buffers.append(bytes(4 * (rows + 1)))
        buffers.append(b"")
    else:
        buffers.append(bytes((4 if kind == INT32 else 8) * rows))


def _encode_bytes(buffers: list[bytes], values: Sequence[bytes]) -> None:
    offsets = array("i", [0])
    end = 0
    for value in values:
        end += len(value)
        offsets.append(end)
    buffers.append(_data(offsets))
    buffers.append(b"".join(values))


def _bitmap(values: Sequence[Any]) -> bytes:
    """Return one bit for each value, the first in the lowest bit of the first byte."""
    bits = "".join(["1" if value else "0" for value in reversed(values)])
    return int(bits, 2).to_bytes((len(values) + 7) // 8, "little")


def _data(values: array[Any]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()
