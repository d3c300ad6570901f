"""A batch is looked through before objects are made of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.gateways.grpc.server.batch_outline import (
    BatchBoundError,
    BatchOutline,
    BrokenBatchError,
)
from headrace_protos.broker.v1.message_pb2 import Message, Properties
from headrace_protos.broker.v1.messaging_pb2 import PublishBatch, PublishRequest


def walked(data: bytes, fields_max: int = 1000, rest_bytes_max: int = 1000) -> BatchOutline:
    outline = BatchOutline([2, 2], 4, fields_max, rest_bytes_max)
    outline.walk(data)
    return outline


def batch(*messages: Message) -> bytes:
    return PublishRequest(
        batch=PublishBatch(first_sequence=7, messages=messages)
    ).SerializeToString()


def test_bodies_are_free_and_everything_else_counts():
    properties = Properties(message_id="x" * 50)
    message = Message(routing_key="k", properties=properties, body=b"b" * 100_000)
    outline = walked(batch(message, message))
    assert outline.fields == 2 + 2 * (1 + 3)
    assert outline.rest_bytes == 2 * (1 + properties.ByteSize())


def test_bytes_beside_bodies_are_bounded():
    byte_count = batch(Message(properties=Properties(message_id="x" * 100)))
    walked(byte_count, rest_bytes_max=102)
    with pytest.raises(BatchBoundError, match="at most 101 bytes beside bodies"):
        walked(byte_count, rest_bytes_max=101)


def test_fields_are_bounded_whatever_they_are():
    for field in (b"\x12\x00", b"\x08\x00", b"\x53\x54", b"\x1d\0\0\0\0", b"\x19\0\0\0\0\0\0\0\0"):
        content = field * 12
        data = b"\x12" + bytes([len(content)]) + content
        with pytest.raises(BatchBoundError, match="at most 11 fields"):
            walked(data, fields_max=11)


@pytest.mark.parametrize(
    "byte_count",
    [
        b"\x12",
        b"\x12\x05\x08",
        b"\x12\x02\x12\x01",
        b"\x12\x80",
        b"\x0f",
        b"\x09\0",
        b"\x12\x04\x12\x02\x22\x01",
        b"\xff" * 11,
        b"\x08" + b"\xff" * 10 + b"\x01",
        b"\x12" + b"\xff" * 9 + b"\x01",
        b"\x92\x80\x80\x80\x90\x01\x00",
    ],
)
def test_what_is_cut_short_or_no_message_is_broken(byte_count):
    with pytest.raises(BrokenBatchError):
        walked(byte_count)


@given(
    st.lists(
        st.builds(
            Message,
            exchange=st.none() | st.text(max_size=5),
            routing_key=st.none() | st.text(max_size=5),
            properties=st.none() | st.builds(Properties, message_id=st.text(max_size=5)),
            body=st.binary(max_size=300),
        ),
        max_size=5,
    )
)
def test_what_a_client_makes_goes_through(messages):
    data = batch(*messages)
    outline = walked(data)
    assert outline.fields <= 2 + 5 * len(messages)
    assert outline.rest_bytes + sum(len(each.body) for each in messages) <= len(data)
