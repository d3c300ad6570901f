"""Cold methods: round trips, and whatever is wrong becomes an AmqpError that names it."""

from __future__ import annotations

import datetime
import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame

from headrace_broker.codecs import method
from headrace_broker.model.reply_code import (
    COMMAND_INVALID,
    FRAME_ERROR,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    SYNTAX_ERROR,
    UNEXPECTED_FRAME,
    AmqpError,
)

RECOVER_ASYNC = 0x003C0064  # pamqp warns when one is constructed
STRANGE_NAME = "schöne Queue\n" + "ü" * 100  # of 215 bytes, with characters that pamqp refuses

values = st.recursive(
    st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=9) | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)
tables = st.dictionaries(st.text(max_size=20), values, max_size=4)


def payload(command: Any) -> bytes:
    return method.encode_method(1, command)[7:-1]


def refusal(data: bytes) -> AmqpError:
    with pytest.raises(AmqpError) as found:
        method.decode_method(data)
    return found.value


@given(queue=st.text(max_size=60), arguments=tables, bits=st.tuples(*[st.booleans()] * 5))
def test_queue_declare_comes_back_whatever_its_name(
    queue: str, arguments: dict[str, Any], bits: tuple[bool, bool, bool, bool, bool]
) -> None:
    command = commands.Queue.Declare(0, "", *bits, arguments)
    command.queue = queue
    found = method.decode_method(payload(command))
    assert isinstance(found, commands.Queue.Declare)
    assert dict(found) == dict(command)


@pytest.mark.parametrize("index", sorted(set(commands.INDEX_MAPPING) - {RECOVER_ASYNC}))
def test_every_method_encodes_as_pamqp_does(index: int) -> None:
    command: Any = commands.INDEX_MAPPING[index]()
    samples = {"shortstr": "text", "longstr": "longer text", "bit": True, "table": {"a": 1}}
    for argument in command.attributes():
        if command[argument] is None:
            setattr(command, argument, samples.get(command.amqp_type(argument), 7))
    assert method.encode_method(300, command) == frame.marshal(command, 300)


def test_many_bits_fill_bytes_from_the_lowest() -> None:
    command = commands.Exchange.Declare(0, "e", "topic", False, True, False, True, True)
    assert payload(command)[4:] == b"\x00\x00\x01e\x05topic\x1a\x00\x00\x00\x00"


def test_declare_ok_holds_any_queue_name() -> None:
    data = method.encode_method(1, method.queue_declare_ok(STRANGE_NAME, 5, 2))
    _, channel, found = frame.unmarshal(data)
    assert isinstance(found, commands.Queue.DeclareOk)
    assert (channel, found.queue) == (1, STRANGE_NAME)
    assert (found.message_count, found.consumer_count) == (5, 2)
    with pytest.raises(TypeError, match="255"):
        method.encode_method(1, method.queue_declare_ok("ü" * 128, 0, 0))


def test_reserved_arguments_are_empty() -> None:
    opened = method.encode_method(1, method.channel_open_ok())
    assert opened == b"\x01\x00\x01\x00\x00\x00\x08\x00\x14\x00\x0b\x00\x00\x00\x00\xce"
    ready = method.encode_method(0, commands.Connection.OpenOk())
    assert ready == b"\x01\x00\x00\x00\x00\x00\x05\x00\x0a\x00\x29\x00\xce"
    empty = method.encode_method(1, commands.Basic.GetEmpty())
    assert empty == b"\x01\x00\x01\x00\x00\x00\x05\x00\x3c\x00\x48\x00\xce"


def test_start_carries_server_properties() -> None:
    properties: dict[str, Any] = {
        "product": "Headrace",
        "capabilities": {"publisher_confirms": True, "basic.nack": False},
        "number": 1 << 40,
        "list": [1, "two", None],
    }
    command = commands.Connection.Start(0, 9, properties, "PLAIN AMQPLAIN", "en_US")
    _, _, found = frame.unmarshal(method.encode_method(0, command))
    assert isinstance(found, commands.Connection.Start)
    assert found.server_properties == properties


