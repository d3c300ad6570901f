"""The batch layout: publishes come back byte for byte, and bad bytes are detected."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from headrace_broker.codecs import batch
from headrace_broker.model.message import Publish

short_strings = st.binary(max_size=20)
property_blocks = st.binary(min_size=2, max_size=70)


@st.composite
def publishes(draw: st.DrawFn) -> Publish:
    exchange, key = draw(short_strings), draw(short_strings)
    route = bytes((len(exchange),)) + exchange + bytes((len(key),)) + key
    body = draw(st.binary(max_size=100))
    return Publish(1, route, False, False, draw(property_blocks), body)


batches = st.lists(publishes(), max_size=6)
prefixes = st.binary(max_size=9)


def contents(blob: bytes, base: int) -> list[tuple[bytes, bytes, bytes]]:
    return [
        (
            batch.message_route(blob, base, at),
            batch.message_properties(blob, base, at),
            batch.message_body(blob, base, at),
        )
        for at in range(batch.batch_count(blob, base))
    ]


@given(messages=batches, prefix=prefixes, suffix=prefixes)
def test_messages_come_back_from_anywhere_in_a_blob(
    messages: list[Publish], prefix: bytes, suffix: bytes
) -> None:
    out = BytesWriter()
    out.write(prefix)
    batch.write_batch(out, messages)
    out.write(suffix)
    blob, base = out.getvalue(), len(prefix)
    assert batch.check_batch(blob, base)
    assert batch.batch_end(blob, base) == len(blob) - len(suffix)
    assert blob[base : len(blob) - len(suffix)] == batch.encode_batch(messages)
    assert contents(blob, base) == [(m.route, m.properties, m.body) for m in messages]


@given(messages=batches, lead=prefixes, at=st.integers(0, 6))
def test_a_batch_with_a_large_body_has_the_same_layout(
    messages: list[Publish], lead: bytes, at: int
) -> None:
    messages.insert(at, Publish(1, b"\x00\x01k", False, False, b"\x00\x00", bytes(100_000)))
    out = BytesWriter()
    out.write(lead)
    batch.write_batch(out, messages)
    assert batch.encode_batch(messages, lead) == out.getvalue()


@given(messages=st.lists(publishes(), min_size=1, max_size=6), prefix=prefixes, data=st.data())
def test_a_slice_is_the_batch_of_the_chosen_messages(
    messages: list[Publish], prefix: bytes, data: st.DataObject
) -> None:
    positions = data.draw(st.lists(st.integers(0, len(messages) - 1), max_size=8))
    chosen = [messages[position] for position in positions]
    blob = prefix + batch.encode_batch(messages)
    assert batch.slice_batch(blob, len(prefix), positions) == batch.encode_batch(chosen)
    assert batch.body_bytes(blob, len(prefix), positions) == sum(len(m.body) for m in chosen)


def test_the_layout_is_as_documented() -> None:
    messages = [
        Publish(1, b"\x01e\x02kk", True, False, b"\x00\x00", b"body"),
        Publish(2, b"\x00\x00", False, False, b"\x10\x00\x02", b""),
    ]
    first = b"\x01e\x02kk" + b"\x00\x00\x00\x02\x00\x00" + b"body"
    second = b"\x00\x00" + b"\x00\x00\x00\x03\x10\x00\x02"
    head = struct.pack(">III", 2, len(first), len(first) + len(second))
    assert batch.encode_batch(messages) == head + first + second
    assert batch.encode_batch([]) == bytes(4)
    assert batch.message_body_bytes(head + first + second, 0, 0) == 4
    assert batch.message_body_bytes(head + first + second, 0, 1) == 0


@given(messages=batches, data=st.data())
def test_a_batch_cut_short_fails_the_check(messages: list[Publish], data: st.DataObject) -> None:
    blob = batch.encode_batch(messages)
    length = data.draw(st.integers(0, len(blob) - 1))
    assert not batch.check_batch(blob[:length], 0)


@given(messages=batches, edits=st.lists(st.tuples(st.integers(0, 999), st.integers(0, 255))))
def test_what_passes_the_check_can_be_read_within_its_bounds(
    messages: list[Publish], edits: list[tuple[int, int]]
) -> None:
    data = bytearray(batch.encode_batch(messages))
    for place, byte in edits:
        data[place % len(data)] = byte
    blob = bytes(data)
    if not batch.check_batch(blob, 0):
        return
    end = batch.batch_end(blob, 0)
    assert end <= len(blob)
    pieces = contents(blob, 0)
    count = len(pieces)
    assert sum(4 + len(r) + len(p) + len(b) for r, p, b in pieces) == end - 4 - 4 * count
    assert batch.slice_batch(blob, 0, list(range(count))) == blob[:end]


@given(blob=st.binary(max_size=60), base=st.integers(-3, 70))
def test_random_bytes_never_raise(blob: bytes, base: int) -> None:
    if batch.check_batch(blob, base):
        contents(blob, base)


def test_each_inconsistency_fails_the_check() -> None:
    message = b"\x00\x00\x00\x00\x00\x02\x00\x00"

    def check(count: int, ends: list[int], messages: bytes) -> bool:
        return batch.check_batch(struct.pack(f">I{len(ends)}I", count, *ends) + messages, 0)

    assert check(2, [8, 16], message * 2)
    assert not check(0xFFFFFFFF, [8, 16], message * 2)
    assert not check(1 << 20, [8, 16], message * 2)
    assert not check(2, [8, 17], message * 2)
    assert not check(2, [8, 8], message * 2)
    assert not check(2, [16, 8], message * 2)
    assert not check(1, [0xFFFFFFFF], message)
    assert not check(1, [8], b"\x09" + message[1:])
    assert not check(1, [8], b"\x00\x09" + message[2:])
    assert not check(1, [5], message)
    assert not check(1, [8], b"\x00\x00\x00\x00\x00\x03\x00\x00")
    assert not check(1, [8], b"\x00\x00\x00\x00\x00\x01\x00\x00")
    assert not check(1, [8], b"\x00\x00\xff\xff\xff\xff\x00\x00")
