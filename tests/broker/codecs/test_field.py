"""The walk over tables agrees with pamqp about where values end."""

from __future__ import annotations

import datetime
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import encode

from headrace_broker.codecs.field import FieldWalker
from headrace_broker.codecs.method import decode_headers

VALUES = {
    "t": (b"\x01", True),
    "b": (b"\xff", -1),
    "B": (b"\xff", 255),
    "s": (b"\xff\xfe", -2),
    "u": (b"\xff\xfe", 65534),
    "I": (b"\xff\xff\xff\xfd", -3),
    "i": (b"\xff\xff\xff\xfd", 4294967293),
    "l": (b"\xff" * 8, -1),
    "L": (b"\xff" * 8, -1),
    "f": (struct.pack(">f", 0.5), 0.5),
    "d": (struct.pack(">d", 0.1), 0.1),
    "D": (b"\x01\x00\x00\x00\x19", 2.5),
    "S": (b"\x00\x00\x00\x02ab", "ab"),
    "x": (b"\x00\x00\x00\x02\xff\x00", bytearray(b"\xff\x00")),
    "T": (struct.pack(">Q", 86400), datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)),
    "A": (b"\x00\x00\x00\x03Vt\x01", [None, True]),
    "F": (b"\x00\x00\x00\x04\x01ab\x07", {"a": 7}),
    "V": (b"", None),
}


def walked(table: bytes) -> tuple[int, str]:
    walker = FieldWalker()
    return walker.table(table, 0, len(table)), walker.problem


@pytest.mark.parametrize("kind", VALUES)
def test_every_field_type_that_rabbitmq_knows_is_taken(kind: str) -> None:
    data, value = VALUES[kind]
    fields = b"\x01k" + kind.encode() + data + b"\x04lastt\x00"
    table = struct.pack(">I", len(fields)) + fields
    assert walked(table) == (len(table), "")
    assert decode_headers(b"\x20\x00" + table) == {"k": value, "last": False}


def test_any_other_field_type_is_refused() -> None:
    others = {code for code in range(256) if chr(code) not in VALUES}
    assert len(others) == 256 - len(VALUES)
    for code in others:
        fields = b"\x01k" + bytes((code,)) + bytes(9)
        found = walked(struct.pack(">I", len(fields)) + fields)
        assert found == (-1, f"field 'k': unknown field type 0x{code:02x}")


values = st.recursive(
    st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.text(max_size=9)
    | st.floats(width=32)
    | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(table=st.dictionaries(st.text(max_size=20), values, max_size=4), rest=st.binary(max_size=4))
def test_what_pamqp_encodes_is_walked_to_its_end(table: dict[str, Any], rest: bytes) -> None:
    data = encode.field_table(table)
    walker = FieldWalker()
    assert walker.table(b"??" + data + rest, 2, 2 + len(data)) == 2 + len(data)
    if len(data) > 4:
        assert walker.table(data, 0, len(data) - 1) == -1