def test_the_deprecated_recover_async_is_decoded_without_a_warning() -> None:
    found = method.decode_method(struct.pack(">IB", RECOVER_ASYNC, 1))
    assert isinstance(found, commands.Basic.RecoverAsync)
    assert found.requeue


def test_a_response_that_is_no_text_keeps_its_bytes() -> None:
    for response in (b"\x00guest\x00gu\xc3\xa9st", b"\x05LOGINS\x00\x00\x00\x81\xff"):
        arguments = b"\x00\x00\x00\x00\x05PLAIN" + struct.pack(">I", len(response)) + response
        found = method.decode_method(b"\x00\x0a\x00\x0b" + arguments + b"\x05en_US")
        assert isinstance(found, commands.Connection.StartOk)
        assert method.long_string_bytes(found.response) == response


def test_amqplain_is_a_table_without_length() -> None:
    response = b"\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x01p"
    assert method.decode_amqplain(response) == {"LOGIN": "guest", "PASSWORD": "p"}
    assert method.decode_amqplain(b"") == {}
    for wrong in (response[:-1], b"\x05LOG", b"\x01\xffV"):
        with pytest.raises(AmqpError, match="AMQPLAIN response"):
            method.decode_amqplain(wrong)


@pytest.mark.parametrize(
    ("index", "name"),
    [
        (0x0032000B, "queue.declare-ok"),
        (0x003C0064, "basic.recover-async"),
        (0x000A0046, "connection.update-secret"),
        (0x003C0001, "method 1 of class 60"),
    ],
)
def test_names_are_those_of_the_specification(index: int, name: str) -> None:
    assert method.method_name(index) == name


DECLARE = b"\x00\x32\x00\x0a\x00\x00\x01q\x02"
NESTED = b"\x01nF\x00\x00\x00\x00"
for _ in range(16):
    NESTED = b"\x01nF" + struct.pack(">I", len(NESTED)) + NESTED


def with_table(fields: bytes) -> bytes:
    return DECLARE + struct.pack(">I", len(fields)) + fields


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (b"\x00\x32\x00", FRAME_ERROR, "without class and method id"),
        (b"\x00\x32\x00\x63", NOT_IMPLEMENTED, "method 99 of class 50"),
        (b"\x03\xe7\x00\x0a", NOT_IMPLEMENTED, "method 10 of class 999"),
        (b"\x00\x3c\x00\x3c", COMMAND_INVALID, "basic.deliver comes from servers"),
        (b"\x00\x32\x00\x0b", COMMAND_INVALID, "queue.declare-ok comes from servers"),
        (b"\x00\x0a\x00\x0a", COMMAND_INVALID, "connection.start comes from servers"),
        (DECLARE[:5], SYNTAX_ERROR, "queue.declare: ticket: runs past"),
        (DECLARE[:6], SYNTAX_ERROR, "queue.declare: queue: runs past"),
        (DECLARE[:7], SYNTAX_ERROR, "queue.declare: queue: runs past"),
        (DECLARE[:8], SYNTAX_ERROR, "queue.declare: passive: runs past"),
        (DECLARE, SYNTAX_ERROR, "queue.declare: arguments: a table or array runs past"),
        (with_table(b"") + b"x", SYNTAX_ERROR, "queue.declare: 1 bytes follow"),
        (with_table(b"\x01aQ"), SYNTAX_ERROR, "arguments: field 'a': unknown field type 0x51"),
        (with_table(b"\x01aT" + b"\xff" * 8), SYNTAX_ERROR, "queue.declare: "),
        (with_table(b"\x01\xffV"), SYNTAX_ERROR, "queue.declare: "),
        (with_table(NESTED), SYNTAX_ERROR, "nest deeper than 16"),
        (with_table(b"\x00V" * 1025), SYNTAX_ERROR, "more than 1024 fields"),
        (b"\x00\x32\x00\x0a\x00\x00\x01\xff\x02\0\0\0\0", SYNTAX_ERROR, "queue: is not UTF-8"),
        (b"\x00\x0a\x00\x15\x00\x00\x00\x02x", SYNTAX_ERROR, "connection.secure-ok: response"),
    ],
)
def test_what_is_wrong_is_named(data: bytes, code: int, text: str) -> None:
    error = refusal(data)
    assert error.code == code
    assert text in error.text


