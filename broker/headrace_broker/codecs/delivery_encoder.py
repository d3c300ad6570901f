"""Encodes what carries messages to a client, straight from batch bytes into the socket's buffer.

All method frames here fit into the smallest legal frame_max (4,096). A header frame whose property
block is larger than the receiver's frame_max is sent whole, as RabbitMQ does: AMQP cannot split it.

Source: AMQP 0-9-1 specification, sections 1.8.3.9 (return) to 1.8.3.15, 2.3.5.2 (content).
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import (
    BytesWriter,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64

from headrace_broker.codecs.batch import message_start, properties_start
from headrace_broker.codecs.frame import (
    BASIC_ACK,
    BASIC_CONTENT,
    BASIC_DELIVER,
    BASIC_GET_OK,
    BASIC_NACK,
    BASIC_RETURN,
    CONTENT_HEADER_BYTES,
    FRAME_BODY,
    FRAME_END,
    FRAME_ENVELOPE_BYTES,
    FRAME_HEADER,
    FRAME_METHOD,
)
from headrace_broker.codecs.redelivery import with_counts
from headrace_broker.model.limits import LARGE_BYTES
from headrace_broker.model.message import COUNTS_BYTES, DeliveryRun, Publish

_COPY_BYTES_MAX: Final = 48  # above, a slice is quicker than word by word


def encode_deliveries(
    out: BytesWriter,
    channel: i64,  # 1 to 65535
    consumer_tag: bytes,  # 0 to 255 bytes
    first_tag: i64,  # delivery tag of the message at `start`; the next ones count up
    run: DeliveryRun,  # whose messages; its blob holds a checked batch
    start: i64,  # first index into `run.positions`
    stop: i64,  # index after the last
    frame_max: i64,  # bytes of a frame with its envelope, above 8; bodies are split by it
) -> BodyFrames | None:
    """Append basic.deliver with header and body for each of `run.positions[start:stop]`.

    Returns the body of a large message, the only one then, whose frames are to follow.
    """
    if len(run.counts) > 0:
        return _encode_redeliveries(
            out, channel, consumer_tag, first_tag, run, start, stop, frame_max
        )
    rest: BodyFrames | None = None
    blob = run.blob
    base = run.base
    positions = run.positions
    redelivered = run.redelivered
    tag: i64 = first_tag
    tag_bytes: i64 = len(consumer_tag)
    for at in range(start, stop):
        position: i64 = positions[at]
        begin: i64 = message_start(blob, base, position)
        end: i64 = message_start(blob, base, position + 1)
        properties: i64 = properties_start(blob, begin)
        _begin_method(out, channel, BASIC_DELIVER, 10 + tag_bytes + properties - begin)
        out.append(tag_bytes)
        out.write(consumer_tag)
        write_i64_be(out, tag)
        out.append(redelivered[at])
        _copy(out, blob, begin, properties)
        out.append(FRAME_END)
        assert rest is None, "a large message has others behind it"
        rest = _write_content(out, channel, blob, properties, end, frame_max)
        tag += 1
    return rest


def _encode_redeliveries(
    out: BytesWriter,
    channel: i64,
    consumer_tag: bytes,
    first_tag: i64,
    run: DeliveryRun,
    start: i64,
    stop: i64,
    frame_max: i64,
) -> BodyFrames | None:
    """As `encode_deliveries`, apart from it: some of these messages were delivered before."""
    blob = run.blob
    rest: BodyFrames | None = None
    for at in range(start, stop):
        position: i64 = run.positions[at]
        begin: i64 = message_start(blob, run.base, position)
        end: i64 = message_start(blob, run.base, position + 1)
        properties: i64 = properties_start(blob, begin)
        _begin_method(out, channel, BASIC_DELIVER, 10 + len(consumer_tag) + properties - begin)
        out.append(len(consumer_tag))
        out.write(consumer_tag)
        write_i64_be(out, first_tag + at - start)
        out.append(run.redelivered[at])
        _copy(out, blob, begin, properties)
        out.append(FRAME_END)
        assert rest is None, "a large message has others behind it"
        rest = _write_counted(out, channel, run, at, properties, end, frame_max)
    return rest


def encode_get_ok(
    out: BytesWriter,
    channel: i64,  # 1 to 65535
    tag: i64,
    run: DeliveryRun,  # whose message; its blob holds a checked batch
    at: i64,  # index into `run.positions`
    message_count: i64,  # messages left in the queue, 0 to 2**32 - 1
    frame_max: i64,  # as in `encode_deliveries`
) -> BodyFrames | None:
    """Append basic.get-ok with header and body for `run.positions[at]`; as `encode_deliveries`."""
    blob = run.blob
    position: i64 = run.positions[at]
    begin: i64 = message_start(blob, run.base, position)
    properties: i64 = properties_start(blob, begin)
    _begin_method(out, channel, BASIC_GET_OK, 13 + properties - begin)
    write_i64_be(out, tag)
    out.append(run.redelivered[at])
    _copy(out, blob, begin, properties)
    _write_u16(out, message_count >> 16)
    _write_u16(out, message_count & 0xFFFF)
    out.append(FRAME_END)
    end: i64 = message_start(blob, run.base, position + 1)
    if len(run.counts) > 0:
        return _write_counted(out, channel, run, at, properties, end, frame_max)
    return _write_content(out, channel, blob, properties, end, frame_max)


def encode_return(
    out: BytesWriter, publish: Publish, code: i64, text: bytes, frame_max: i64
) -> BodyFrames | None:
    """Append basic.return with header and body, for NO_ROUTE or NO_CONSUMERS.

    `text` says why in 0 to 255 bytes; `frame_max` and what is returned are as in
    `encode_deliveries`.
    """
    channel = publish.channel
    properties = publish.properties
    _begin_method(out, channel, BASIC_RETURN, 3 + len(text) + len(publish.route))
    write_i16_be(out, i16(code))
    out.append(len(text))
    out.write(text)
    out.write(publish.route)
    out.append(FRAME_END)
    _begin_header(out, channel, len(properties), len(publish.body))
    out.write(properties)
    out.append(FRAME_END)
    return _write_body(out, channel, publish.body, 0, len(publish.body), frame_max)


def encode_ack(out: BytesWriter, channel: i64, tag: i64, multiple: bool) -> None:
    """Append basic.ack: a publish is confirmed, and with `multiple` all before it."""
    _begin_method(out, channel, BASIC_ACK, 9)
    write_i64_be(out, tag)
    out.append(1 if multiple else 0)
    out.append(FRAME_END)


def encode_nack(out: BytesWriter, channel: i64, tag: i64, multiple: bool) -> None:
    """Append basic.nack: a publish is refused, and with `multiple` all before it."""
    _begin_method(out, channel, BASIC_NACK, 9)
    write_i64_be(out, tag)
    out.append(1 if multiple else 0)
    out.append(FRAME_END)


def _write_u16(out: BytesWriter, value: i64) -> None:
    """Write 0 to 65535; `write_i16_be` takes signed numbers only."""
    write_i16_be(out, i16(value if value < 0x8000 else value - 0x10000))


def _begin_method(out: BytesWriter, channel: i64, index: i64, arguments: i64) -> None:
    """Write a method frame up to its arguments, which take `arguments` bytes."""
    out.append(FRAME_METHOD)
    _write_u16(out, channel)
    write_i32_be(out, i32(arguments + 4))
    write_i32_be(out, i32(index))


def _begin_header(out: BytesWriter, channel: i64, properties: i64, body: i64) -> None:
    """Write a header frame up to its property block."""
    out.append(FRAME_HEADER)
    _write_u16(out, channel)
    write_i32_be(out, i32(properties + CONTENT_HEADER_BYTES))
    write_i32_be(out, BASIC_CONTENT)
    write_i64_be(out, body)


def _write_content(
    out: BytesWriter, channel: i64, blob: bytes, pos: i64, end: i64, frame_max: i64
) -> BodyFrames | None:
    """Write header and body frames of a message whose properties' length stands at `pos`."""
    properties: i64 = i64(read_i32_be(blob, pos))
    body: i64 = pos + 4 + properties
    _begin_header(out, channel, properties, end - body)
    _copy(out, blob, pos + 4, body)
    out.append(FRAME_END)
    return _write_body(out, channel, blob, body, end, frame_max)


