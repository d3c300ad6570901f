"""Messages as columns: what stands in them as text, JSON and bytes."""

from __future__ import annotations

import base64
import json
import math
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import encode
from pika.spec import BasicProperties
from tests.broker.codecs.column_reader import decode_columns

from headrace_broker.codecs.batch import encode_batch
from headrace_broker.codecs.column_block import Schema, encode_columns
from headrace_broker.codecs.message_columns import MESSAGE_COLUMNS, TIMESTAMP_MS_MAX, MessageColumns
from headrace_broker.codecs.method import decode_properties
from headrace_broker.model.limits import PROPERTIES_REMEMBERED_BYTES, PROPERTIES_REMEMBERED_MAX
from headrace_broker.model.message import Publish
from headrace_broker.runtime.contract.json_value import plain

SCHEMA = Schema(1, MESSAGE_COLUMNS)
REPLACED = "\N{REPLACEMENT CHARACTER}"


def block(**properties: Any) -> bytes:
    """A property block."""
    return b"".join(BasicProperties(**properties).encode())


def rows(
    *publishes: tuple[bytes, bytes, bytes],
    full: list[bool] | None = None,
    columns: MessageColumns | None = None,
) -> list[dict[str, Any]]:
    """Messages (route, properties, body) as a reader gets them."""
    batch = encode_batch([Publish(1, route, False, False, *rest) for route, *rest in publishes])
    sizes = [len(body) for _, _, body in publishes]
    made = (columns or MessageColumns()).of(batch, sizes, full)
    found = decode_columns(SCHEMA, encode_columns(SCHEMA, made))
    names = [name for name, _ in MESSAGE_COLUMNS]
    return [dict(zip(names, values, strict=True)) for values in zip(*found, strict=True)]


def row(properties: bytes, route: bytes = b"\x01x\x01k") -> dict[str, Any]:
    return rows((route, properties, b"body"))[0]


def headers(fields: bytes) -> Any:
    """Return the shown form of a headers table with these fields."""
    block = b"\x20\x00" + struct.pack(">I", len(fields)) + fields
    return json.loads(row(block)["headers"])


def test_every_message_has_its_own_values():
    first = block(message_id="m", content_type="a/b", priority=3, headers={"n": 1}, timestamp=7)
    second = block(correlation_id="c", content_encoding="gzip", reply_to="r", expiration="5")
    found = rows(
        (b"\x01x\x03k.1", first, b"one"),
        (b"\x00\x00", b"\x00\x00", b""),
        (b"\x01x\x03k.1", second, b"three"),
        full=[True, True, False],
    )
    assert [each["exchange"] for each in found] == ["x", "", "x"]
    assert [each["routing_key"] for each in found] == ["k.1", "", "k.1"]
    assert [each["message_id"] for each in found] == ["m", None, None]
    assert [each["correlation_id"] for each in found] == [None, None, "c"]
    assert [each["content_type"] for each in found] == ["a/b", None, None]
    assert [each["content_encoding"] for each in found] == [None, None, "gzip"]
    assert [each["priority"] for each in found] == [3, None, None]
    assert [each["headers"] for each in found] == ['{"n":1}', None, None]
    assert [each["properties"] for each in found] == [first, b"\x00\x00", second]
    assert [each["payload"] for each in found] == [b"one", b"", None]
    assert [each["payload_bytes"] for each in found] == [3, 0, 5]
    assert [each["published_at"] for each in found] == [7000, None, None]


def test_message_id_stands_behind_all_that_has_no_column():
    found = row(
        block(
            headers={},
            delivery_mode=2,
            priority=0,
            reply_to="r",
            expiration="9",
            message_id="m",
            timestamp=1,
            type="t",
            user_id="u",
            app_id="a",
            cluster_id="c",
        )
    )
    assert (found["message_id"], found["published_at"], found["headers"]) == ("m", 1000, "{}")
    assert found["priority"] == 0


def table(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.text(max_size=8), strategy, max_size=4)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.text(max_size=12)
    | st.binary(max_size=8).map(bytearray)
    | st.floats(width=32)
    | st.integers(0, (1 << 32) - 1).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
    | st.integers(0, (1 << 31) - 1).map(lambda number: Decimal(number).scaleb(-3)),
    lambda inner: table(inner) | st.lists(inner, max_size=4),
    max_leaves=12,
)


