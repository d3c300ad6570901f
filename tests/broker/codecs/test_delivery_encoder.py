"""Encoded deliveries, read back with pamqp."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter
from pamqp import body, commands, frame, header

from headrace_broker.codecs import delivery_encoder
from headrace_broker.codecs.batch import encode_batch
from headrace_broker.codecs.frame import HEARTBEAT_FRAME
from headrace_broker.codecs.method import decode_headers
from headrace_broker.model.limits import LARGE_BYTES, OUTPUT_FLUSH_BYTES
from headrace_broker.model.message import DeliveryRun, Publish

PROPERTIES = b"\x90\x00\x0atext/plain\x02"
names = st.text(max_size=60)


def route(exchange: str, key: str) -> bytes:
    parts = (exchange.encode(), key.encode())
    return b"".join(bytes((len(part),)) + part for part in parts)


def message(data: bytes, exchange: str = "ex", key: str = "key") -> Publish:
    return Publish(5, route(exchange, key), True, False, PROPERTIES, data)


def frames(data: bytes) -> list[tuple[int, Any, bytes]]:
    """Channel, pamqp object and raw frame of each frame."""
    found = []
    while data:
        size, channel, value = frame.unmarshal(data)
        found.append((channel, value, data[:size]))
        data = data[size:]
    return found


def deliveries(data: bytes) -> list[tuple[Any, bytes, bytes, list[int]]]:
    """(method, property block, body, sizes of the body frames) of each content."""
    found: list[tuple[Any, bytes, bytes, list[int]]] = []
    missing = 0
    for _, value, raw in frames(data):
        if isinstance(value, header.ContentHeader):
            assert raw[7:11] == b"\x00\x3c\x00\x00"  # class basic, weight 0
            missing = value.body_size
            found[-1] = (found[-1][0], raw[19:-1], b"", [])
        elif isinstance(value, body.ContentBody):
            method, block, content, sizes = found[-1]
            missing -= len(value.value)
            found[-1] = (method, block, content + value.value, [*sizes, len(raw)])
        else:
            assert missing == 0
            found.append((value, b"", b"", []))
    assert missing == 0
    return found


def a_run(messages: list[Publish], positions: list[int], redelivered: bytes) -> DeliveryRun:
    return DeliveryRun(1, 1, b"???" + encode_batch(messages), 3, positions, redelivered)


@given(
    bodies=st.lists(st.binary(max_size=200), min_size=1, max_size=5),
    exchange=names,
    key=names,
    data=st.data(),
    frame_max=st.integers(9, 80),
)
def test_a_run_reads_back_with_pamqp(
    bodies: list[bytes], exchange: str, key: str, data: st.DataObject, frame_max: int
) -> None:
    messages = [message(raw, exchange, key) for raw in bodies]
    positions = data.draw(st.lists(st.integers(0, len(bodies) - 1), min_size=1, max_size=6))
    marks = data.draw(st.binary(min_size=len(positions), max_size=len(positions)))
    marks = bytes(mark & 1 for mark in marks)
    start = data.draw(st.integers(0, len(positions)))
    stop = data.draw(st.integers(start, len(positions)))
    out = BytesWriter()
    run = a_run(messages, positions, marks)
    delivery_encoder.encode_deliveries(out, 7, b"tag", 1 << 40, run, start, stop, frame_max)
    found = deliveries(out.getvalue())
    assert len(found) == stop - start
    for at, (method, block, raw, sizes) in enumerate(found, start):
        assert isinstance(method, commands.Basic.Deliver)
        assert (method.exchange, method.routing_key) == (exchange, key)
        assert (method.consumer_tag, method.redelivered) == ("tag", marks[at] == 1)
        assert method.delivery_tag == (1 << 40) + at - start
        assert (block, raw) == (PROPERTIES, bodies[positions[at]])
        assert all(size <= frame_max for size in sizes)
        assert all(size == frame_max for size in sizes[:-1])


def test_all_frames_of_a_run_are_on_its_channel() -> None:
    out = BytesWriter()
    run = a_run([message(b"x" * 50)], [0], b"\x00")
    delivery_encoder.encode_deliveries(out, 65535, b"", 1, run, 0, 1, 40)
    assert [channel for channel, _, _ in frames(out.getvalue())] == [65535] * 4


@pytest.mark.parametrize("size", [0, 1, 47, 48, 49, 131064, 131065, LARGE_BYTES, 3_000_001])
def test_bodies_of_any_size_are_split_by_frame_max(size: int) -> None:
    data = bytes(at % 251 for at in range(size))
    out = BytesWriter()
    rest = delivery_encoder.encode_deliveries(
        out, 1, b"c", 1, a_run([message(data)], [0], b"\x01"), 0, 1, 131072
    )
    assert (rest is not None) == (size >= LARGE_BYTES)
    while rest is not None and rest.left > 0:
        frames_of_piece = rest.take(OUTPUT_FLUSH_BYTES)
        assert len(frames_of_piece) <= OUTPUT_FLUSH_BYTES
        out.write(frames_of_piece)
    ((_, block, found, sizes),) = deliveries(out.getvalue())
    assert (block, found) == (PROPERTIES, data)
    assert len(sizes) == -(-size // 131064)


def test_get_ok_carries_one_message_and_the_count_left() -> None:
    out = BytesWriter()
    run = a_run([message(b"no"), message(b"yes")], [0, 1], b"\x00\x01")
    delivery_encoder.encode_get_ok(out, 3, 9, run, 1, (1 << 32) - 1, 4096)
    ((method, block, data, _),) = deliveries(out.getvalue())
    assert isinstance(method, commands.Basic.GetOk)
    assert (method.delivery_tag, method.redelivered) == (9, True)
    assert (method.exchange, method.routing_key) == ("ex", "key")
    assert method.message_count == (1 << 32) - 1
    assert (block, data) == (PROPERTIES, b"yes")


def test_only_redeliveries_say_how_often_they_were_handed_out() -> None:
    run = a_run([message(b"a"), message(b"b"), message(b"c")], [0, 1, 2], b"\x00\x01\x01")
    run.counts = bytes(8) + b"\x00\x00\x00\x02\x00\x00\x00\x05" + bytes(7) + b"\x01"
    out = BytesWriter()
    delivery_encoder.encode_deliveries(out, 1, b"c", 1, run, 0, 3, 4096)
    contents = deliveries(out.getvalue())
    assert contents[0][1] == PROPERTIES
    assert [decode_headers(block) for _, block, _, _ in contents] == [
        {},
        {"x-delivery-count": 2, "x-acquired-count": 5},
        {"x-acquired-count": 1},
    ]
    assert [data for _, _, data, _ in contents] == [b"a", b"b", b"c"]
    got = BytesWriter()
    delivery_encoder.encode_get_ok(got, 1, 1, run, 1, 0, 4096)
    ((_, block, data, _),) = deliveries(got.getvalue())
    assert (data, decode_headers(block)["x-delivery-count"]) == (b"b", 2)


@pytest.mark.parametrize("room", [0, -1])
def test_counts_that_do_not_fit_the_header_frame_are_left_out(room: int) -> None:
    text = b"x" * 4000
    properties = b"\x20\x00" + (len(text) + 7).to_bytes(4, "big") + b"\x01hS"
    properties += len(text).to_bytes(4, "big") + text
    run = a_run([Publish(5, route("", "q"), False, False, properties, b"b")], [0], b"\x01")
    run.counts = b"\x00\x00\x00\x02\x00\x00\x00\x05"
    added = len(b"\x10x-delivery-countl") + len(b"\x10x-acquired-countl") + 16
    frame_max = 20 + len(properties) + added + room
    out = BytesWriter()
    delivery_encoder.encode_deliveries(out, 1, b"c", 1, run, 0, 1, frame_max)
    assert all(len(raw) <= frame_max for _, _, raw in frames(out.getvalue()))
    ((_, block, _, _),) = deliveries(out.getvalue())
    assert ("x-delivery-count" in decode_headers(block)) == (room == 0)
    assert decode_headers(block)["h"] == text.decode()


def test_return_carries_the_message_back() -> None:
    out = BytesWriter()
    delivery_encoder.encode_return(out, message(b"x" * 5000), 312, b"NO_ROUTE", 4096)
    data = out.getvalue()
    ((method, block, raw, sizes),) = deliveries(data)
    assert isinstance(method, commands.Basic.Return)
    assert (method.reply_code, method.reply_text) == (312, "NO_ROUTE")
    assert (method.exchange, method.routing_key) == ("ex", "key")
    assert (block, raw, sizes) == (PROPERTIES, b"x" * 5000, [4096, 920])
    assert {channel for channel, _, _ in frames(data)} == {5}


def test_confirms_read_back() -> None:
    out = BytesWriter()
    delivery_encoder.encode_ack(out, 4, 7, True)
    delivery_encoder.encode_nack(out, 4, 8, False)
    delivery_encoder.encode_ack(out, 4, 1 << 62, False)
    found = [
        (channel, value.name, value.delivery_tag, value.multiple)
        for channel, value, _ in frames(out.getvalue())
    ]
    assert found == [
        (4, "Basic.Ack", 7, True),
        (4, "Basic.Nack", 8, False),
        (4, "Basic.Ack", 1 << 62, False),
    ]


def test_a_frame_max_without_room_is_a_bug() -> None:
    run = a_run([message(b"x")], [0], b"\x00")
    with pytest.raises(AssertionError):
        delivery_encoder.encode_deliveries(BytesWriter(), 1, b"", 1, run, 0, 1, 8)


def test_the_heartbeat_constant_is_a_heartbeat() -> None:
    ((channel, value, _),) = frames(HEARTBEAT_FRAME)
    assert (channel, value.name) == (0, "Heartbeat")
