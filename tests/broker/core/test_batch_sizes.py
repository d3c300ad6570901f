from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.core.conftest import batch

from headrace_broker.codecs.batch import check_batch
from headrace_broker.core.queue.messages.batch_sizes import UNEQUAL, measure_batch

MESSAGE = b"\x01e\x02rk" + b"\x00\x00\x00\x02\x00\x00" + b"body"


def table(*ends: int) -> bytes:
    return struct.pack(f">I{len(ends)}I", len(ends), *ends)


@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=20), base=st.integers(0, 9))
def test_a_batch_is_measured_as_it_was_written(sizes: list[int], base: int) -> None:
    measured = measure_batch(bytes(base) + batch(*map(bytes, sizes)), base)
    assert measured is not None
    assert measured.count == len(sizes)
    assert [measured.byte_count(position) for position in range(len(sizes))] == sizes
    assert measured.bytes_between(0, len(sizes)) == sum(sizes)
    assert measured.bytes_between(len(sizes) // 2, len(sizes)) == sum(sizes[len(sizes) // 2 :])


def test_equal_bodies_cost_no_table_and_unequal_ones_four_bytes_each() -> None:
    equal = measure_batch(batch(b"aa", b"bb", b"cc"), 0)
    unequal = measure_batch(batch(b"aa", b"bb", b"c"), 0)
    assert equal is not None
    assert (equal.size, equal.table) == (2, b"")
    assert unequal is not None
    assert (unequal.size, len(unequal.table)) == (UNEQUAL, 12)


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\x00\x00\x00",
        table(),
        table(len(MESSAGE) + 1) + MESSAGE,
        table(len(MESSAGE) - 1) + MESSAGE,
        table(len(MESSAGE), 0) + MESSAGE,
        table(len(MESSAGE), len(MESSAGE)) + MESSAGE,
        table(2**32 - 1) + MESSAGE,
        struct.pack(">I", 2**32 - 1) + MESSAGE,
        table(7) + bytes(7),
        table(8) + bytes(8),
        table(8) + b"\xff" + bytes(7),
        table(8) + b"\x00\xff" + bytes(6),
        table(8) + b"\x00\x00\x00\x00\x00\x03\x00\x00",
        table(8) + b"\x00\x00\x80\x00\x00\x00\x00\x00",
    ],
)
def test_a_batch_that_contradicts_itself_is_refused(blob: bytes) -> None:
    assert measure_batch(blob, 0) is None


@given(blob=st.binary(max_size=60), base=st.integers(0, 70))
def test_random_bytes_are_measured_or_refused(blob: bytes, base: int) -> None:
    measured = measure_batch(blob, base)
    assert measured is None or check_batch(blob, base)


@given(changes=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=3))
def test_what_is_accepted_can_be_delivered(changes: list[tuple[int, int]]) -> None:
    blob = bytearray(batch(b"a", b"", b"ccc"))
    for offset, byte in changes:
        blob[offset % len(blob)] = byte
    measured = measure_batch(bytes(blob), 0)
    assert measured is None or check_batch(bytes(blob), 0)
