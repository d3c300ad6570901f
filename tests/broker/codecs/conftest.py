"""Builds AMQP bytes by hand, so that no codec is tested against itself."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import strategies as st

from headrace_broker.codecs.event import (
    Acked,
    ContentTooLarge,
    Event,
    Heartbeat,
    Method,
    ProtocolHeader,
    Rejected,
    Violation,
)
from headrace_broker.codecs.frame_parser import FrameParser
from headrace_broker.model.message import Publish

GREETING = b"AMQP\x00\x00\x09\x01"
PLAIN_PROPERTIES = b"\x10\x00\x02"  # delivery-mode 2
PROPERTY_BLOCKS = (
    b"\x00\x00",
    PLAIN_PROPERTIES,
    b"\x90\x00\x0atext/plain\x01",
    b"\x20\x40" + struct.pack(">I", 8) + b"\x01aS\x00\x00\x00\x01b" + struct.pack(">Q", 1 << 60),
    b"\x04\x80\x03c\xff1\x02id",
)


class Wire:
    """Frames and streams of frames."""

    greeting = GREETING
    properties = PLAIN_PROPERTIES

    @staticmethod
    def frame(kind: int, channel: int, payload: bytes, end: int = 0xCE) -> bytes:
        return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes((end,))

    @classmethod
    def method(cls, channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
        return cls.frame(1, channel, struct.pack(">HH", class_id, method_id) + arguments)

    @staticmethod
    def short(data: bytes) -> bytes:
        return bytes((len(data),)) + data

    @classmethod
    def publish(
        cls, channel: int, exchange: bytes = b"", key: bytes = b"key", bits: int = 0
    ) -> bytes:
        route = cls.short(exchange) + cls.short(key)
        return cls.method(channel, 60, 40, b"\x00\x00" + route + bytes((bits,)))

    @classmethod
    def header(
        cls, channel: int, size: int, properties: bytes = PLAIN_PROPERTIES, class_id: int = 60
    ) -> bytes:
        return cls.frame(2, channel, struct.pack(">HHQ", class_id, 0, size) + properties)

    @classmethod
    def bodies(cls, channel: int, body: bytes, part: int) -> list[bytes]:
        return [cls.frame(3, channel, body[at : at + part]) for at in range(0, len(body), part)]

    @classmethod
    def message(cls, channel: int, body: bytes, part: int = 1 << 16, **route: Any) -> list[bytes]:
        header = cls.header(channel, len(body))
        return [cls.publish(channel, **route), header, *cls.bodies(channel, body, part)]

    @staticmethod
    def shape(event: Event) -> tuple[Any, ...]:
        """Everything that an event says, comparable."""
        match event:
            case Publish():
                flags = (event.mandatory, event.immediate)
                return ("publish", event.channel, event.route, flags, event.properties, event.body)
            case Acked():
                return ("ack", event.channel, event.delivery_tag, event.multiple)
            case Rejected():
                bits = (event.multiple, event.requeue)
                return ("reject", event.channel, event.delivery_tag, bits, event.index)
            case Method():
                return ("method", event.channel, event.index, event.payload)
            case Heartbeat():
                return ("heartbeat",)
            case ContentTooLarge():
                return ("too large", event.channel, event.size)
            case ProtocolHeader():
                return ("protocol", event.data)
            case Violation():
                ids = (event.class_id, event.method_id)
                return ("violation", event.code, event.text, event.channel, ids)

    @classmethod
    def shapes(cls, parser: FrameParser, chunks: list[bytes]) -> list[tuple[Any, ...]]:
        """Feed `chunks` one by one; the shapes of all events."""
        return [cls.shape(event) for chunk in chunks for event in parser.feed(chunk)]

    @staticmethod
    def split(data: bytes, cuts: list[int]) -> list[bytes]:
        edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        return [data[start:stop] for start, stop in pairwise(edges)]

    @classmethod
    def unit(cls, draw: st.DrawFn, channel: int) -> tuple[list[bytes], tuple[Any, ...]]:
        """Frames on one channel that give one event, and its shape; the last frame gives it."""
        kind = draw(st.sampled_from(["publish"] * 4 + ["ack", "nack", "reject", "method"]))
        tag = draw(st.integers(0, (1 << 63) - 1))
        bits = draw(st.integers(0, 3))
        tagged = struct.pack(">QB", tag, bits)
        one, two = bits & 1 != 0, bits & 2 != 0
        if kind == "publish":
            body = draw(st.binary(max_size=40))
            exchange, key = draw(st.binary(max_size=6)), draw(st.binary(max_size=6))
            block = draw(st.sampled_from(PROPERTY_BLOCKS))
            frames = [
                cls.publish(channel, exchange, key, bits),
                cls.header(channel, len(body), block),
                *cls.bodies(channel, body, draw(st.sampled_from([7, 20, 50]))),
            ]
            route = cls.short(exchange) + cls.short(key)
            return frames, ("publish", channel, route, (one, two), block, body)
        if kind == "ack":
            return [cls.method(channel, 60, 80, tagged)], ("ack", channel, tag, one)
        if kind == "nack":
            shape = ("reject", channel, tag, (one, two), 60 << 16 | 120)
            return [cls.method(channel, 60, 120, tagged)], shape
        if kind == "reject":
            shape = ("reject", channel, tag, (False, one), 60 << 16 | 90)
            return [cls.method(channel, 60, 90, tagged)], shape
        payload = struct.pack(">HH", 60, 10) + tagged
        return [cls.frame(1, channel, payload)], ("method", channel, 60 << 16 | 10, payload)

    @classmethod
    def streams(cls) -> st.SearchStrategy[tuple[bytes, list[tuple[Any, ...]]]]:
        """Bytes of a connection on three channels, frames interleaved, and the events' shapes."""

        @st.composite
        def stream(draw: st.DrawFn) -> tuple[bytes, list[tuple[Any, ...]]]:
            lanes: list[list[tuple[bytes, tuple[Any, ...] | None]]] = []
            for channel in (1, 2, 300):
                lane: list[tuple[bytes, tuple[Any, ...] | None]] = []
                for _ in range(draw(st.integers(0, 4))):
                    frames, shape = cls.unit(draw, channel)
                    lane += [(frame, None) for frame in frames[:-1]]
                    lane.append((frames[-1], shape))
                lanes.append(lane)
            beats = draw(st.integers(0, 2))
            lanes.append([(cls.frame(8, 0, b""), ("heartbeat",))] * beats)
            data, shapes = GREETING, [("protocol", GREETING)]
            while lanes := [lane for lane in lanes if lane]:
                lane = lanes[draw(st.integers(0, len(lanes) - 1))]
                for _ in range(min(len(lane), draw(st.integers(1, 6)))):
                    frame, found = lane.pop(0)
                    data += frame
                    shapes += [found] if found else []
            return data, shapes

        return stream()


@pytest.fixture(scope="session")
def wire() -> type[Wire]:
    return Wire
