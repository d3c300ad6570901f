"""Every way to break the protocol has its reply code and a text that names it."""

from __future__ import annotations

import struct

import pytest

from headrace_broker.codecs.event import Violation
from headrace_broker.codecs.frame_parser import FrameParser
from headrace_broker.model.message import Publish

FRAME_MAX = 4096
PUBLISH = (60, 40)
NONE = (0, 0)


def frame(kind: int, channel: int, payload: bytes, end: int = 0xCE) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes((end,))


def method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    return frame(1, channel, struct.pack(">HH", class_id, method_id) + arguments)


def publish(channel: int) -> bytes:
    return method(channel, 60, 40, b"\x00\x00\x00\x03key\x00")


def header(channel: int, size: int, block: bytes = b"\x00\x00", class_id: int = 60) -> bytes:
    return frame(2, channel, struct.pack(">HHQ", class_id, 0, size) + block)


def table(fields: bytes) -> bytes:
    return b"\x20\x00" + struct.pack(">I", len(fields)) + fields


def nested(depth: int) -> bytes:
    fields = b""
    for _ in range(depth):
        fields = b"\x01nF" + struct.pack(">I", len(fields)) + fields
    return fields


PUBLISHED = publish(1)
BEGUN = PUBLISHED + header(1, 5)
TAG = struct.pack(">Q", 1)

# Name -> bytes after the protocol header, reply code, (class, method), part of the text.
CASES: dict[str, tuple[bytes, int, tuple[int, int], str]] = {
    "frame end": (frame(8, 0, b"", end=0xCD), 501, NONE, "0xcd"),
    "frame type 0": (frame(0, 1, b"abcd"), 501, NONE, "frame type 0"),
    "frame type 4": (frame(4, 1, b"abcd"), 501, NONE, "frame type 4"),
    "frame type 255": (frame(255, 1, b"abcd"), 501, NONE, "frame type 255"),
    "oversized": (b"\x01\x00\x01\x00\x00\x10\x01", 501, NONE, "frame of 4105 bytes"),
    "size 2**32-1": (b"\x03\x00\x01\xff\xff\xff\xff", 501, NONE, "frame_max 4096"),
    "heartbeat with bytes": (frame(8, 0, b"x"), 501, NONE, "heartbeat"),
    "heartbeat on channel": (frame(8, 1, b""), 505, NONE, "heartbeat frame on channel 1"),
    "no method id": (frame(1, 1, b"\x00\x3c\x00"), 501, NONE, "3 bytes"),
    "too many contents": (
        b"".join(publish(number) for number in range(1, 2049)),
        504,
        PUBLISH,
        "channel_max 2047",
    ),
    "publish on 0": (publish(0), 504, PUBLISH, "channel 0"),
    "header on 0": (header(0, 5), 504, NONE, "header frame on channel 0"),
    "body on 0": (frame(3, 0, b"x"), 504, NONE, "body frame on channel 0"),
    "queue.declare on 0": (method(0, 50, 10), 504, (50, 10), "class 50"),
    "ack on 0": (method(0, 60, 80, TAG + b"\x00"), 504, (60, 80), "class 60"),
    "connection on 1": (method(1, 10, 50), 503, (10, 50), "class connection"),
    "header alone": (header(1, 5), 505, NONE, "header frame on channel 1 without"),
    "body alone": (frame(3, 1, b"x"), 505, NONE, "body frame on channel 1 without"),
    "header of another channel": (PUBLISHED + header(2, 5), 505, NONE, "channel 2"),
    "empty content of another channel": (PUBLISHED + header(2, 0), 505, NONE, "channel 2"),
    "body of another channel": (BEGUN + frame(3, 2, b"x" * 5), 505, NONE, "channel 2"),
    "oversized header": (PUBLISHED + header(1, 0, bytes(4085)), 501, NONE, "4105 bytes"),
    "oversized body": (
        PUBLISHED + header(1, 4097) + frame(3, 1, bytes(4097)),
        501,
        NONE,
        "4105 bytes",
    ),
    "body before header": (PUBLISHED + frame(3, 1, b"x"), 505, PUBLISH, "header"),
    "second header": (BEGUN + header(1, 5), 505, PUBLISH, "second content header"),
    "method for header": (PUBLISHED * 2, 505, PUBLISH, "amid the content"),
    "method for body": (BEGUN + method(1, 60, 10), 505, PUBLISH, "amid the content"),
    "channel.close for body": (BEGUN + method(1, 20, 40), 505, PUBLISH, "amid"),
    "header class": (PUBLISHED + header(1, 5, class_id=50), 505, PUBLISH, "class 50"),
    "body too long": (BEGUN + frame(3, 1, b"x" * 6), 505, PUBLISH, "6 bytes where 5"),
    "body after body": (BEGUN + frame(3, 1, b"x" * 5) + frame(3, 1, b"y"), 505, NONE, "without"),
    "body after empty": (PUBLISHED + header(1, 0) + frame(3, 1, b""), 505, NONE, "without"),
    "short header": (PUBLISHED + frame(2, 1, bytes(13)), 501, PUBLISH, "13 bytes"),
    "weight": (PUBLISHED + frame(2, 1, b"\x00\x3c\x00\x01" + bytes(10)), 502, PUBLISH, "weight"),
    "publish: no routing key": (method(1, 60, 40, b"\0\0\x01e"), 502, PUBLISH, "fill"),
    "publish: no bits": (method(1, 60, 40, b"\0\0\x01e\x01k"), 502, PUBLISH, "fill"),
    "publish: byte left": (method(1, 60, 40, b"\0\0\0\0\0\0"), 502, PUBLISH, "fill"),
    "publish: empty": (method(1, 60, 40), 502, PUBLISH, "fill"),
    "ack: short": (method(1, 60, 80, TAG), 502, (60, 80), "8 bytes"),
    "nack: long": (method(1, 60, 120, TAG + b"\0\0"), 502, (60, 120), "10 bytes"),
    "reject: empty": (method(1, 60, 90), 502, (60, 90), "0 bytes"),
}
ONE_MESSAGE_FIRST = {"body after body", "body after empty"}

