"""Single properties and headers agree with what pamqp decodes; nonsense reads as not there."""

from __future__ import annotations

import datetime
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, encode

from headrace_broker.core import property_reader
from headrace_broker.core.property_reader import (
    APP_ID,
    CLUSTER_ID,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    EXPIRATION,
    EXPIRATION_MS_MAX,
    INVALID,
    MESSAGE_ID,
    NO_INTEGER,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    UNSET,
    USER_ID,
    PropertyReader,
    field_stop,
    find_field,
    header_int,
    header_key,
)

TEXTS = {
    CONTENT_TYPE: "content_type",
    CONTENT_ENCODING: "content_encoding",
    CORRELATION_ID: "correlation_id",
    REPLY_TO: "reply_to",
    EXPIRATION: "expiration",
    MESSAGE_ID: "message_id",
    TYPE: "message_type",
    USER_ID: "user_id",
    APP_ID: "app_id",
}

texts = st.none() | st.text(min_size=1, max_size=12)  # pamqp leaves empty ones out
values = st.recursive(
    st.booleans()
    | st.integers(-(1 << 63) + 1, (1 << 63) - 1)
    | st.text(max_size=9)
    | st.floats(allow_nan=False, width=32)
    | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)
headers = st.dictionaries(st.text(max_size=12), values, max_size=5)
properties = st.builds(
    commands.Basic.Properties,
    content_type=texts,
    content_encoding=texts,
    headers=st.none() | headers,
    delivery_mode=st.sampled_from([None, 1, 2]),
    priority=st.none() | st.integers(0, 31),
    correlation_id=texts,
    reply_to=texts,
    expiration=texts | st.integers(0, 1 << 40).map(str),
    message_id=texts,
    timestamp=st.none()
    | st.integers(0, 1 << 31).map(lambda s: datetime.datetime.fromtimestamp(s, datetime.UTC)),
    message_type=texts,
    user_id=texts,
    app_id=texts,
)


def framed(block: bytes) -> bytes:
    """A property block as it stands in a message, with something before and after."""
    return b"??" + struct.pack(">I", len(block)) + block + b"body"


def scanned(block: bytes) -> tuple[PropertyReader, bytes, bool]:
    reader = PropertyReader()
    blob = framed(block)
    return reader, blob, reader.scan(blob, 2)


def headers_block(fields: bytes) -> bytes:
    return b"\x20\x00" + struct.pack(">I", len(fields)) + fields


@given(wanted=properties)
def test_what_pamqp_encodes_is_read_back(wanted: commands.Basic.Properties) -> None:
    reader, blob, well_formed = scanned(wanted.marshal())
    assert well_formed
    assert reader.priority == (UNSET if wanted.priority is None else wanted.priority)
    assert reader.delivery_mode == (UNSET if wanted.delivery_mode is None else wanted.delivery_mode)
    for mask, name in TEXTS.items():
        text = getattr(wanted, name)
        assert reader.text(blob, mask) == (None if text is None else text.encode())
    stamp = UNSET if wanted.timestamp is None else int(wanted.timestamp.timestamp())
    assert reader.timestamp(blob) == stamp
    table = wanted.headers or {}
    for name, value in table.items():
        last = reader.headers_stop
        pos = find_field(blob, reader.headers_start, last, name.encode())
        assert blob[pos : field_stop(blob, pos, last)] == encode.encode_table_value(value)
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if not isinstance(value, str):
            found = header_int(blob, reader.headers_start, reader.headers_stop, name.encode())
            assert found == (value if is_integer else NO_INTEGER)
    assert reader.header(blob, b"there is no such header") == -1


@given(block=st.binary(max_size=60), start=st.integers(-9, 70), name=st.binary(max_size=3))
def test_any_bytes_are_read_without_an_error(block: bytes, start: int, name: bytes) -> None:
    reader = PropertyReader()
    reader.scan(block, start)
    assert reader.stop <= len(block)
    for bit in range(2, 16):
        assert reader.value_start(block, 1 << bit) <= len(block)
    for mask in (*TEXTS, CLUSTER_ID):
        reader.text(block, mask)
    reader.timestamp(block)
    first, last = reader.headers_start, reader.headers_stop
    find_field(block, first, last, name)
    header_key(block, first, last, name)
    header_int(block, first, last, name)


@given(wanted=properties, cut=st.integers(1, 400))
def test_a_block_cut_short_says_nothing(wanted: commands.Basic.Properties, cut: int) -> None:
    block = wanted.marshal()
    reader, blob, well_formed = scanned(block[: max(0, len(block) - cut)])
    assert not well_formed or len(block) == 2
    if not well_formed:
        assert (reader.flags, reader.priority, reader.expiration_ms) == (0, UNSET, UNSET)
        assert reader.headers_start == reader.headers_stop
        assert reader.text(blob, MESSAGE_ID) is None


