"""Rows as columns and back."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.codecs.column_reader import decode_columns

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
    encode_columns,
)

VALUES: dict[int, st.SearchStrategy[Any]] = {
    INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    FLOAT64: st.floats(allow_nan=False),
    BOOL: st.booleans(),
    UTF8: st.text(max_size=20),
    BINARY: st.binary(max_size=20),
    TIMESTAMP_MS: st.integers(0, 1 << 50),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, list[list[Any]]]:
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=8))
    rows = draw(st.integers(1, 40))
    schema = Schema(1, tuple((f"c{number}", kind) for number, kind in enumerate(kinds)))
    columns = [
        draw(st.lists(st.none() | VALUES[kind], min_size=rows, max_size=rows)) for kind in kinds
    ]
    return schema, columns


@given(tables())
def test_what_was_encoded_is_decoded(table: tuple[Schema, list[list[Any]]]) -> None:
    schema, columns = table
    block = encode_columns(schema, columns)
    assert block.rows == len(columns[0])
    assert decode_columns(schema, block) == columns


@given(tables())
def test_buffers_begin_at_multiples_of_eight_bytes(table: tuple[Schema, list[list[Any]]]) -> None:
    block = encode_columns(*table)
    padded = sum(length + -length % ALIGNMENT for length in block.buffer_bytes)
    assert len(block.body) == padded


def test_layout_is_that_of_arrow() -> None:
    schema = Schema(1, (("count", INT32), ("name", UTF8), ("on", BOOL)))
    block = encode_columns(schema, [[7, None, -1], ["a", "", "bc"], [True, False, True]])
    assert block.buffer_bytes == (1, 12, 0, 16, 3, 0, 1)
    assert block.body == b"".join(
        [
            b"\x05".ljust(8, b"\0"),
            struct.pack("<iii", 7, 0, -1).ljust(16, b"\0"),
            struct.pack("<iiii", 0, 1, 1, 3),
            b"abc".ljust(8, b"\0"),
            b"\x05".ljust(8, b"\0"),
        ]
    )


def test_columns_of_unequal_length_are_refused_by_name() -> None:
    schema = Schema(1, (("a", INT64), ("b", INT64)))
    with pytest.raises(ValueError, match="b: there are 1 values, not 2"):
        encode_columns(schema, [[1, 2], [1]])
    with pytest.raises(ValueError, match="1 columns, not 2"):
        encode_columns(schema, [[1, 2]])


def test_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(OverflowError):
        encode_columns(Schema(1, (("a", INT32),)), [[1 << 31]])


@given(tables(), st.data())
def test_block_that_was_cut_is_refused(
    table: tuple[Schema, list[list[Any]]], data: st.DataObject
) -> None:
    schema, columns = table
    block = encode_columns(schema, columns)
    kept = data.draw(st.integers(0, len(block.body) // ALIGNMENT - 1)) * ALIGNMENT
    cut = ColumnBlock(block.rows, block.buffer_bytes, block.body[:kept])
    with pytest.raises(ValueError, match=r"too short|values, not"):
        decode_columns(schema, cut)
