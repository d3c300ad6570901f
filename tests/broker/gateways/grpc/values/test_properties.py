"""Properties and field tables: what goes from one form to the other and back is the same."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from headrace_broker.codecs.field import properties_problem
from headrace_broker.gateways.grpc.values.properties import (
    PropertyMemory,
    decode_properties,
    encode_properties,
)
from headrace_broker.gateways.grpc.values.values import ValueProblemError
from headrace_broker.model.limits import PROPERTIES_REMEMBERED_MAX, TABLE_DEPTH_MAX
from headrace_protos.broker.v1.message_pb2 import Properties
from headrace_protos.broker.v1.value_pb2 import Array, Decimal, Table, Value


def whole(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high)


names = st.text(max_size=60)
leaves = st.one_of(
    st.builds(Value, boolean=st.booleans()),
    st.builds(Value, int8=whole(8, True)),
    st.builds(Value, uint8=whole(8, False)),
    st.builds(Value, int16=whole(16, True)),
    st.builds(Value, uint16=whole(16, False)),
    st.builds(Value, int32=whole(32, True)),
    st.builds(Value, uint32=whole(32, False)),
    st.builds(Value, int64=whole(64, True)),
    st.builds(Value, long_int=whole(64, True)),
    st.builds(Value, timestamp=whole(63, False)),
    st.builds(Value, float=st.floats(width=32, allow_nan=False)),
    st.builds(Value, double=st.floats(allow_nan=False)),
    st.builds(Value, string=st.text(max_size=60)),
    st.builds(Value, bytes=st.binary(max_size=60)),
    st.builds(Value, octets=st.binary(max_size=60).map(lambda data: data + b"\xff")),
    st.builds(Value, decimal=st.builds(Decimal, scale=whole(8, False), value=whole(32, True))),
    st.just(Value(none=0)),  # type: ignore[arg-type]
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Value, array=st.builds(Array, values=st.lists(inner, max_size=4))),
        st.builds(Value, table=st.builds(Table, fields=st.dictionaries(names, inner, max_size=4))),
    ),
    max_leaves=12,
)
short = st.none() | st.text(max_size=60)
byte = st.none() | whole(8, False)
properties = st.builds(
    Properties,
    content_type=short,
    content_encoding=short,
    headers=st.none() | st.builds(Table, fields=st.dictionaries(names, values, max_size=6)),
    delivery_mode=byte,
    priority=byte,
    correlation_id=short,
    reply_to=short,
    expiration=short,
    message_id=short,
    timestamp=st.none() | whole(63, False),
    type=short,
    user_id=short,
    app_id=short,
    cluster_id=short,
)


@settings(max_examples=40, deadline=None)
@given(properties)
def test_what_is_written_is_a_valid_block_and_reads_the_same(given: Properties) -> None:
    block = encode_properties(given)
    assert properties_problem(block, 0, len(block)) == ""
    assert decode_properties(block) == given


@settings(max_examples=40, deadline=None)
@given(properties)
def test_an_amqp_client_reads_what_was_written(given: Properties) -> None:
    read = commands.Basic.Properties()
    block = encode_properties(given)
    if not any(each in block for each in (b"V", b"\xff")):  # where pamqp is strict
        read.unmarshal(struct.unpack(">H", block[:2])[0], block[2:])
        for name in ("content_type", "message_id", "app_id", "reply_to", "priority"):
            expected = getattr(given, name) if given.HasField(name) else None
            assert getattr(read, name) == expected or expected == ""


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=2, max_size=80))
def test_any_block_that_amqp_takes_survives(block: bytes) -> None:
    if properties_problem(block, 0, len(block)) == "":
        told = decode_properties(block)
        written = encode_properties(told)
        assert decode_properties(written) == told or b"\x7f" in block or b"\xff" in block
        if told.HasField("encoded"):
            assert written == block


@pytest.mark.parametrize(
    "table",
    [
        b"\x02\xc3\x28t\x01",  # a name that is not UTF-8
        b"\x01at\x01\x01at\x00",  # a name twice
    ],
)
def test_what_has_no_form_stands_in_encoded_and_may_be_sent_so(table: bytes) -> None:
    block = b"\x20\x00" + struct.pack(">I", len(table)) + table
    assert properties_problem(block, 0, len(block)) == ""
    told = decode_properties(block)
    assert told == Properties(encoded=block)
    assert encode_properties(told) == block


def test_a_text_property_that_is_not_utf_8_stands_in_encoded() -> None:
    assert decode_properties(b"\x80\x00\x02\xc3\x28") == Properties(encoded=b"\x80\x00\x02\xc3\x28")


def test_present_and_empty_is_not_absent() -> None:
    given = Properties(content_type="", priority=0, timestamp=0, headers=Table())
    read = decode_properties(encode_properties(given))
    assert read == given
    assert read.HasField("priority")
    assert read.HasField("headers")
    assert not read.HasField("delivery_mode")
    assert encode_properties(Properties()) == b"\0\0"


def nested(depth: int) -> Table:
    table = Table()
    for _ in range(depth - 1):
        table = Table(fields={"t": Value(table=table)})
    return table


@pytest.mark.parametrize(
    ("given", "place", "rule"),
    [
        (Properties(priority=256), ".priority", "must be 0 to 255"),
        (Properties(delivery_mode=1 << 31), ".delivery_mode", "must be 0 to 255"),
        (Properties(type="x" * 256), ".type", "must have at most 255 bytes"),
        (Properties(type="ü" * 128), ".type", "must have at most 255 bytes"),
        (Properties(timestamp=1 << 63), ".timestamp", f"must be 0 to {(1 << 63) - 1}"),
        (
            Properties(headers=Table(fields={"a": Value(int8=128)})),
            '.headers.fields["a"].int8',
            "must be -128 to 127",
        ),
        (
            Properties(
                headers=Table(fields={"a": Value(array=Array(values=[Value(uint16=65536)]))})
            ),
            '.headers.fields["a"].array.values[0].uint16',
            "must be 0 to 65535",
        ),
        (
            Properties(headers=Table(fields={"a": Value(decimal=Decimal(scale=256))})),
            '.headers.fields["a"].decimal.scale',
            "must be 0 to 255",
        ),
        (
            Properties(headers=Table(fields={"n" * 256: Value()})),
            '.headers.fields["nnnnnnnnnnnnnnnnnnnn..."]',
            "a name must have at most 255 bytes",
        ),
        (Properties(headers=nested(TABLE_DEPTH_MAX)), "", ""),
        (Properties(encoded=b"\0"), ".encoded", "must be a property block"),
        (Properties(encoded=b"\0\1"), ".encoded", "property flags 0x0001 have bits"),
        (Properties(encoded=b"\x80\0\5ab"), ".encoded", "shorter than its flags say"),
        (Properties(encoded=b"\0\0", type="x"), ".encoded", "must stand alone"),
        (
            Properties(headers=Table(fields={"a": Value(bytes=bytes(200_000))})),
            "",
            "must have at most 131052 bytes in AMQP's form",
        ),
    ],
)
def test_what_amqp_cannot_carry_is_refused_by_name(
    given: Properties, place: str, rule: str
) -> None:
    if not rule:
        encode_properties(given)
        return
    with pytest.raises(ValueProblemError) as problem:
        encode_properties(given)
    assert problem.value.place == place
    assert rule in problem.value.rule


def test_tables_that_nest_too_deeply_are_refused() -> None:
    with pytest.raises(ValueProblemError, match="must nest at most"):
        encode_properties(Properties(headers=nested(TABLE_DEPTH_MAX + 1)))


def test_a_number_that_is_none_keeps_its_type() -> None:
    given = Properties(headers=Table(fields={"f": Value(float=math.inf), "d": Value(double=0.5)}))
    read = decode_properties(encode_properties(given))
    assert read.headers.fields["f"].WhichOneof("kind") == "float"
    assert read.headers.fields["d"].double == 0.5


def test_blocks_are_remembered_up_to_a_bound() -> None:
    memory = PropertyMemory()
    block = encode_properties(Properties(content_type="text/plain"))
    assert memory.decode(block) is memory.decode(block)
    for number in range(3 * PROPERTIES_REMEMBERED_MAX):
        memory.decode(encode_properties(Properties(message_id=str(number))))
        assert len(memory._known) <= PROPERTIES_REMEMBERED_MAX
    large = encode_properties(Properties(message_id="x" * 200))
    assert memory.decode(large) is not memory.decode(large)