def _write_counted(
    out: BytesWriter, channel: i64, run: DeliveryRun, at: i64, pos: i64, end: i64, frame_max: i64
) -> BodyFrames | None:
    """As `_write_content`; the headers of one that was delivered before say how often.

    They do not where the frame has no room for it: what could be sent once can be sent again.
    """
    blob = run.blob
    body: i64 = pos + 4 + i64(read_i32_be(blob, pos))
    failed: i64 = i64(read_i32_be(run.counts, COUNTS_BYTES * at)) & 0xFFFFFFFF
    acquired: i64 = i64(read_i32_be(run.counts, COUNTS_BYTES * at + 4)) & 0xFFFFFFFF
    properties = blob[pos + 4 : body]
    if acquired > 0:
        counted = with_counts(properties, failed, acquired)
        if len(counted) + CONTENT_HEADER_BYTES + FRAME_ENVELOPE_BYTES <= frame_max:
            properties = counted
    _begin_header(out, channel, len(properties), end - body)
    out.write(properties)
    out.append(FRAME_END)
    return _write_body(out, channel, blob, body, end, frame_max)


def _copy(out: BytesWriter, blob: bytes, pos: i64, end: i64) -> None:
    """Write `blob[pos:end]`; a short piece without making an object of it."""
    if end - pos > _COPY_BYTES_MAX:
        out.write(blob[pos:end])
        return
    while end - pos >= 8:
        write_i64_be(out, read_i64_be(blob, pos))
        pos += 8
    while pos < end:
        out.append(blob[pos])
        pos += 1