@given(table(VALUES))
def test_headers_are_those_that_a_client_library_decodes(given_: dict[str, Any]):
    properties = b"\x20\x00" + encode.field_table(given_)
    decoded = decode_properties(properties).headers
    assert decoded is not None
    found = json.loads(row(properties)["headers"])
    assert found == _finite(plain(decoded))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"t\x00", False),
        (b"b\xff", -1),
        (b"b\x7f", 127),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xfd", -3),
        (b"i\xff\xff\xff\xfd", 4294967293),
        (b"l" + b"\xff" * 8, -1),
        (b"L" + b"\xff" * 8, -1),
        (b"d" + struct.pack(">d", 0.5), 0.5),
        (b"f" + struct.pack(">f", 0.5), 0.5),
        (b"D\x02" + struct.pack(">I", 1234), 12.34),
        (b"D\xff" + struct.pack(">I", 0), 0),
        (b"T" + struct.pack(">Q", 1_700_000_000), 1_700_000_000),
        (b"T" + struct.pack(">Q", 1_700_000_000_123), 1_700_000_000),  # given in milliseconds
        (b"V", None),
        (b"S\x00\x00\x00\x02\xff\xfe", base64.b64encode(b"\xff\xfe").decode()),
        (b"x\x00\x00\x00\x02ab", "ab"),
        (b"A\x00\x00\x00\x03t\x01V", [True, None]),
        (b"F\x00\x00\x00\x04\x01at\x01", {"a": True}),
    ],
)
def test_value_of_each_type(data: bytes, value: Any):
    assert headers(b"\x01k" + data + b"\x01zV") == {"k": value, "z": None}


def test_name_that_is_no_text_is_shown_and_hides_nothing():
    found = row(b"\x28\x80\x00\x00\x00\x08\x02\xffkB\x07\x01nV" + b"\x05\x01m")
    assert json.loads(found["headers"]) == {f"{REPLACED}k": 7, "n": None}
    assert (found["priority"], found["message_id"]) == (5, "m")


def test_text_that_is_none_is_shown_with_replacement_characters():
    found = row(b"\x80\x80\x02\xff\xfe\x01m", route=b"\x01\xff\x00")
    assert (found["content_type"], found["message_id"]) == (2 * REPLACED, "m")
    assert (found["exchange"], found["routing_key"]) == (REPLACED, "")


@pytest.mark.parametrize(
    "properties", [b"", b"\x80", b"\x80\x00\x05abc", b"\x00\x03", b"\x20\x00\x00\x00\x00\x02\x01a"]
)
def test_properties_that_are_none_stand_as_they_are(properties: bytes):
    batch = encode_batch([Publish(1, b"\x00\x00", False, False, properties, b"b")])
    names = [name for name, _ in MESSAGE_COLUMNS]
    made = dict(zip(names, MessageColumns().of(batch, [1], None), strict=True))
    assert made.pop("properties") == [properties]
    assert made.pop("payload") == [b"b"]
    assert made.pop("payload_bytes") == [1]
    assert (made.pop("exchange"), made.pop("routing_key")) == ([b""], [b""])
    assert set(map(tuple, made.values())) == {(None,)}


@given(st.binary(max_size=60))
def test_any_bytes_give_columns(data: bytes):
    assert rows((b"\x00\x00", data, b"b"))[0]["properties"] == data


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [
        (0, 0),
        (4294967295, 4294967295000),
        (4294967296, 4294967296),  # beyond the year 2106 it is milliseconds
        (TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX),
        (TIMESTAMP_MS_MAX + 1, None),  # the year 10000, which readers do not have
        ((1 << 64) - 1, None),
    ],
)
def test_time_of_publishing(timestamp: int, shown: int | None):
    assert row(b"\x00\x40" + struct.pack(">Q", timestamp))["published_at"] == shown


def test_blocks_that_are_remembered_are_few_and_short():
    columns = MessageColumns()
    wanted = [str(number) for number in range(3 * PROPERTIES_REMEMBERED_MAX)]
    long = "x" * PROPERTIES_REMEMBERED_BYTES
    for _ in range(2):
        blocks = [block(message_id=name) for name in wanted] + [block(message_id=long)]
        found = rows(*[(b"\x00\x00", each, b"") for each in blocks], columns=columns)
        assert [each["message_id"] for each in found] == [*wanted, long]
    assert len(columns._known) <= PROPERTIES_REMEMBERED_MAX
    assert all(len(each) <= PROPERTIES_REMEMBERED_BYTES for each in columns._known)
