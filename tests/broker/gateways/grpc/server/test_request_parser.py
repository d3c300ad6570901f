"""No objects are made of requests that would be too many."""

from __future__ import annotations

import grpc
import pytest

from headrace_broker.gateways.grpc.server.errors import CallError
from headrace_broker.gateways.grpc.server.request_parser import BatchParser, RequestParser
from headrace_broker.model.limits import (
    GRPC_BATCH_REST_BYTES_MAX,
    GRPC_UNSEEN_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    STREAM_BATCH_MESSAGES_MAX,
)
from headrace_protos.broker.v1.message_pb2 import Message
from headrace_protos.broker.v1.messaging_pb2 import PublishBatch, PublishRequest


class Parser:
    """Records its inputs."""

    def __init__(self) -> None:
        self.byte_counts: list[int] = []

    def __call__(self, data: bytes) -> PublishRequest:
        self.byte_counts.append(len(data))
        return PublishRequest.FromString(data)


def nested(*numbers: int, content: bytes) -> bytes:
    """Content within the fields of these numbers, the outermost first."""
    for number in reversed(numbers):
        size, rest = b"", len(content)
        while rest > 0x7F:
            size += bytes([rest & 0x7F | 0x80])
            rest >>= 7
        content = bytes([number << 3 | 2]) + size + bytes([rest]) + content
    return content


def test_a_request_is_held_against_its_bound_before_it_is_parsed():
    parser = Parser()
    parse = RequestParser(parser, 100)
    with pytest.raises(CallError) as refused:
        parse(bytes(101))
    assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.value.text == "the request has 101 bytes, at most 100"
    assert parser.byte_counts == []
    parse(PublishRequest().SerializeToString())
    assert parser.byte_counts == [0]


@pytest.mark.parametrize(
    ("byte_count", "rule"),
    [
        (nested(2, content=b"\x12\x00" * (8 << 20)), "fields in its messages"),
        (nested(2, content=b"\x12\x02\x1a\x00" * (4 << 20)), "fields in its messages"),
        (nested(2, 2, 3, 3, 1, 2, 10, content=b"\x0a\x00" * (8 << 20)), "bytes beside bodies"),
        (nested(1, content=b"\x0a\x00" * (8 << 20)), "bytes beside bodies"),
        (b"\x0a\x00\x12\x00" * (4 << 20), "fields in its messages"),
    ],
)
def test_of_a_batch_that_would_be_too_many_objects_none_is_made(byte_count, rule):
    parser = Parser()
    with pytest.raises(CallError, match=rule) as refused:
        BatchParser(parser, (2, 2), 4)(byte_count)
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.fields[0][0] == "batch"
    assert parser.byte_counts == []


def test_the_largest_batches_that_clients_may_send_are_parsed():
    parser = Parser()
    parse = BatchParser(parser, (2, 2), 4)
    one = PublishBatch(first_sequence=1, messages=[Message(body=bytes(MESSAGE_BYTES_MAX))])
    message = Message(exchange="e", routing_key="k", body=b"b" * 200)
    message.properties.message_id = "m" * 20
    many = PublishBatch(first_sequence=1, messages=[message] * STREAM_BATCH_MESSAGES_MAX)
    assert GRPC_UNSEEN_BYTES_MAX < many.ByteSize() <= GRPC_BATCH_REST_BYTES_MAX
    for batch in (one, many):
        request = PublishRequest(batch=batch)
        assert parse(request.SerializeToString()) == request
    assert len(parser.byte_counts) == 2


@pytest.mark.parametrize("data", [b"\x12\x05", b"\x12\x05" * GRPC_UNSEEN_BYTES_MAX])
def test_what_is_no_request_is_refused(data):
    with pytest.raises(CallError) as refused:
        BatchParser(PublishRequest.FromString, (2, 2), 4)(data)
    assert refused.value.reason == "MALFORMED_REQUEST"
