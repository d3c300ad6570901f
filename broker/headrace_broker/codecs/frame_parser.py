"""Turns a client's bytes into whole messages, acknowledgements and methods.

The parser is total: whatever arrives, in whatever pieces, it answers with events, and what breaks
the protocol becomes a last event `Violation`. A message whose three frames stand together in one
chunk, the common case, is sliced out of it at once; everything else takes the frame-by-frame path,
which is also the one that finds fault.

Memory: at most one incomplete frame, plus for each channel the content whose frames have not all
arrived (body_bytes_max each, partial_bytes_max together).

Source: AMQP 0-9-1 specification, sections 2.3.5, 4.2.2 to 4.2.7; reply codes from its constants.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from headrace_broker.codecs.content import Content, publish_of
from headrace_broker.codecs.event import (
    ContentTooLarge,
    Event,
    Heartbeat,
    Method,
    ProtocolHeader,
    Violation,
    settled,
)
from headrace_broker.codecs.field import properties_problem, short_string_end
from headrace_broker.codecs.frame import (
    BASIC_ACK,
    BASIC_CONTENT,
    BASIC_NACK,
    BASIC_PUBLISH,
    BASIC_REJECT,
    CHANNEL_CLOSE_OK,
    CLASS_BASIC,
    CLASS_CONNECTION,
    CONTENT_HEADER_BYTES,
    FRAME_BODY,
    FRAME_END,
    FRAME_ENVELOPE_BYTES,
    FRAME_EXCESS_BYTES,
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    PROTOCOL_HEADER,
)
from headrace_broker.model.limits import CHANNELS_MAX, PARTIAL_CONTENT_BYTES_MAX
from headrace_broker.model.reply_code import (
    CHANNEL_ERROR,
    COMMAND_INVALID,
    FRAME_ERROR,
    RESOURCE_ERROR,
    SYNTAX_ERROR,
    UNEXPECTED_FRAME,
)

_PUBLISH_METHOD: Final = 40
_SIZE_MASK: Final = 0xFFFFFFFF
_INT64_MAX: Final = (1 << 63) - 1


@final
class FrameParser:
    """Bytes in, events out; incomplete frames wait for the next chunk."""

    def __init__(
        self, frame_max: i64, body_bytes_max: i64, channel_max: i64 = CHANNELS_MAX
    ) -> None:
        self.frame_max = frame_max  # bytes of a frame with its envelope, above 8; may be changed
        # how many channels may have an unfinished content; may be changed (tune). Their numbers are
        # free, and how many are open is not known here.
        self.channel_max = channel_max
        self.body_bytes_max = body_bytes_max  # bytes, else `ContentTooLarge`; may be changed
        self.partial_bytes_max: i64 = PARTIAL_CONTENT_BYTES_MAX  # of all channels; may be changed
        self.buffered_bytes: i64 = 0  # bytes held between feeds
        self.missing_bytes: i64 = 0  # announced bytes until nothing is unfinished
        self.closed = False  # nothing more is parsed, after a `Violation` or wrong header
        self._greeted = False
        self._rest = BytesWriter()
        self._rest_needed: i64 = 0  # with fewer bytes in _rest than this no progress is possible
        self._contents: dict[int, Content] = {}
        self._content_bytes: i64 = 0
        self._content_missing: i64 = 0
        self._properties = b"\x00\x00"  # the last valid property block: most publishers repeat it

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes of the connection, in any split; return events in wire order.

        After a `Violation`, which is the last one, always an empty list.
        """
        out: list[Event] = []
        if self.closed:
            return out
        buf = data
        if len(self._rest) > 0:
            self._rest.write(data)
            if len(self._rest) < self._rest_needed:
                self._count()
                return out
            buf = self._rest.getvalue()
            self._rest = BytesWriter()
        pos: i64 = 0
        if not self._greeted:
            pos = self._protocol_header(buf, out)
        if self._greeted and pos >= 0:
            pos = self._frames(buf, pos, out)
        if pos < 0:
            self._contents = {}
            self._content_bytes = 0
            self._content_missing = 0
        elif pos < len(buf):
            self._rest.write(buf[pos:])
        self._count()
        return out

    def discard(self) -> None:
        """Stop parsing and drop incomplete frames: the connection is gone."""
        self.closed = True
        self._rest = BytesWriter()
        self._contents = {}
        self._content_bytes = 0
        self._content_missing = 0
        self._count()

    def _count(self) -> None:
        rest: i64 = len(self._rest)
        self.buffered_bytes = rest + self._content_bytes
        self.missing_bytes = self._content_missing
        if rest > 0:
            self.missing_bytes += max(self._rest_needed - rest, 0)

    def _protocol_header(self, buf: bytes, out: list[Event]) -> i64:
        """Take the protocol header; returns the offset after it, -1 when it closes the parser."""
        size: i64 = len(PROTOCOL_HEADER)
        if len(buf) < size:
            self._rest_needed = size
            return 0
        header = buf[:size]
        out.append(ProtocolHeader(header))
        self._greeted = True
        self.closed = header != PROTOCOL_HEADER
        return -1 if self.closed else size

    def _frames(self, buf: bytes, pos: i64, out: list[Event]) -> i64:
        """Parse complete frames; returns where an incomplete one begins, -1 when closed."""
        size: i64 = len(buf)
        while size - pos >= FRAME_HEADER_BYTES:
            kind: i64 = buf[pos]
            channel: i64 = i64(read_i16_be(buf, pos + 1)) & 0xFFFF
            length: i64 = i64(read_i32_be(buf, pos + 3)) & _SIZE_MASK
            if not self._check_frame(kind, channel, length, out):
                return -1
            start: i64 = pos + FRAME_HEADER_BYTES
            end: i64 = start + length
            if end >= size:
                self._rest_needed = FRAME_ENVELOPE_BYTES + length
                return pos
            if buf[end] != FRAME_END:
                text = f"frame ends with byte 0x{buf[end]:02x} in place of 0xce"
                self._violate(out, FRAME_ERROR, text, channel)
                return -1
            pos = end + 1
            if kind == FRAME_METHOD:
                pos = self._method(buf, channel, start, end, out)
            elif kind == FRAME_HEADER:
                self._content_header(buf, channel, start, end, out)
            elif kind == FRAME_BODY:
                self._content_body(buf, channel, start, end, out)
            else:
                out.append(Heartbeat())
            if self.closed:
                return -1
        self._rest_needed = FRAME_HEADER_BYTES
        return pos

    def _check_frame(self, kind: i64, channel: i64, length: i64, out: list[Event]) -> bool:
        if kind == FRAME_HEARTBEAT:
            if length != 0:
                text = "a heartbeat frame carries nothing"
                return self._violate(out, FRAME_ERROR, text, channel)
            if channel != 0:
                text = f"a heartbeat frame on channel {int(channel)} belongs to channel 0"
                return self._violate(out, UNEXPECTED_FRAME, text, channel)
        elif kind < FRAME_METHOD or kind > FRAME_BODY:
            return self._violate(out, FRAME_ERROR, f"unknown frame type {int(kind)}", channel)
        if length > self.frame_max - FRAME_ENVELOPE_BYTES + FRAME_EXCESS_BYTES:
            byte_count: int = length + FRAME_ENVELOPE_BYTES
            text = f"a frame of {byte_count} bytes exceeds frame_max {int(self.frame_max)}"
            return self._violate(out, FRAME_ERROR, text, channel)
        return True

    def _method(self, buf: bytes, channel: i64, start: i64, end: i64, out: list[Event]) -> i64:
        """Parse a method frame; returns the offset after it or the whole message it begins."""
        if end - start < 4:
            text = f"a method frame of {int(end - start)} bytes cannot hold class and method id"
            self._violate(out, FRAME_ERROR, text, channel)
            return end
        index: i64 = i64(read_i32_be(buf, start)) & _SIZE_MASK
        if len(self._contents) > 0 and channel in self._contents:
            # The answer to our channel.close may cut a content short; nothing else may.
            if index != CHANNEL_CLOSE_OK:
                text = f"a method frame on channel {int(channel)} amid the content of basic.publish"
                self._violate(out, UNEXPECTED_FRAME, text, channel, CLASS_BASIC, _PUBLISH_METHOD)
                return end
            self._forget(self._contents[channel])
        class_id: i64 = index >> 16
        if (class_id == CLASS_CONNECTION) != (channel == 0):
            self._misplaced(channel, index, out)
        elif index == BASIC_PUBLISH:
            return self._publish(buf, channel, start, end, out)
        elif index in (BASIC_ACK, BASIC_NACK, BASIC_REJECT):
            self._settle(buf, channel, index, start, end, out)
        else:
            out.append(Method(channel, buf[start:end]))
        return end + 1

    def _misplaced(self, channel: i64, index: i64, out: list[Event]) -> None:
        class_id: i64 = index >> 16
        if channel == 0:
            code: i64 = CHANNEL_ERROR
            text = f"a method of class {int(class_id)} on channel 0, which is for class connection"
        else:
            code = COMMAND_INVALID
            text = f"a method of class connection on channel {int(channel)} in place of channel 0"
        self._violate(out, code, text, channel, class_id, index & 0xFFFF)

    def _settle(
        self, buf: bytes, channel: i64, index: i64, start: i64, end: i64, out: list[Event]
    ) -> None:
        if end - start != 13:
            text = f"arguments of {int(end - start - 4)} bytes where delivery tag and bits are 9"
            self._violate(out, SYNTAX_ERROR, text, channel, CLASS_BASIC, index & 0xFFFF)
            return
        out.append(settled(buf, start + 4, channel, index))

    def _publish(self, buf: bytes, channel: i64, start: i64, end: i64, out: list[Event]) -> i64:
        """Parse basic.publish: u16 reserved, exchange, routing key, bits."""
        route: i64 = start + 6
        route_end: i64 = short_string_end(buf, route, end)
        if route_end >= 0:
            route_end = short_string_end(buf, route_end, end)
        if route_end != end - 1:
            text = "exchange, routing key and bits do not fill the frame exactly"
            self._violate(out, SYNTAX_ERROR, text, channel, CLASS_BASIC, _PUBLISH_METHOD)
            return end
        pos = self._whole_content(buf, channel, route, route_end, out)
        if pos < 0:
            if len(self._contents) >= self.channel_max:
                text = f"contents under way on more channels than channel_max {len(self._contents)}"
                self._violate(out, CHANNEL_ERROR, text, channel, CLASS_BASIC, _PUBLISH_METHOD)
                return end
            self._contents[channel] = Content(channel, buf[route:route_end], buf[route_end])
            return end + 1
        return pos

    def _whole_content(
        self, buf: bytes, channel: i64, route: i64, route_end: i64, out: list[Event]
    ) -> i64:
        """Take header and body if they follow the publish method in one frame each.

        Returns the offset after the body; -1, nothing done, when a part is missing, split or wrong.
        """
        size: i64 = len(buf)
        header: i64 = route_end + 2 + FRAME_HEADER_BYTES
        if size < header + CONTENT_HEADER_BYTES:
            return -1
        length: i64 = i64(read_i32_be(buf, header - 4)) & _SIZE_MASK
        header_end: i64 = header + length
        if (
            buf[header - 7] != FRAME_HEADER
            or (i64(read_i16_be(buf, header - 6)) & 0xFFFF) != channel
            or length < CONTENT_HEADER_BYTES + 2
            or length > self.frame_max - FRAME_ENVELOPE_BYTES + FRAME_EXCESS_BYTES
            or header_end >= size
            or buf[header_end] != FRAME_END
            or read_i32_be(buf, header) != BASIC_CONTENT
        ):
            return -1
        body_bytes: i64 = read_i64_be(buf, header + 4)
        if body_bytes < 0 or body_bytes > self.body_bytes_max:
            return -1
        pos: i64 = header_end + 1
        body = b""
        if body_bytes > 0:
            body_start: i64 = pos + FRAME_HEADER_BYTES
            body_end: i64 = body_start + body_bytes
            if (
                body_end >= size
                or buf[pos] != FRAME_BODY
                or (i64(read_i16_be(buf, pos + 1)) & 0xFFFF) != channel
                or (i64(read_i32_be(buf, pos + 3)) & _SIZE_MASK) != body_bytes
                or body_bytes > self.frame_max - FRAME_ENVELOPE_BYTES + FRAME_EXCESS_BYTES
                or buf[body_end] != FRAME_END
            ):
                return -1
            body = buf[body_start:body_end]
            pos = body_end + 1
        properties = buf[header + CONTENT_HEADER_BYTES : header_end]
        if properties != self._properties:
            if properties_problem(properties, 0, len(properties)) != "":
                return -1
            self._properties = properties
        bits: i64 = buf[route_end]
        out.append(publish_of(channel, buf[route:route_end], bits, self._properties, body))
        return pos

    def _content_header(
        self, buf: bytes, channel: i64, start: i64, end: i64, out: list[Event]
    ) -> None:
        content = self._content_of(channel, "header", out)
        if content is None:
            return
        if content.missing >= 0:
            text = f"a second content header with {int(content.missing)} bytes of body to come"
            self._fault(out, UNEXPECTED_FRAME, text, channel)
        elif end - start < CONTENT_HEADER_BYTES + 2:
            text = f"a content header of {int(end - start)} bytes is too short"
            self._fault(out, FRAME_ERROR, text, channel)
        elif (i64(read_i16_be(buf, start)) & 0xFFFF) != CLASS_BASIC:
            class_id: i64 = i64(read_i16_be(buf, start)) & 0xFFFF
            text = f"a content header of class {int(class_id)} after basic.publish"
            self._fault(out, UNEXPECTED_FRAME, text, channel)
        elif read_i16_be(buf, start + 2) != 0:
            self._fault(out, SYNTAX_ERROR, "the weight of a content header is not 0", channel)
        else:
            problem = properties_problem(buf, start + CONTENT_HEADER_BYTES, end)
            if problem != "":
                self._fault(out, SYNTAX_ERROR, problem, channel)
                return
            self._begin_body(content, read_i64_be(buf, start + 4), out)
            if not content.skipped:
                content.properties = buf[start + CONTENT_HEADER_BYTES : end]
                self._hold(content, len(content.properties), out)
                self._finish_if_whole(content, out)

    def _begin_body(self, content: Content, size: i64, out: list[Event]) -> None:
        if 0 <= size <= self.body_bytes_max:
            content.missing = size
            self._content_missing += size
            return
        announced: int = size
        if size < 0:
            announced += 1 << 64
            size = _INT64_MAX
        content.missing = size
        content.skipped = True
        out.append(ContentTooLarge(content.channel, announced))

    def _content_body(
        self, buf: bytes, channel: i64, start: i64, end: i64, out: list[Event]
    ) -> None:
        content = self._content_of(channel, "body", out)
        if content is None:
            return
        if content.missing < 0:
            text = "a content body frame where the content header of basic.publish is due"
            self._fault(out, UNEXPECTED_FRAME, text, channel)
            return
        size: i64 = end - start
        if size > content.missing:
            text = f"a body frame of {int(size)} bytes where {int(content.missing)} are left"
            self._fault(out, UNEXPECTED_FRAME, text, channel)
            return
        content.missing -= size
        if not content.skipped and size > 0:
            self._content_missing -= size
            content.add(buf[start:end])
            self._hold(content, size, out)
        self._finish_if_whole(content, out)

    def _content_of(self, channel: i64, what: str, out: list[Event]) -> Content | None:
        if channel == 0:
            self._violate(out, CHANNEL_ERROR, f"a content {what} frame on channel 0", channel)
            return None
        content = self._contents.get(channel)
        if content is None:
            text = f"a content {what} frame on channel {int(channel)} without basic.publish"
            self._violate(out, UNEXPECTED_FRAME, text, channel)
        return content

    def _hold(self, content: Content, size: i64, out: list[Event]) -> None:
        content.held += size
        self._content_bytes += size
        if self._content_bytes > self.partial_bytes_max:
            text = f"unfinished contents exceed {int(self.partial_bytes_max)} bytes"
            self._fault(out, RESOURCE_ERROR, text, content.channel)

    def _finish_if_whole(self, content: Content, out: list[Event]) -> None:
        if content.missing == 0 and not self.closed:
            self._forget(content)
            size: i64 = content.held - len(content.properties)
            if not content.skipped and size > self.body_bytes_max:  # the bound has changed since
                out.append(ContentTooLarge(content.channel, int(size)))
            elif not content.skipped:
                out.append(content.publish())

    def _forget(self, content: Content) -> None:
        self._content_bytes -= content.held
        if not content.skipped and content.missing > 0:  # it was cut short
            self._content_missing -= content.missing
        del self._contents[content.channel]

    def _fault(self, out: list[Event], code: i64, text: str, channel: i64) -> None:
        self._violate(out, code, text, channel, CLASS_BASIC, _PUBLISH_METHOD)

    def _violate(
        self,
        out: list[Event],
        code: i64,
        text: str,
        channel: i64,
        class_id: i64 = 0,
        method_id: i64 = 0,
    ) -> bool:
        self.closed = True
        out.append(Violation(code, text, channel, class_id, method_id))
        return False
