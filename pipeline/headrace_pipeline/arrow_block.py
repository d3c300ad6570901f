"""Blocks of brokers as Arrow's record batches, without copying a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from headrace_pipeline.error import SchemaError
from headrace_pipeline.limits import SCHEMAS_KEPT

ALIGNMENT: Final = 8  # bytes at whose multiples buffers begin

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
    """Schema of a block."""

    @property
    def columns(self) -> Sequence[tuple[str, int]]:
        """Names and types."""


class BlockBytes(Protocol):
    """Rows; see `ExportBlock` of export.proto."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def buffer_bytes(self) -> Sequence[int]:
        """Length of each buffer."""

    @property
    def body(self) -> bytes:
        """The buffers, uncompressed."""


def to_batch(schema: BlockSchema, block: BlockBytes) -> pa.RecordBatch:
    """Return all rows of a block; the batch keeps its body alive.

    Columns are only ever added at the end. One of a type that is not known here is from a newer
    broker: how long it is cannot be told, so it and those behind it are left out.

    Args:
        schema: of the block.
        block: whole: where it begins before the row that is wanted, slice the batch.

    Raises:
        SchemaError: the block has not the buffers that its schema says.
    """
    known, kinds = _known(tuple(schema.columns))
    buffers = _buffers(block)
    rows = block.rows
    arrays = [_array(kind, rows, buffers) for kind in kinds]
    return pa.RecordBatch.from_arrays(arrays, schema=known)


class _Kind(NamedTuple):
    """A column: its name and type, whether it has offsets, and how many bits a value has."""

    name: str
    type: pa.DataType
    has_offsets: bool
    bits: int


@lru_cache(maxsize=SCHEMAS_KEPT)
def _known(columns: tuple[tuple[str, int], ...]) -> tuple[pa.Schema, tuple[_Kind, ...]]:
    """Return the columns that are known here; brokers' blocks are small, and their schemas few."""
    kinds = []
    for name, number in columns:
        kind = TYPES.get(number)
        if kind is None:
            break
        has_offsets = number in _WITH_OFFSETS
        kinds.append(_Kind(name, kind, has_offsets, 0 if has_offsets else kind.bit_width))
    return pa.schema([(each.name, each.type) for each in kinds]), tuple(kinds)


def _array(kind: _Kind, rows: int, buffers: Iterator[pa.Buffer]) -> pa.Array:
    name, arrow, has_offsets, bits = kind
    try:
        valid: pa.Buffer | None = next(buffers)
        values = [valid, next(buffers)]
        if has_offsets:
            values.append(next(buffers))
    except StopIteration:
        raise SchemaError(f"column {name}: the block has too few buffers") from None
    assert valid is not None, "it is there, empty or not"
    if not valid.size:
        values[0] = None  # all rows have a value
    elif 8 * valid.size < rows:
        raise SchemaError(f"column {name}: its bitmap is too short for {rows} rows")
    least = 4 * (rows + 1) if has_offsets else (rows * bits + 7) // 8
    if values[1].size < least:
        raise SchemaError(f"column {name}: its values are too short for {rows} rows")
    if has_offsets and _last_offset(values[1], rows) > values[2].size:
        raise SchemaError(f"column {name}: its values are too short for its offsets")
    return pa.Array.from_buffers(arrow, rows, values)


def _last_offset(offsets: pa.Buffer, rows: int) -> int:
    return int.from_bytes(memoryview(offsets)[4 * rows : 4 * rows + 4], "little")


def _buffers(block: BlockBytes) -> Iterator[Any]:
    """Return the buffers one after the other.

    Raises:
        SchemaError: the body ends before.
    """
    body = pa.py_buffer(block.body)
    offset = 0
    for length in block.buffer_bytes:
        if offset + length > body.size:
            raise SchemaError("the block is too short for its buffers")
        yield body.slice(offset, length)
        offset += length + -length % ALIGNMENT