# Name -> property block, part of the text.
PROPERTY_CASES: dict[str, tuple[bytes, str]] = {
    "flag 1": (b"\x00\x02", "0x0002"),
    "second flag word": (b"\x00\x01\x00\x00", "0x0001"),
    "bytes left": (b"\x10\x00\x02x", "1 bytes follow"),
    "no byte": (b"\x10\x00", "shorter"),
    "no short string": (b"\x80\x00", "shorter"),
    "short string": (b"\x80\x00\x05text", "shorter"),
    "timestamp": (b"\x00\x40" + bytes(7), "shorter"),
    "no table": (b"\x20\x00\x00\x00\x00", "headers: a table or array runs past"),
    "table": (b"\x20\x00\x00\x00\x00\x05\x01aI\x00", "headers: a table or array runs past"),
    "table size": (b"\x20\x00\xff\xff\xff\xff", "headers: a table or array runs past"),
    "field name": (table(b"\x05ab"), "field name runs past"),
    "field without type": (table(b"\x02ab"), "field name runs past"),
    "field type": (table(b"\x02abQ"), "field 'ab': unknown field type 0x51"),
    "number": (table(b"\x01aI\x00\x00\x00"), "field 'a': a value runs past"),
    "long string": (table(b"\x01aS\x00\x00\x00\x02b"), "field 'a': a string runs past"),
    "byte array": (table(b"\x01ax\x00\x00\x00"), "field 'a': a string runs past"),
    "array": (table(b"\x01aA\x00\x00\x00\x01"), "field 'a': a table or array runs past"),
    "array item": (table(b"\x01aA\x00\x00\x00\x01t"), "field 'a': a value runs past"),
    "depth": (table(nested(17)), "nest deeper than 16"),
    "fields": (table(b"\x00V" * 1025), "more than 1024 fields"),
}


CASES |= {
    f"properties: {name}": (PUBLISHED + header(1, 0, block), 502, PUBLISH, text)
    for name, (block, text) in PROPERTY_CASES.items()
}


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20], ids=["byte_count", "whole"])
@pytest.mark.parametrize("name", CASES)
def test_a_violation_is_the_last_event(name: str, chunk_bytes: int) -> None:
    data, code, ids, text = CASES[name]
    parser = FrameParser(FRAME_MAX, 1 << 20)
    parser.feed(b"AMQP\x00\x00\x09\x01")
    stream = data + publish(1) + header(1, 0)
    found = [
        event
        for at in range(0, len(stream), chunk_bytes)
        for event in parser.feed(stream[at : at + chunk_bytes])
    ]
    last = found.pop()
    assert isinstance(last, Violation)
    assert (last.code, (last.class_id, last.method_id)) == (code, ids)
    assert text in last.text
    assert [type(event) for event in found] == [Publish] * (name in ONE_MESSAGE_FIRST)
    assert parser.closed
    assert parser.feed(frame(8, 0, b"")) == []
    assert parser.buffered_bytes == 0


def test_the_limits_of_tables_are_just_met() -> None:
    for block in (table(nested(15)), table(b"\x00V" * 1024)):
        parser = FrameParser(FRAME_MAX, 1 << 20)
        (_, event) = parser.feed(b"AMQP\x00\x00\x09\x01" + PUBLISHED + header(1, 0, block))
        assert isinstance(event, Publish)
        assert event.properties == block


def test_a_violation_names_the_channel_of_its_frame() -> None:
    parser = FrameParser(FRAME_MAX, 1 << 20)
    (_, event) = parser.feed(b"AMQP\x00\x00\x09\x01" + header(7, 1))
    assert isinstance(event, Violation)
    assert event.channel == 7
