"""Blocks as the broker writes them become Arrow batches, whatever is in them."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.codecs import column_block
from headrace_broker.codecs.column_block import ColumnBlock, Schema, encode_columns
from headrace_pipeline.arrow_block import TYPES, to_batch
from headrace_pipeline.error import SchemaError
from headrace_protos.broker.v1 import export_pb2 as pb

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES: dict[int, st.SearchStrategy[Any]] = {
    column_block.INT64: INT64,
    column_block.INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    column_block.FLOAT64: st.floats(allow_nan=False),
    column_block.BOOL: st.booleans(),
    column_block.UTF8: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    column_block.BINARY: st.binary(max_size=8),
    column_block.TIMESTAMP_MS: INT64,
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, list[list[Any]]]:
    """A schema and columns of values, some of which are null."""
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=6))
    rows = draw(st.integers(1, 20))
    names = tuple((f"c{at}", kind) for at, kind in enumerate(kinds))
    columns = [
        draw(st.lists(st.none() | VALUES[kind], min_size=rows, max_size=rows)) for kind in kinds
    ]
    return Schema(1, names), columns


def values_of(array: Any) -> list[Any]:
    """Return an array's values; numbers for instants, most of which Python cannot represent."""
    is_time = pa.types.is_timestamp(array.type)
    found: list[Any] = (array.view(pa.int64()) if is_time else array).to_pylist()
    return found


@given(tables())
def test_all_values_come_back(table: tuple[Schema, list[list[Any]]]) -> None:
    schema, columns = table
    block = encode_columns(schema, columns)
    batch = to_batch(schema, block)
    batch.validate(full=True)
    assert batch.schema.names == [name for name, _ in schema.columns]
    assert [values_of(column) for column in batch.columns] == columns
    copy = pa.ipc.read_record_batch(batch.slice(block.rows // 2).serialize(), batch.schema)
    assert [values_of(each) for each in copy.columns] == [
        column[block.rows // 2 :] for column in columns
    ]


@given(tables(), st.integers(8, 64))
def test_a_block_that_is_cut_off_is_refused(
    table: tuple[Schema, list[list[Any]]], byte_count: int
) -> None:
    schema, columns = table
    block = encode_columns(schema, columns)
    with pytest.raises(SchemaError, match="too short"):
        to_batch(schema, block._replace(body=block.body[:-byte_count]))


def test_types_are_those_of_the_protocol_and_of_the_broker() -> None:
    told = {number for number in pb.ExportType.values() if number}
    assert set(TYPES) == told == set(VALUES)


def test_values_are_not_copied() -> None:
    schema = Schema(1, (("n", column_block.INT64), ("text", column_block.UTF8)))
    block = encode_columns(schema, [[1, 2, 3], ["a", "b", "c"]])
    batch = to_batch(schema, block)
    start = pa.py_buffer(block.body).address
    for column in batch.columns:
        for buffer in column.buffers():
            assert buffer is None or start <= buffer.address <= start + len(block.body)


class Newer(NamedTuple):
    columns: tuple[tuple[str, int], ...]


def test_columns_of_a_type_that_is_not_known_yet_are_left_out() -> None:
    schema = Schema(1, (("n", column_block.INT64), ("more", column_block.INT64)))
    block = encode_columns(schema, [[1], [2]])
    newer = Newer((("n", column_block.INT64), ("more", 99)))
    assert to_batch(newer, block).to_pydict() == {"n": [1]}


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        ((0,), "n: the block has too few buffers"),
        ((0, 8), "n: its values are too short for 2 rows"),
        ((0, 24), "the block is too short"),
    ],
)
def test_what_is_wrong_with_a_block_is_told(lengths: tuple[int, ...], text: str) -> None:
    schema = Schema(1, (("n", column_block.INT64),))
    block = encode_columns(schema, [[1, 2]])
    with pytest.raises(SchemaError, match=text):
        to_batch(schema, ColumnBlock(2, lengths, block.body))