def test_a_reader_forgets_the_block_before() -> None:
    reader = PropertyReader()
    assert reader.scan(framed(b"\x09\x00\x07\x0210"), 2)
    assert (reader.priority, reader.expiration_ms) == (7, 10)
    assert reader.scan(framed(b"\x00\x00"), 2)
    assert (reader.priority, reader.expiration_ms) == (UNSET, UNSET)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"0", 0),
        (b"60000", 60000),
        (b"+5", 5),
        (b"007", 7),
        (b"9" * 200, EXPIRATION_MS_MAX),
        (b"", INVALID),
        (b"+", INVALID),
        (b"-1", INVALID),
        (b"1.5", INVALID),
        (b" 1", INVALID),
        (b"10s", INVALID),
        ("٣".encode(), INVALID),
    ],
)
def test_expiration_is_a_number_in_decimal_digits(text: bytes, expected: int) -> None:
    reader, _, well_formed = scanned(b"\x01\x00" + bytes((len(text),)) + text)
    assert well_formed
    assert reader.expiration_ms == expected


@pytest.mark.parametrize(
    ("field", "number"),
    [
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xfd", -3),
        (b"i\xff\xff\xff\xfd", 4294967293),
        (b"l" + b"\xff" * 8, -1),
        (b"L" + b"\xff" * 8, -1),
        (b"S\0\0\0\x045000", 5000),
        (b"S\0\0\0\x03-12", -12),
        (b"S\0\0\0\x0412ab", NO_INTEGER),
        (b"S\0\0\0\0", NO_INTEGER),
        (b"S\0\0\0\x01-", NO_INTEGER),
        (b"S\0\0\0\x13" + b"9" * 19, NO_INTEGER),
        (b"x\0\0\0\x0212", NO_INTEGER),
        (b"t\x01", NO_INTEGER),
        (b"V", NO_INTEGER),
        (b"d" + bytes(8), NO_INTEGER),
        (b"f" + bytes(4), NO_INTEGER),
        (b"D" + bytes(5), NO_INTEGER),
        (b"T" + bytes(8), NO_INTEGER),
        (b"A\0\0\0\x03Vt\x01", NO_INTEGER),
        (b"?\x01", NO_INTEGER),
    ],
)
def test_an_integer_is_read_from_every_width(field: bytes, number: int) -> None:
    reader, blob, well_formed = scanned(headers_block(b"\x04lastt\x01\x01k" + field))
    assert well_formed
    assert header_int(blob, reader.headers_start, reader.headers_stop, b"k") == number
    assert header_int(blob, reader.headers_start, reader.headers_stop, b"kk") == NO_INTEGER


def key_of(field: bytes) -> bytes | None:
    reader, blob, well_formed = scanned(headers_block(b"\x01k" + field))
    assert well_formed
    return header_key(blob, reader.headers_start, reader.headers_stop, b"k")


def test_a_key_is_the_same_in_every_width_of_its_value() -> None:
    sevens = [b"b\x07", b"B\x07", b"s\0\x07", b"u\0\x07", b"I\0\0\0\x07", b"i\0\0\0\x07"]
    sevens += [b"l" + bytes(7) + b"\x07", b"L" + bytes(7) + b"\x07"]
    assert len({key_of(field) for field in sevens}) == 1
    assert key_of(b"S\0\0\0\x01a") == key_of(b"x\0\0\0\x01a")
    assert key_of(b"V") is None


def test_different_values_are_different_keys() -> None:
    fields = [b"b\x07", b"b\x08", b"S\0\0\0\x017", b"S\0\0\0\0", b"t\x01", b"t\0", b"f" + bytes(4)]
    fields += [b"A\0\0\0\x02b\x07", b"F\0\0\0\x04\x01ab\x07", b"T" + bytes(8), b"d" + bytes(8)]
    assert len({key_of(field) for field in fields}) == len(fields)


def test_the_first_of_two_headers_of_one_name_counts() -> None:
    reader, blob, _ = scanned(headers_block(b"\x01kb\x01\x01kb\x02"))
    assert header_int(blob, reader.headers_start, reader.headers_stop, b"k") == 1


def test_a_field_behind_a_torn_one_is_not_found() -> None:
    table = b"\x01aS\0\0\0\x09abc"
    assert find_field(table, 0, len(table), b"a") == -1
    table = b"\x01aS\0\0\0\x01x\x05k"
    assert find_field(table, 0, len(table), b"a") == 2
    assert find_field(table, 0, len(table), b"k") == -1
    assert field_stop(table, 2, len(table)) == 8


def test_undefined_flags_are_refused() -> None:
    assert not scanned(b"\x00\x01")[2]
    assert not scanned(b"\x00\x02")[2]
    assert not scanned(b"")[2]


def test_masks_are_those_of_the_specification() -> None:
    assert PRIORITY == 1 << 11
    assert TIMESTAMP == 1 << 6
    assert property_reader.HEADERS == 1 << 13
