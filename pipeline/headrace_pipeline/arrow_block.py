"""Blocks of brokers as Arrow's record batches, without copying a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from headrace_pipeline.error import SchemaError

ALIGNMENT: Final = 8  # octets at whose multiples buffers begin

# By their numbers in `ExportType` of export.proto.
TYPES: Final[dict[int, pa.DataType]] = {
    1: pa.int64(),
    2: pa.int32(),
    3: pa.float64(),
    4: pa.bool_(),
    5: pa.string(),
    6: pa.binary(),
    7: pa.timestamp("ms", tz="UTC"),
}
_WITH_OFFSETS: Final = frozenset({5, 6})


class BlockSchema(Protocol):
    """What rows have."""

    @property
    def columns(self) -> Sequence[tuple[str, int]]:
        """Names and types."""


class BlockOctets(Protocol):
    """Rows; see `ExportBlock` of export.proto."""

    @property
    def rows(self) -> int:
        """How many."""

    @property
    def buffer_octets(self) -> Sequence[int]:
        """Length of each buffer."""

    @property
    def body(self) -> bytes:
        """The buffers, uncompressed."""


def to_batch(schema: BlockSchema, block: BlockOctets) -> pa.RecordBatch:
    """Return all rows of a block; the batch keeps its body alive.

    Columns are only ever added at the end. One of a type that is not known here is from a newer
    broker: how long it is cannot be told, so it and those behind it are left out.

    Args:
        schema: of the block.
        block: whole: where it begins before the row that is wanted, slice the batch.

    Raises:
        SchemaError: the block has not the buffers that its schema says.
    """
    buffers = _buffers(block)
    arrays: list[pa.Array] = []
    names: list[str] = []
    for name, number in schema.columns:
        kind = TYPES.get(number)
        if kind is None:
            break
        names.append(name)
        arrays.append(_array(name, kind, number in _WITH_OFFSETS, block.rows, buffers))
    return pa.RecordBatch.from_arrays(arrays, names)


def _array(
    name: str, kind: pa.DataType, has_offsets: bool, rows: int, buffers: Iterator[pa.Buffer]
) -> pa.Array:
    try:
        valid: pa.Buffer | None = next(buffers)
        values = [next(buffers) for _ in range(2 if has_offsets else 1)]
    except StopIteration:
        raise SchemaError(f"column {name}: the block has too few buffers") from None
    assert valid is not None, "it is there, empty or not"
    if not valid.size:
        valid = None  # all rows have a value
    elif 8 * valid.size < rows:
        raise SchemaError(f"column {name}: its bitmap is too short for {rows} rows")
    least = 4 * (rows + 1) if has_offsets else (rows * kind.bit_width + 7) // 8
    if values[0].size < least:
        raise SchemaError(f"column {name}: its values are too short for {rows} rows")
    if has_offsets and _last_offset(values[0], rows) > values[1].size:
        raise SchemaError(f"column {name}: its values are too short for its offsets")
    return pa.Array.from_buffers(kind, rows, [valid, *values])


def _last_offset(offsets: pa.Buffer, rows: int) -> int:
    return int.from_bytes(memoryview(offsets)[4 * rows : 4 * rows + 4], "little")


def _buffers(block: BlockOctets) -> Iterator[Any]:
    """Return the buffers one after the other.

    Raises:
        SchemaError: the body ends before.
    """
    body = pa.py_buffer(block.body)
    offset = 0
    for length in block.buffer_octets:
        if offset + length > body.size:
            raise SchemaError("the block is too short for its buffers")
        yield body.slice(offset, length)
        offset += length + -length % ALIGNMENT