def _write_body(
    out: BytesWriter, channel: i64, blob: bytes, pos: i64, end: i64, frame_max: i64
) -> BodyFrames | None:
    """Write `blob[pos:end]` as body frames; none for an empty body, nor for a large one."""
    if end - pos >= LARGE_BYTES:
        return BodyFrames(channel, blob, pos, end, frame_max)
    _write_frames(out, channel, blob, pos, end, frame_max)
    return None


def _write_frames(
    out: BytesWriter, channel: i64, blob: bytes, pos: i64, end: i64, frame_max: i64
) -> None:
    """Write `blob[pos:end]` as body frames."""
    part_max: i64 = frame_max - FRAME_ENVELOPE_BYTES
    assert part_max > 0, "frame_max leaves no room for a body"
    while pos < end:
        part_end: i64 = end if end - pos <= part_max else pos + part_max
        out.append(FRAME_BODY)
        _write_u16(out, channel)
        write_i32_be(out, i32(part_end - pos))
        _copy(out, blob, pos, part_end)
        out.append(FRAME_END)
        pos = part_end


@final
class BodyFrames:
    """The frames of a large body from offset `pos` on, made while the socket takes them."""

    def __init__(self, channel: i64, blob: bytes, pos: i64, end: i64, frame_max: i64) -> None:
        self.left = end - pos  # bytes of the body that are not in frames yet
        self._channel = channel
        self._blob = blob  # bytes in which the body stands
        self._end = end  # offset after it
        self._frame_max = frame_max  # as in `encode_deliveries`

    def take(self, bytes_max: i64) -> bytes:
        """Return the next frames, of so many bytes of the body at most, but one at least."""
        part: i64 = self._frame_max - FRAME_ENVELOPE_BYTES
        size: i64 = min(max(bytes_max // part, 1) * part, self.left)
        pos = self._end - self.left
        out = BytesWriter()
        _write_frames(out, self._channel, self._blob, pos, pos + size, self._frame_max)
        self.left -= size
        return out.getvalue()
