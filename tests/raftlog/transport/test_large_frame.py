from __future__ import annotations

import tracemalloc

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_protos.raftlog.v1.transport_pb2 import Frame
from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.message import APPEND, HEARTBEAT, Message
from headrace_raftlog.model.pieces import Parted, Pieces
from headrace_raftlog.transport.codec import FrameError, add_message, read_messages
from headrace_raftlog.transport.framing import FrameReader, fragment_head
from headrace_raftlog.transport.large_frame import (
    ASSEMBLED_BYTES_MIN,
    PART_HEAD_BYTES,
    Bodies,
    BodyReader,
    LargeFrame,
    take_bodies,
)

NUMBERS = st.integers(0, 2**62)


@st.composite
def appends(draw: st.DrawFn) -> Message:
    first = draw(st.integers(1, 2**40))
    bodies = draw(st.lists(st.binary(max_size=300), max_size=4))
    term = draw(st.integers(1, 2**40))
    entries = [Entry(first + 1 + at, term, at % 2, data) for at, data in enumerate(bodies)]
    return Message(
        APPEND,
        draw(NUMBERS),
        1,
        2,
        term,
        index=first,
        log_term=draw(st.integers(0, term)),
        commit=draw(NUMBERS),
        entries=entries,
        context=draw(NUMBERS),
    )


@st.composite
def large_frames(draw: st.DrawFn) -> LargeFrame:
    frame = LargeFrame()
    frame.messages.extend(draw(st.lists(appends(), max_size=3)))
    frame.application.extend(draw(st.lists(st.binary(max_size=300), max_size=3)))
    return frame


def by_protobuf(frame: LargeFrame) -> Frame:
    out = Frame()
    for payload in frame.application:
        out.application.append(payload.joined() if isinstance(payload, Pieces) else payload)
    for message in frame.messages:
        add_message(out, message)
    return out


@settings(max_examples=200, deadline=None)
@given(large_frames())
def test_bytes_are_those_of_protobuf(frame: LargeFrame) -> None:
    assert Frame.FromString(b"".join(frame.pieces())) == by_protobuf(frame)


@settings(max_examples=200, deadline=None)
@given(large_frames(), st.integers(0, 2**62))
def test_what_is_taken_out_belongs_to_the_entries_of_the_rest(
    frame: LargeFrame, synced: int
) -> None:
    body = Frame(synced=synced).SerializeToString() + b"".join(frame.pieces())
    bodies = take_bodies(body)
    assert bodies is not None
    rest = Frame.FromString(bodies.skeleton)
    assert rest.synced == synced
    received = read_messages(rest, 1, 2, bodies.entries)
    assert [m.entries for m in received] == [m.entries for m in frame.messages]
    assert [(m.index, m.commit) for m in received] == [(m.index, m.commit) for m in frame.messages]
    assert bodies.application == frame.application
    entries = sum(len(each.data) for m in frame.messages for each in m.entries)
    assert bodies.byte_count == entries + sum(map(len, frame.application))


def test_data_of_an_entry_are_not_copied_on_their_way_out() -> None:
    frame = LargeFrame()
    data = b"x" * 100_000
    frame.messages.append(Message(APPEND, 1, 1, 2, 1, entries=[Entry(1, 1, 0, data)]))
    frame.application.append(data)
    assert [piece for piece in frame.pieces() if piece is data] == [data, data]


@settings(max_examples=300, deadline=None)
@given(large_frames(), st.data())
def test_bytes_that_are_no_frame_are_left_to_protobuf_or_read_as_it_does(
    frame: LargeFrame, data: st.DataObject
) -> None:
    body = bytearray(by_protobuf(frame).SerializeToString())
    if body:
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
        del body[data.draw(st.integers(at, len(body))) :]
    bodies = take_bodies(bytes(body))
    if bodies is None:
        return
    try:
        rest = Frame.FromString(bodies.skeleton)
    except ValueError:  # what protobuf refuses of the skeleton it refuses of the whole
        with pytest.raises(ValueError, match=""):
            Frame.FromString(bytes(body))
        return
    whole = Frame.FromString(bytes(body))
    assert list(whole.application) == bodies.application
    assert [each.data for m in whole.messages for each in m.entries] == bodies.entries
    for message in whole.messages:
        for entry in message.entries:
            entry.ClearField("data")
    del whole.application[:]
    assert whole == rest


@pytest.mark.parametrize(
    "body",
    [
        b"\x2a\x01x",  # a field of a later release
        b"\x0a\x03\x7a\x01x",  # one of a message
        b"\x0a\x05\x4a\x03\x22\x01x",  # one of an entry
        b"\x0a\x08\x4a\x06\x1a\x01x\x1a\x01y",  # data twice: the last counts
        b"\x12\x05x",  # longer than what is there
        b"\x0a\x04\x4a\x03\x1a\x02",
        b"\x0a\x80",
        b"\x18" + b"\xff" * 9 + b"\x01",  # a number of 64 bits
    ],
)
def test_what_is_not_known_here_is_left_to_protobuf(body: bytes) -> None:
    assert take_bodies(body) is None


LENGTH_MAX = b"\xff" * 8 + b"\x7f"  # 2**63 - 1


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a" + LENGTH_MAX + b"x",
        b"\x12" + LENGTH_MAX + b"x",
        b"\x22" + LENGTH_MAX + b"x",
        b"\x0a\x0b\x4a" + LENGTH_MAX + b"x",
        b"\x0a\x0d\x4a\x0b\x1a" + LENGTH_MAX + b"x",
    ],
)
def test_lengths_near_the_largest_number_are_no_frame(body: bytes) -> None:
    assert take_bodies(body) is None
    with pytest.raises(DecodeError):
        Frame.FromString(body)


