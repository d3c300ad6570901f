"""Frames out of bytes that arrive in any pieces."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.framing import MORE_FLAG, FrameReader, fragment_head, frame_head

TICKET = b"ticket"
LATER_FIELD = b"\x2a"


def read_all(reader: FrameReader) -> list[bytes]:
    found = []
    while (body := reader.frame()) is not None:
        assert isinstance(body, bytes)
        found.append(body)
    return found


@given(st.lists(st.binary(max_size=40), max_size=12), st.lists(st.integers(1, 50), max_size=30))
def test_frames_come_out_whole_and_in_order_however_they_are_cut(
    bodies: list[bytes], cuts: list[int]
) -> None:
    data = TICKET + b"".join(frame_head(body) + body for body in bodies)
    reader = FrameReader(len(TICKET), 40)
    tickets, found, at = [], [], 0
    for size in [*cuts, len(data)]:
        reader.feed(data[at : at + size])
        at += size
        tickets.append(reader.ticket())
        found += read_all(reader)
    assert [ticket for ticket in tickets if ticket is not None] == [TICKET]
    assert found == bodies


def test_nothing_is_a_frame_before_the_ticket() -> None:
    reader = FrameReader(len(TICKET), 40)
    reader.feed(TICKET[:3])
    assert reader.ticket() is None
    assert reader.frame() is None
    reader.feed(TICKET[3:] + frame_head(b"x") + b"x")
    assert reader.frame() is None
    assert reader.ticket() == TICKET
    assert reader.ticket() is None
    assert read_all(reader) == [b"x"]


def test_length_beyond_the_maximum_is_refused_before_it_arrives() -> None:
    reader = FrameReader(0, 40)
    reader.feed(frame_head(bytes(40)) + bytes(40) + frame_head(bytes(41)))
    assert reader.frame() == bytes(40)
    with pytest.raises(FrameError, match="frame of 41 bytes, the maximum is 40"):
        reader.frame()


def fragments_of(body: bytes, size: int) -> list[bytes]:
    """Cut a frame with a field of a later release, so that it is handed over as a whole."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    last = len(pieces) - 1
    return [fragment_head(len(each), at < last) + each for at, each in enumerate(pieces)]


@given(
    st.binary(min_size=1, max_size=200),
    st.integers(1, 50),
    st.lists(st.binary(max_size=40), max_size=8),
    st.lists(st.integers(1, 50), max_size=30),
)
def test_quick_frames_pass_between_the_fragments_of_a_large_one(
    large: bytes, size: int, quick: list[bytes], cuts: list[int]
) -> None:
    large = LATER_FIELD + large
    pieces = fragments_of(large, size)
    data, expected = b"", []
    for at, piece in enumerate(pieces):
        data += piece
        if at == len(pieces) - 1:
            expected.append(large)
        if at < len(quick):
            data += frame_head(quick[at]) + quick[at]
            expected.append(quick[at])
    reader = FrameReader(0, 200)
    found, at = [], 0
    for cut in [*cuts, len(data)]:
        reader.feed(data[at : at + cut])
        at += cut
        found += read_all(reader)
    assert found == expected


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (fragment_head(30, True) + bytes(30) + fragment_head(11, False), "frame of 41 bytes"),
        (fragment_head(0, True), "fragment of 0 bytes"),
        ((MORE_FLAG | 1).to_bytes(4, "big") + b"x", "fragment of 1 bytes"),
    ],
)
def test_fragments_that_no_correct_peer_cuts_are_refused(data: bytes, text: str) -> None:
    reader = FrameReader(0, 40)
    reader.feed(data)
    with pytest.raises(FrameError, match=text):
        read_all(reader)
