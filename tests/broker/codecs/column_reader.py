"""Reader of blocks of columns that needs no Arrow."""

from __future__ import annotations

import sys
from array import array
from typing import Any, Final

from headrace_broker.codecs.column_block import (
    ALIGNMENT,
    BINARY,
    BOOL,
    FLOAT64,
    INT32,
    INT64,
    TIMESTAMP_MS,
    UTF8,
    ColumnBlock,
    Schema,
)

_TYPECODES: Final = {INT64: "q", INT32: "i", FLOAT64: "d", TIMESTAMP_MS: "q"}


def decode_columns(schema: Schema, block: ColumnBlock) -> list[list[Any]]:
    """Return the values of each column; ValueError where the block is none of this schema."""
    found: list[list[Any]] = []
    reader = _Reader(block)
    for _, kind in schema.columns:
        valid = reader.take()
        if kind in (UTF8, BINARY):
            values = _decode_bytes(reader.take(), reader.take(), kind, block.rows)
        elif kind == BOOL:
            values = _bits(reader.take(), block.rows)
        else:
            values = _decode_numbers(reader.take(), kind, block.rows)
        if valid:
            values = [
                value if known else None
                for value, known in zip(values, _bits(valid, block.rows), strict=True)
            ]
        found.append(values)
    return found


class _Reader:
    """Takes one buffer after the other."""

    def __init__(self, block: ColumnBlock) -> None:
        self._block = block
        self._number = 0
        self._offset = 0

    def take(self) -> bytes:
        """Return the next buffer; ValueError where there is none."""
        block = self._block
        if self._number >= len(block.buffer_bytes):
            raise ValueError("the block has too few buffers")
        length = block.buffer_bytes[self._number]
        start = self._offset
        if start + length > len(block.body):
            raise ValueError("the block is too short for its buffers")
        self._number += 1
        self._offset = start + length + -length % ALIGNMENT
        return block.body[start : start + length]


def _decode_numbers(data: bytes, kind: int, rows: int) -> list[Any]:
    values = array(_TYPECODES[kind])
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    if len(values) != rows:
        raise ValueError(f"a column has {len(values)} values, not {rows}")
    return values.tolist()


def _decode_bytes(offsets: bytes, data: bytes, kind: int, rows: int) -> list[Any]:
    ends = _decode_numbers(offsets, INT32, rows + 1)
    found: list[Any] = [data[ends[row] : ends[row + 1]] for row in range(rows)]
    if kind == UTF8:
        return [value.decode() for value in found]
    return found


def _bits(data: bytes, rows: int) -> list[Any]:
    number = int.from_bytes(data, "little")
    return [bool(number >> row & 1) for row in range(rows)]