def test_entries_of_a_message_that_has_none_are_refused() -> None:
    raw = Frame()
    add_message(raw, Message(HEARTBEAT, 1, 1, 2, 1, entries=[Entry(1, 1, 0, b"stray")]))
    add_message(raw, Message(APPEND, 1, 1, 2, 1, entries=[Entry(1, 1, 0, b"right")]))
    bodies = take_bodies(raw.SerializeToString())
    assert bodies is not None
    with pytest.raises(FrameError, match="in a message that has none"):
        read_messages(Frame.FromString(bodies.skeleton), 1, 2, bodies.entries)


def test_fewer_data_than_entries_are_refused() -> None:
    raw = Frame()
    add_message(raw, Message(APPEND, 1, 1, 2, 1, entries=[Entry(1, 1, 0, b"x")]))
    with pytest.raises(FrameError, match="fewer data than entries"):
        read_messages(raw, 1, 2, [])


BODY_SIZES = st.sampled_from(
    [0, 1, PART_HEAD_BYTES, ASSEMBLED_BYTES_MIN - 1, ASSEMBLED_BYTES_MIN, 3 * ASSEMBLED_BYTES_MIN]
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(BODY_SIZES, max_size=3),
    st.lists(BODY_SIZES, max_size=3),
    st.lists(st.integers(1, 2 * ASSEMBLED_BYTES_MIN), min_size=1, max_size=6),
)
def test_frame_is_read_alike_however_it_is_cut(
    entries: list[int], payloads: list[int], cuts: list[int]
) -> None:
    frame = LargeFrame()
    found = [Entry(1 + at, 1, 0, bytes([at]) * size) for at, size in enumerate(entries)]
    frame.messages.append(Message(APPEND, 7, 1, 2, 1, entries=found))
    frame.application.extend(bytes([100 + at]) * size for at, size in enumerate(payloads))
    data = b"".join(frame.pieces())
    reader, at, turn = BodyReader(), 0, 0
    while at < len(data):
        reader.feed(data[at : at + cuts[turn % len(cuts)]])
        at += cuts[turn % len(cuts)]
        turn += 1
    bodies = reader.bodies()
    assert bodies is not None
    assert bodies.entries == [each.data for each in found]
    assert bodies.application == list(frame.application)
    assert reader.whole() == data
    received = read_messages(Frame.FromString(bodies.skeleton), 1, 2, bodies.entries)
    assert [m.entries for m in received] == [found]


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=6))
def test_field_of_a_later_release_behind_long_data_leaves_the_whole_frame_to_protobuf(
    cuts: list[int],
) -> None:
    frame = LargeFrame()
    frame.application.append(b"x" * (2 * ASSEMBLED_BYTES_MIN))
    data = b"".join(frame.pieces()) + b"\x2a\x01x" + b"".join(frame.pieces())
    reader, at, turn = BodyReader(), 0, 0
    while at < len(data):
        reader.feed(data[at : at + cuts[turn % len(cuts)]])
        at += cuts[turn % len(cuts)]
        turn += 1
    assert reader.bodies() is None
    assert reader.whole() == data


def test_frame_that_ends_within_long_data_is_none() -> None:
    frame = LargeFrame()
    frame.application.append(b"x" * (2 * ASSEMBLED_BYTES_MIN))
    data = b"".join(frame.pieces())[:-1]
    reader = BodyReader()
    reader.feed(data[:1000])
    reader.feed(data[1000:])
    assert reader.bodies() is None
    assert reader.whole() == data


def test_payload_is_parted_where_the_application_says_and_has_room() -> None:
    payload = b"head" + b"t" * (2 * ASSEMBLED_BYTES_MIN)
    frame = LargeFrame()
    frame.application.extend([Pieces([payload[:9], memoryview(payload)[9:]]), b"short"])
    data = b"".join(frame.pieces())
    asked: list[tuple[bytes, int]] = []

    def part(head: bytes, size: int) -> tuple[int, int]:
        asked.append((head, size))
        return 4, 8

    reader = BodyReader(1 << 30, part)
    for at in range(0, len(data), 50_000):
        reader.feed(data[at : at + 50_000])
    bodies = reader.bodies()
    assert bodies is not None
    parted, short = bodies.application
    assert isinstance(parted, Parted)
    assert (parted.head, short) == (b"head", b"short")
    assert parted.tail.data() == bytes(8) + payload[4:]
    assert asked == [(payload[:PART_HEAD_BYTES], len(payload))]
    assert bodies.byte_count == len(payload) + len(b"short")


def test_no_fragment_copies_more_than_itself() -> None:
    """The peak of a fragment does not grow with its entry."""
    size, piece, chunk = 16 << 20, 1 << 20, 256 << 10
    frame = LargeFrame()
    frame.messages.append(Message(APPEND, 1, 1, 2, 1, entries=[Entry(1, 1, 0, bytes(size))]))
    body = b"".join(frame.pieces())
    data = b""
    for at in range(0, len(body), piece):
        fragment = body[at : at + piece]
        data += fragment_head(len(fragment), at + piece < len(body)) + fragment
    chunks = [data[at : at + chunk] for at in range(0, len(data), chunk)]
    reader = FrameReader(0, 1 << 30)
    reader.feed(chunks[0])
    assert reader.frame() is None
    bodies = None
    tracemalloc.start()
    try:
        for each in chunks[1:]:
            reader.feed(each)
            bodies = reader.frame()
        assert tracemalloc.get_traced_memory()[1] < 2 * chunk
    finally:
        tracemalloc.stop()
    assert isinstance(bodies, Bodies)
    assert len(bodies.entries[0]) == size
