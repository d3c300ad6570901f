"""Turns a broker's bytes into deliveries, confirms and methods, for clients with one channel.

Deliveries come without exchange, routing key and properties: load generators do not look at them.
`FrameParser` is the other side's.

Source: AMQP 0-9-1 specification, sections 2.3.5, 4.2.2 to 4.2.7.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from headrace_broker.codecs.event import Event, Method, settled
from headrace_broker.codecs.frame import (
    BASIC_ACK,
    BASIC_DELIVER,
    BASIC_NACK,
    CONTENT_HEADER_BYTES,
    FRAME_BODY,
    FRAME_END,
    FRAME_ENVELOPE_BYTES,
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
    FRAME_METHOD,
)

_SIZE_MASK: Final = 0xFFFFFFFF
_SETTLE_BYTES: Final = 13  # of basic.ack and basic.nack: ids, delivery tag, bits
_HEADER_BYTES_MAX: Final = 1 << 24  # of a content header: brokers send it whole, whatever frame_max
_BODY_BYTES_MAX: Final = 1 << 30  # more than brokers take


@final
class Delivered:
    """A message that a consumer gets."""

    def __init__(self, delivery_tag: i64) -> None:
        self.delivery_tag = delivery_tag
        self.body = b""


Reply: TypeAlias = Delivered | Event


@final
class ReplyParser:
    """Bytes in, events out; incomplete frames wait for the next chunk.

    It holds one frame that is incomplete at most, and one body.
    """

    def __init__(self, frame_max: i64) -> None:
        self.frame_max = frame_max  # bytes of a frame with its envelope
        self._rest = b""
        self._begun: Delivered | None = None  # whose content has not all come
        self._parts: list[bytes] = []  # of its body
        self._missing: i64 = -1  # bytes of that to come, -1 before its content header

    def feed(self, data: bytes) -> list[Reply]:
        """Take the next bytes of the connection, in any split; return events in their order.

        Raises:
            ValueError: they are not what a broker sends.
        """
        out: list[Reply] = []
        buf = self._rest + data if self._rest else data
        size: i64 = len(buf)
        pos: i64 = 0
        while size - pos >= FRAME_ENVELOPE_BYTES:
            kind: i64 = buf[pos]
            length: i64 = i64(read_i32_be(buf, pos + 3)) & _SIZE_MASK
            most: i64 = _HEADER_BYTES_MAX if kind == FRAME_HEADER else self.frame_max
            if length > most - FRAME_ENVELOPE_BYTES:
                raise ValueError(f"a frame of {int(length)} bytes exceeds the maximum")
            start: i64 = pos + FRAME_HEADER_BYTES
            end: i64 = start + length
            if end >= size:
                break
            if buf[end] != FRAME_END:
                raise ValueError("a frame does not end as it should")
            channel: i64 = i64(read_i16_be(buf, pos + 1)) & 0xFFFF
            if kind == FRAME_METHOD:
                self._method(buf, channel, start, end, out)
            else:
                self._content(buf, kind, start, end, out)
            pos = end + 1
        self._rest = buf[pos:]
        return out

    def _content(self, buf: bytes, kind: i64, start: i64, end: i64, out: list[Reply]) -> None:
        if kind == FRAME_HEADER:
            if self._begun is None or self._missing >= 0 or end - start < CONTENT_HEADER_BYTES:
                raise ValueError("a content header without basic.deliver, or too short")
            self._missing = read_i64_be(buf, start + 4)
            if self._missing < 0 or self._missing > _BODY_BYTES_MAX:
                raise ValueError("a body of more bytes than may be")
            self._finish_if_whole(out)
        elif kind == FRAME_BODY:
            self._missing -= end - start
            if self._begun is None or self._missing < 0:
                raise ValueError("a body without a content header, or longer than it says")
            if end > start:
                self._parts.append(buf[start:end])
            self._finish_if_whole(out)

    def _method(self, buf: bytes, channel: i64, start: i64, end: i64, out: list[Reply]) -> None:
        size: i64 = end - start
        index: i64 = i64(read_i32_be(buf, start)) & _SIZE_MASK if size >= 4 else 0
        if index == BASIC_DELIVER:
            tag: i64 = start + 5 + buf[start + 4]  # behind the consumer tag
            if tag + 8 > end:
                raise ValueError("basic.deliver is too short")
            if self._begun is not None:
                raise ValueError("basic.deliver amid the content of another one")
            self._begun = Delivered(read_i64_be(buf, tag))
            self._missing = -1
        elif index in (BASIC_ACK, BASIC_NACK):
            if size != _SETTLE_BYTES:
                raise ValueError("a confirm is too short or too long")
            out.append(settled(buf, start + 4, channel, index))
        elif index == 0:
            raise ValueError("a method without ids")
        else:
            out.append(Method(channel, buf[start:end]))

    def _finish_if_whole(self, out: list[Reply]) -> None:
        begun = self._begun
        if self._missing != 0 or begun is None:
            return
        parts = self._parts
        if len(parts) == 1:
            begun.body = parts[0]
        elif parts:
            begun.body = b"".join(parts)
        if parts:
            self._parts = []
        out.append(begun)
        self._begun = None
