"""Bytes of a broker, as a load generator reads them."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from headrace_broker.codecs.event import Acked, Method, Rejected
from headrace_broker.codecs.frame import BASIC_ACK, BASIC_CONTENT, BASIC_DELIVER, BASIC_NACK
from headrace_broker.codecs.reply_parser import Delivered, ReplyParser

FRAME_MAX = 64


def delivery(tag: int, payload: bytes, piece: int = FRAME_MAX - 8) -> bytes:
    parts: list[Any] = [
        commands.Basic.Deliver("ctag", tag, False, "", "q"),
        header.ContentHeader(0, len(payload), commands.Basic.Properties(delivery_mode=2)),
        *(body.ContentBody(payload[at : at + piece]) for at in range(0, len(payload), piece)),
    ]
    return b"".join(frame.marshal(part, 1) for part in parts)


def begin(tag: int) -> bytes:
    return bytes(frame.marshal(commands.Basic.Deliver("ctag", tag, False, "", "q"), 1))


def header_of(size: int) -> bytes:
    payload = BASIC_CONTENT.to_bytes(4, "big") + size.to_bytes(8, "big", signed=True) + b"\0\0"
    return b"\x02\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce"


STREAM = b"".join(
    [
        frame.marshal(commands.Basic.ConsumeOk("ctag"), 1),
        delivery(1, b"one"),
        frame.marshal(commands.Basic.Ack(7, True), 1),
        b"\x08\x00\x00\x00\x00\x00\x00\xce",
        delivery(2, b""),
        delivery(3, b"x" * 200),
        frame.marshal(commands.Basic.Nack(9, False, False), 1),
    ]
)


def told(events: list[Any]) -> list[Any]:
    found: list[Any] = []
    for event in events:
        if isinstance(event, Delivered):
            found.append((event.delivery_tag, event.body))
        elif isinstance(event, Method):
            found.append(event.index)
        else:
            assert isinstance(event, Acked | Rejected)
            found.append((type(event), event.delivery_tag, event.multiple))
    return found


WHOLE = [
    commands.Basic.ConsumeOk.index,
    (1, b"one"),
    (Acked, 7, True),
    (2, b""),
    (3, b"x" * 200),
    (Rejected, 9, False),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_are_the_same_in_any_split(cuts: list[int]) -> None:
    parser = ReplyParser(FRAME_MAX)
    ends = [0, *sorted(cuts), len(STREAM)]
    events: list[Any] = []
    for start, end in itertools.pairwise(ends):
        events += parser.feed(STREAM[start:end])
    assert told(events) == WHOLE


def test_a_content_header_may_be_longer_than_a_frame() -> None:
    parts: list[Any] = [
        commands.Basic.Deliver("ctag", 1, False, "", "q"),
        header.ContentHeader(0, 3, commands.Basic.Properties(headers={"long": "x" * 999})),
        body.ContentBody(b"one"),
    ]
    data = b"".join(frame.marshal(part, 1) for part in parts)
    assert told(ReplyParser(FRAME_MAX).feed(data)) == [(1, b"one")]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x01\x00\x01\x00\x00\x00\x04\x00\x0a\x00\x0a\x00", "does not end"),
        (b"\x01\x00\x01\x00\x01\x00\x00\x00", "exceeds the maximum"),
        (b"\x02\x00\x01\x01\x00\x00\x00\x00", "exceeds the maximum"),
        (b"\x01\x00\x01\x00\x00\x00\x00\xce", "without ids"),
        (b"\x01\x00\x01\x00\x00\x00\x04\x00\x3c\x00\x3c\xce", "too short"),
        (b"\x01\x00\x01\x00\x00\x00\x04\x00\x3c\x00\x50\xce", "a confirm"),
        (b"\x02\x00\x01\x00\x00\x00\x00\xce", "content header"),
        (b"\x03\x00\x01\x00\x00\x00\x00\xce", "a body"),
        (delivery(1, b"one") + b"\x03\x00\x01\x00\x00\x00\x01x\xce", "a body"),
        (delivery(1, b"one")[:-11] + delivery(2, b"two"), "amid the content"),
        (delivery(1, b"one")[:-11] + header_of(3), "content header"),
        (begin(1) + header_of(-1), "more bytes"),
        (begin(1) + header_of(1 << 62), "more bytes"),
        (delivery(1, b"one")[:-11] + b"\x03\x00\x01\x00\x00\x00\x04more\xce", "a body"),
    ],
)
def test_what_no_broker_sends_is_an_error(data: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ReplyParser(FRAME_MAX).feed(data)


INDICES = [0x000A000A, 0x0014000B, BASIC_ACK, BASIC_NACK, BASIC_DELIVER]
PAYLOADS = st.builds(
    lambda index, rest: index.to_bytes(4, "big") + rest,
    st.sampled_from([*INDICES, BASIC_CONTENT]),
    st.binary(max_size=30) | st.just(bytes(8) + b"\0\0") | st.just(bytes(7) + b"\5\0\0"),
)
FRAMES = st.tuples(st.sampled_from([1, 1, 2, 3, 8]), PAYLOADS | st.binary(max_size=12))


@given(st.lists(FRAMES, max_size=12))
def test_any_frames_are_events_or_an_error(frames: list[tuple[int, bytes]]) -> None:
    parser = ReplyParser(FRAME_MAX)
    with contextlib.suppress(ValueError):
        for kind, payload in frames:
            head = bytes([kind, 0, 1]) + len(payload).to_bytes(4, "big")
            events = parser.feed(head + payload + b"\xce")
            assert sum(isinstance(each, Delivered) for each in events) <= 1
