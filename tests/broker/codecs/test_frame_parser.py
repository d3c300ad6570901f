"""The frame parser on streams that keep to the protocol, and its bounds on any stream."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.codecs.event import ContentTooLarge, Method, Violation
from headrace_broker.codecs.frame_parser import FrameParser
from headrace_broker.model.limits import LARGE_BYTES
from headrace_broker.model.message import Publish

FRAME_MAX = 200
BODY_MAX = 64
CHANNEL_MAX = 300

cut_lists = st.lists(st.integers(0, 1 << 16), max_size=12)


def new_parser(frame_max: int = FRAME_MAX, body_max: int = BODY_MAX) -> FrameParser:
    return FrameParser(frame_max, body_max, CHANNEL_MAX)


def greeted(wire: Any, frame_max: int = 1 << 17, body_max: int = 16 << 20) -> FrameParser:
    parser = FrameParser(frame_max, body_max)
    parser.feed(wire.greeting)
    return parser


@given(data=st.data(), cuts=cut_lists)
def test_any_split_of_a_valid_stream_gives_its_events(
    wire: Any, data: Any, cuts: list[int]
) -> None:
    stream, shapes = data.draw(wire.streams())
    parser = new_parser()
    assert wire.shapes(parser, wire.split(stream, cuts)) == shapes
    assert parser.buffered_bytes == 0
    assert parser.missing_bytes == 0
    assert not parser.closed


@given(data=st.data())
def test_byte_by_byte_gives_the_same_events(wire: Any, data: Any) -> None:
    stream, shapes = data.draw(wire.streams())
    byte_counts = [stream[at : at + 1] for at in range(len(stream))]
    assert wire.shapes(new_parser(), byte_counts) == shapes


@given(
    data=st.data(),
    cuts=cut_lists,
    edits=st.lists(
        st.tuples(st.integers(0, 1 << 16), st.binary(max_size=3)), min_size=1, max_size=4
    ),
)
def test_a_mutated_stream_gives_the_same_events_in_any_split(
    wire: Any, data: Any, cuts: list[int], edits: list[tuple[int, bytes]]
) -> None:
    stream, _ = data.draw(wire.streams())
    for place, raw in edits:
        at = place % (len(stream) + 1)
        stream = stream[:at] + raw + stream[at + max(1, len(raw)) :]
    whole = wire.shapes(new_parser(), [stream])
    assert wire.shapes(new_parser(), wire.split(stream, cuts)) == whole
    kinds = [shape[0] for shape in whole]
    assert "violation" not in kinds[:-1]


@given(data=st.binary(max_size=300), cuts=cut_lists, framed=st.booleans())
def test_random_bytes_give_only_events_in_bounded_memory(
    wire: Any, data: bytes, cuts: list[int], framed: bool
) -> None:
    stream = wire.greeting + (wire.frame(1, 1, data[:190]) if framed else b"") + data
    parser = new_parser()
    for chunk in wire.split(stream, cuts):
        events = parser.feed(chunk)
        violations = [isinstance(event, Violation) for event in events]
        assert not any(violations[:-1])
        if events:
            assert parser.closed == violations[-1]
        assert parser.buffered_bytes <= FRAME_MAX + BODY_MAX + FRAME_MAX


@given(data=st.data(), cuts=cut_lists)
def test_what_is_held_never_exceeds_a_frame_and_the_open_contents(
    wire: Any, data: Any, cuts: list[int]
) -> None:
    stream, _ = data.draw(wire.streams())
    parser = new_parser()
    fed = 0
    for chunk in wire.split(stream, cuts):
        parser.feed(chunk)
        fed += len(chunk)
        assert 0 <= parser.buffered_bytes <= min(fed, FRAME_MAX + 3 * (BODY_MAX + FRAME_MAX))


def test_the_protocol_header_is_an_event_and_a_wrong_one_closes_the_parser(wire: Any) -> None:
    good = new_parser()
    assert good.feed(wire.greeting[:7]) == []
    assert good.buffered_bytes == 7
    assert wire.shapes(good, [wire.greeting[7:]]) == [("protocol", wire.greeting)]
    bad = new_parser()
    assert wire.shapes(bad, [b"AMQP\x01\x01\x00\x0arest"]) == [
        ("protocol", b"AMQP\x01\x01\x00\x0a")
    ]
    assert bad.closed
    assert bad.feed(wire.frame(8, 0, b"")) == []


def test_route_flags_properties_and_body_are_kept_byte_for_byte(wire: Any) -> None:
    properties = b"\x90\x00\x03a\xff\x00\x07"
    frames = wire.publish(9, b"ex\xff", b"\x00k", 3) + wire.header(9, 4, properties)
    for chunks in ([frames, wire.frame(3, 9, b"body")], [frames + wire.frame(3, 9, b"body")]):
        (shape,) = wire.shapes(greeted(wire), chunks)
        assert shape == ("publish", 9, b"\x03ex\xff\x02\x00k", (True, True), properties, b"body")


@pytest.mark.parametrize("chunked", [False, True])
def test_an_empty_body_needs_no_body_frame(wire: Any, chunked: bool) -> None:
    frames = wire.message(1, b"") + wire.message(2, b"x")
    chunks = frames if chunked else [b"".join(frames)]
    shapes = wire.shapes(greeted(wire), chunks)
    assert [(shape[1], shape[-1]) for shape in shapes] == [(1, b""), (2, b"x")]


def test_empty_body_frames_are_passed_over(wire: Any) -> None:
    frames = wire.publish(1) + wire.header(1, 2) + wire.frame(3, 1, b"") + wire.frame(3, 1, b"a")
    shapes = wire.shapes(greeted(wire), [frames + wire.frame(3, 1, b"") + wire.frame(3, 1, b"b")])
    assert [shape[-1] for shape in shapes] == [b"ab"]


@pytest.mark.parametrize("part", [1, 1000, 1024, 131064])
def test_a_large_body_comes_back_from_its_parts(wire: Any, part: int) -> None:
    size = min(part * 20_000, 16 << 20)
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    parser = greeted(wire)
    stream = b"".join(wire.message(1, body, part))
    shapes = wire.shapes(parser, [stream[at : at + 65536] for at in range(0, len(stream), 65536)])
    assert len(shapes) == 1
    assert shapes[0][-1] == body
    assert parser.buffered_bytes == 0


def test_large_and_small_parts_keep_their_order(wire: Any) -> None:
    parts = [b"a", b"b" * 5000, b"c", b"d", b"e" * 1024, b"f" * 1023]
    frames = [wire.publish(1), wire.header(1, sum(map(len, parts)))]
    frames += [wire.frame(3, 1, part) for part in parts]
    assert wire.shapes(greeted(wire), frames)[0][-1] == b"".join(parts)


def test_a_body_that_is_too_large_is_skipped_and_only_that(wire: Any) -> None:
    parser = greeted(wire, body_max=10)
    other = wire.message(2, b"other")
    frames = wire.message(1, b"x" * 11, part=4)
    stream = [*frames[:2], other[0], *frames[2:4], *other[1:], *frames[4:]]
    after = wire.message(1, b"x" * 10)
    shapes = wire.shapes(parser, [b"".join(stream)]) + wire.shapes(parser, after)
    assert [(shape[0], shape[1], shape[-1]) for shape in shapes] == [
        ("too large", 1, 11),
        ("publish", 2, b"other"),
        ("publish", 1, b"x" * 10),
    ]
    assert parser.buffered_bytes == 0


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_skipped_in_one_frame_too(wire: Any, chunked: bool) -> None:
    frames = wire.message(1, b"x" * 11) + wire.message(1, b"x" * 10)
    chunks = frames if chunked else [b"".join(frames)]
    shapes = wire.shapes(greeted(wire, body_max=10), chunks)
    assert [(shape[0], shape[-1]) for shape in shapes] == [
        ("too large", 11),
        ("publish", b"x" * 10),
    ]


def test_a_body_size_beyond_63_bits_is_too_large(wire: Any) -> None:
    parser = greeted(wire)
    stream = wire.publish(1) + wire.header(1, (1 << 64) - 1) + wire.frame(3, 1, b"x" * 99)
    assert wire.shapes(parser, [stream]) == [("too large", 1, (1 << 64) - 1)]
    assert parser.buffered_bytes == 0
    assert not parser.closed


def test_channel_close_ok_drops_the_content_that_it_cuts_short(wire: Any) -> None:
    parser = greeted(wire)
    cut_short = [wire.publish(1), wire.header(1, 5), wire.frame(3, 1, b"ab")]
    assert wire.shapes(parser, cut_short) == []
    assert parser.buffered_bytes == 2 + len(wire.properties)
    (closed,) = parser.feed(wire.method(1, 20, 41))
    assert isinstance(closed, Method)
    assert parser.buffered_bytes == 0
    (shape,) = wire.shapes(parser, [b"".join(wire.message(1, b"new"))])
    assert shape[-1] == b"new"


def test_frame_max_changes_with_tune(wire: Any) -> None:
    parser = FrameParser(4096, 16 << 20)
    parser.feed(wire.greeting)
    parser.frame_max = 131072
    (event,) = parser.feed(wire.frame(1, 1, struct.pack(">HH", 60, 10) + bytes(131060)))
    assert isinstance(event, Method)
    assert event.index == 60 << 16 | 10


@pytest.mark.parametrize("chunked", [False, True])
def test_a_payload_of_frame_max_bytes_is_let_through(wire: Any, chunked: bool) -> None:
    parser = FrameParser(4096, 16 << 20)
    data = wire.publish(1) + wire.header(1, 4096) + wire.frame(3, 1, b"x" * 4096)
    chunks = [data[:40], data[40:]] if chunked else [data]
    parser.feed(wire.greeting)
    (shape,) = wire.shapes(parser, chunks)
    assert shape[-1] == b"x" * 4096


def test_the_unfinished_contents_of_all_channels_are_bounded(wire: Any) -> None:
    parser = greeted(wire)
    parser.partial_bytes_max = 1000
    shapes: list[Any] = []
    for channel in range(1, 5):
        begun = (
            wire.publish(channel) + wire.header(channel, 400) + wire.frame(3, channel, b"x" * 300)
        )
        shapes += wire.shapes(parser, [begun])
    assert [shape[:2] for shape in shapes] == [("violation", 506)]
    assert parser.buffered_bytes == 0


def test_a_delivery_tag_beyond_63_bits_reads_as_the_largest(wire: Any) -> None:
    tagged = b"\xff" * 8 + b"\x00"
    (shape,) = wire.shapes(greeted(wire), [wire.method(1, 60, 80, tagged)])
    assert shape == ("ack", 1, (1 << 63) - 1, False)


def test_messages_of_one_publisher_share_their_property_block(wire: Any) -> None:
    stream = b"".join(wire.message(1, b"a") + wire.message(1, b"b"))
    first, second = greeted(wire).feed(stream)
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert first.properties is second.properties


def test_discarded_parser_keeps_nothing_and_parses_nothing(wire: Any) -> None:
    parser = greeted(wire)
    body = bytes(100_000)
    stream = b"".join(wire.message(1, body))
    parser.feed(stream[:50_000])
    assert parser.buffered_bytes >= 49_000
    assert parser.missing_bytes > 0
    parser.discard()
    assert (parser.buffered_bytes, parser.missing_bytes, parser.closed) == (0, 0, True)
    assert parser.feed(stream[50_000:]) == []


@pytest.mark.parametrize("part", [900, 4000, 131064])
@pytest.mark.parametrize("size", [LARGE_BYTES, 4 * LARGE_BYTES + 7])
def test_large_body_is_put_together_while_it_comes(wire: Any, size: int, part: int) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    data = data[:size]
    frames = [wire.frame(3, 1, data[at : at + part]) for at in range(0, size, part)]
    parser = greeted(wire)
    parser.feed(wire.publish(1) + wire.header(1, size))
    for each in frames[:-1]:
        assert parser.feed(each) == []
    tracemalloc.start()
    try:
        (publish,) = parser.feed(frames[-1])
        assert tracemalloc.get_traced_memory()[1] < LARGE_BYTES // 2
    finally:
        tracemalloc.stop()
    assert isinstance(publish, Publish)
    assert publish.body == data


def test_body_that_came_while_less_was_allowed_is_too_large(wire: Any) -> None:
    parser = greeted(wire)
    stream = b"".join(wire.message(1, bytes(3000)) + wire.message(1, b"next"))
    parser.feed(stream[:2000])
    parser.body_bytes_max = 2999
    large, publish = parser.feed(stream[2000:])
    assert isinstance(large, ContentTooLarge)
    assert (large.channel, large.size) == (1, 3000)
    assert isinstance(publish, Publish)
    assert publish.body == b"next"


def test_large_body_that_is_only_announced_takes_no_memory(wire: Any) -> None:
    parser = greeted(wire)
    tracemalloc.start()
    try:
        parser.feed(wire.publish(1) + wire.header(1, 16 << 20))
        parser.feed(wire.frame(3, 1, bytes(100_000)))
        assert tracemalloc.get_traced_memory()[1] < LARGE_BYTES
    finally:
        tracemalloc.stop()
