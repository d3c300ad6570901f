"""Arguments between the catalog and messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.gateways.grpc.server.errors import CallError
from headrace_broker.gateways.grpc.values.argument_table import read_table, written_table
from headrace_broker.model.binding_key import table_key
from headrace_protos.broker.v1.value_pb2 import Array, Decimal, Table, Value

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)
_NAMES = st.text(max_size=60)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(_NAMES, _VALUES, max_size=4))
def test_what_is_written_is_read_again(arguments: dict[str, Any]) -> None:
    table = Table.FromString(written_table(arguments).SerializeToString())
    found = read_table(table, "arguments")
    assert table_key(found) == table_key(arguments)  # types count


@pytest.mark.parametrize(
    ("value", "place", "rule"),
    [
        (Value(int8=200), ".int8", "must be -128 to 127, not 200"),
        (Value(uint16=1 << 16), ".uint16", "must be 0 to 65535, not 65536"),
        (Value(timestamp=1 << 63), ".timestamp", "must be 0 to"),
        (Value(decimal=Decimal(scale=1, value=5)), ".decimal", "must be a boolean"),
        (Value(octets=b"\xff"), ".octets", "must be a boolean"),
        (Value(array=Array(values=[Value(int8=-129)])), ".array.values[0].int8", "must be"),
    ],
)
def test_a_value_that_cannot_be_stored_is_refused(value: Value, place: str, rule: str) -> None:
    with pytest.raises(CallError) as caught:
        read_table(Table(fields={"x": value}), "arguments")
    field, told = caught.value.fields[0]
    assert (field, rule in told) == (f'arguments.fields["x"]{place}', True)


def test_a_value_of_no_kind_is_none() -> None:
    assert read_table(Table(fields={"x": Value()}), "arguments") == {"x": None}


def test_arrays_count_as_depth() -> None:
    value = Value(int64=1)
    for _ in range(16):
        value = Value(array=Array(values=[value]))
    with pytest.raises(CallError, match="nest at most 16 deep"):
        read_table(Table(fields={"x": value}), "arguments")
    deep = read_table(Table(fields={"x": value.array.values[0]}), "arguments")
    assert str(deep).count("[") == 15


def test_an_integer_without_a_type_of_amqp_becomes_text() -> None:
    assert written_table({"x": 1 << 63}).fields["x"].string == str(1 << 63)
