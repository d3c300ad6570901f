"""Frames out of octets that arrive in any pieces."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.framing import FrameReader, frame_head

TICKET = b"ticket"


def read_all(reader: FrameReader) -> list[bytes]:
    found = []
    while (body := reader.frame()) is not None:
        found.append(body)
    return found


@given(st.lists(st.binary(max_size=40), max_size=12), st.lists(st.integers(1, 50), max_size=30))
def test_frames_come_out_whole_and_in_order_however_they_are_cut(
    bodies: list[bytes], cuts: list[int]
) -> None:
    octets = TICKET + b"".join(frame_head(body) + body for body in bodies)
    reader = FrameReader(len(TICKET), 40)
    tickets, found, at = [], [], 0
    for size in [*cuts, len(octets)]:
        reader.feed(octets[at : at + size])
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
    with pytest.raises(FrameError, match="frame of 41 octets, the maximum is 40"):
        reader.frame()