@given(
    index=st.sampled_from(sorted(commands.INDEX_MAPPING)) | st.integers(0, (1 << 32) - 1),
    arguments=st.binary(max_size=80),
)
def test_random_arguments_give_a_command_or_an_amqp_error(index: int, arguments: bytes) -> None:
    try:
        found = method.decode_method(struct.pack(">I", index) + arguments)
    except AmqpError:
        return
    assert found.index == index


@given(arguments=tables, place=st.integers(0, 999), data=st.binary(min_size=1, max_size=2))
def test_mutated_arguments_give_a_command_or_an_amqp_error(
    arguments: dict[str, Any], place: int, data: bytes
) -> None:
    whole = payload(commands.Queue.Bind(0, "q", "e", "k", False, arguments))
    at = 4 + place % (len(whole) - 3)
    try:
        found = method.decode_method(whole[:at] + data + whole[at + len(data) :])
    except AmqpError:
        return
    assert isinstance(found, commands.Queue.Bind)


def test_close_takes_the_connection_on_channel_0_and_else_the_channel() -> None:
    _, channel, found = frame.unmarshal(method.encode_close(0, UNEXPECTED_FRAME, "no", 60, 40))
    assert (channel, type(found)) == (0, commands.Connection.Close)
    assert isinstance(found, commands.Connection.Close)
    assert (found.reply_code, found.reply_text) == (505, "UNEXPECTED_FRAME - no")
    assert (found.class_id, found.method_id) == (60, 40)
    _, channel, found = frame.unmarshal(method.encode_close(6, NOT_FOUND, "no queue 'q'"))
    assert isinstance(found, commands.Channel.Close)
    assert (channel, found.reply_text) == (6, "NOT_FOUND - no queue 'q'")


@given(text=st.text(alphabet=st.characters(), max_size=400))
def test_long_reply_texts_are_cut_between_characters(text: str) -> None:
    cut = method.cut_short_string(text)
    whole = text.encode("utf-8", "replace").decode()
    assert whole.startswith(cut)
    byte_count = len(cut.encode())
    assert byte_count <= 255
    assert cut == whole or byte_count > 251


def test_properties_and_headers_are_decoded() -> None:
    table = b"\x01aS\x00\x00\x00\x01b\x01nI\xff\xff\xff\xff"
    when = struct.pack(">Q", 86400)
    block = b"\xb0\x40\x04text" + struct.pack(">I", len(table)) + table + b"\x02" + when
    found = method.decode_properties(block)
    assert (found.content_type, found.delivery_mode) == ("text", 2)
    assert found.timestamp == datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)
    assert found.headers == method.decode_headers(block) == {"a": "b", "n": -1}
    assert method.decode_headers(b"\x00\x00") == {}
    both = b"\xe0\x00\x01t\x02ee\x00\x00\x00\x03\x01aV"
    assert method.decode_headers(both) == {"a": None}


@given(block=st.binary(max_size=60))
def test_random_properties_give_values_or_an_amqp_error(block: bytes) -> None:
    for decode in (method.decode_properties, method.decode_headers):
        with suppress(AmqpError):
            decode(block)


def test_headers_are_read_though_other_properties_are_beyond_python() -> None:
    block = b"\x20\x40\x00\x00\x00\x03\x01aV" + b"\xff" * 8
    assert method.decode_headers(block) == {"a": None}
    with pytest.raises(AmqpError, match="properties: "):
        method.decode_properties(block)
