"""Bytes that are put together in place."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_raftlog.model.pieces import Assembly, Pieces

MIB = 1 << 20


@given(st.binary(min_size=1, max_size=200), st.lists(st.integers(1, 40)), st.integers(0, 16))
def test_what_is_put_together_is_what_came(data: bytes, cuts: list[int], room: int) -> None:
    assembly = Assembly(len(data), room)
    at = 0
    for size in [*cuts, len(data)]:
        assert assembly.so_far() == data[:at]
        at += assembly.add(data, at, size)
    assert at == len(data)
    assert assembly.data() == bytes(room) + data
    assert assembly.so_far() == data


def test_bytes_beyond_what_is_missing_are_left() -> None:
    assembly = Assembly(4)
    assert assembly.add(b"abcdef", 1) == 4
    assert assembly.data() == b"bcde"


def test_assembly_is_filled_and_handed_out_without_a_copy() -> None:
    piece = bytes(range(256)) * (MIB // 256)
    assembly = Assembly(8 * MIB, 8)
    tracemalloc.start()
    try:
        for _ in range(8):
            assembly.add(piece)
        assembly.put(b"12345678")
        first, second = assembly.data(), assembly.data()
        assert tracemalloc.get_traced_memory()[1] < MIB // 4
    finally:
        tracemalloc.stop()
    assert first is second
    assert first[:8] == b"12345678"
    assert first[8:] == piece * 8


def test_bytes_that_somebody_has_do_not_change() -> None:
    assembly = Assembly(3, 1)
    assembly.add(b"abc")
    assembly.put(b"1")
    first = assembly.data()
    assembly.put(b"2")
    assert (first, assembly.data()) == (b"1abc", b"2abc")


def test_bytes_are_not_handed_out_before_all_have_come() -> None:
    assembly = Assembly(3)
    assembly.add(b"ab")
    with pytest.raises(AssertionError, match="still to come"):
        assembly.data()


def test_pieces_have_the_length_of_all() -> None:
    pieces = Pieces([b"ab", memoryview(b"cde")])
    assert (len(pieces), pieces.joined()) == (5, b"abcde")
