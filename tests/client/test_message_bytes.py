"""Messages as bytes are those that protobuf writes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_client.message import Properties
from headrace_client.message_bytes import MessageEncoder, element_of, publish_request, varint
from headrace_protos.broker.v1.message_pb2 import Message
from headrace_protos.broker.v1.messaging_pb2 import PublishBatch, PublishRequest

NAMES = st.none() | st.text(max_size=300)
PROPERTIES = st.none() | st.builds(
    Properties,
    content_type=st.none() | st.text(max_size=20),
    headers=st.dictionaries(
        st.text(max_size=5), st.integers(-9, 9), max_size=1
    ),  # else in any order
    priority=st.none() | st.integers(0, 255),
)
BODIES = st.binary(max_size=300) | st.integers(120, 20_000).map(bytes)


@given(st.lists(st.tuples(BODIES, NAMES, NAMES, PROPERTIES), max_size=5), st.integers(1, 1 << 62))
def test_a_request_is_what_protobuf_writes(rows: list[Any], first: int) -> None:
    encoder = MessageEncoder()
    messages = []
    for body, exchange, routing_key, properties in rows:
        message = Message(body=body, exchange=exchange, routing_key=routing_key)
        if properties is not None:
            message.properties.CopyFrom(properties.to_pb())
        messages.append(message)
    elements = [encoder.encode(*row) for row in [*rows, *rows]]
    assert elements == [element_of(message) for message in [*messages, *messages]]
    batch = PublishBatch(first_sequence=first, messages=messages)
    expected = PublishRequest(batch=batch).SerializeToString()
    assert publish_request(first, elements[: len(rows)]) == (expected, batch.ByteSize())


@given(st.integers(0, (1 << 64) - 1))
def test_numbers_are_what_protobuf_writes(number: int) -> None:
    written = PublishBatch(first_sequence=number).SerializeToString()
    assert written[1:] == (varint(number) if number else b"")


def test_headers_that_change_between_two_messages_are_seen() -> None:
    encoder, headers = MessageEncoder(), dict[str, int]()
    changing, plain = Properties(headers=headers), Properties(expiration=timedelta(seconds=1))
    for number in (0, 1, 2):
        if number:
            headers["n"] = number
        for properties in (plain, plain, changing, changing):
            message = Message(body=b"x")
            message.properties.CopyFrom(properties.to_pb())
            assert encoder.encode(b"x", None, None, properties) == element_of(message), number


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("text", None, None, None), "body: must be bytes, not str"),
        ((None, None, None, None), "body: must be bytes, not NoneType"),
        ((bytearray(b"x"), None, None, None), "body: must be bytes, not bytearray"),
        ((b"", 5, None, None), "exchange: must be str | None, not int"),
        ((b"", "", b"k", None), "routing_key: must be str | None, not bytes"),
        ((b"", "", "", {"priority": 1}), "properties: must be Properties, not dict"),
        ((b"", "", "", Properties(message_id=5)), "message_id: 5 cannot be sent: "),  # type: ignore[arg-type]
        ((b"", "", "", Properties(expiration=5)), "expiration: must be timedelta, not int"),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_are_refused_and_leave_nothing_behind(arguments: Any, text: str) -> None:
    encoder = MessageEncoder()
    with pytest.raises(TypeError) as refused:
        encoder.encode(*arguments)
    assert str(refused.value).startswith(text)
    assert encoder.encode(b"x", "e", "k", None) == element_of(
        Message(body=b"x", exchange="e", routing_key="k")
    )


def test_texts_that_are_no_text_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^type: '\\ud800' cannot be sent: "):
        MessageEncoder().encode(b"", None, None, Properties(type="\ud800"))
    with pytest.raises(ValueError, match="surrogate"):
        MessageEncoder().encode(b"", "\ud800", None, None)


def test_headers_that_come_after_the_first_message_are_sent() -> None:
    encoder, properties = MessageEncoder(), Properties(headers={})
    assert encoder.encode(b"x", None, None, properties) == encoder.encode(
        b"x", None, None, Properties()
    )
    properties.headers["n"] = 1  # type: ignore[index]  # it is a dict
    encoded = encoder.encode(b"x", None, None, properties)
    assert encoded == MessageEncoder().encode(b"x", None, None, Properties(headers={"n": 1}))
