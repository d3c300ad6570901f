"""Events of the frame parser, besides whole messages (`Publish`)."""

from __future__ import annotations

from typing import Final, TypeAlias, final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64, mypyc_attr

from headrace_broker.codecs.frame import BASIC_ACK, BASIC_NACK
from headrace_broker.model.message import Publish

_DELIVERY_TAG_MAX: Final = (1 << 63) - 1


@final
class ProtocolHeader:
    """The first 8 bytes of a connection."""

    def __init__(self, data: bytes) -> None:
        self.data = data  # unless they are `frame.PROTOCOL_HEADER` nothing more is parsed


@mypyc_attr(acyclic=True)
@final
class Method:
    """A method that the parser leaves to `codecs.method.decode_method`."""

    def __init__(self, channel: i64, payload: bytes) -> None:
        self.channel = channel  # 0 to 65535; 0 exactly for class connection
        self.payload = payload  # class id, method id and arguments, at least 4 bytes
        self.index: i64 = i64(read_i32_be(payload, 0)) & 0xFFFFFFFF  # class id << 16 | method id


@mypyc_attr(acyclic=True)
@final
class Acked:
    """basic.ack, or several of consecutive tags.

    Attributes:
        channel: 1 to 65535.
        first: the first tag; `delivery_tag` for one basic.ack.
        delivery_tag: 0 to 2**63 - 1; larger ones, never given out, read as 2**63 - 1.
        multiple: up to and including this tag; with tag 0, all that are outstanding.
    """

    def __init__(self, channel: i64, delivery_tag: i64, multiple: bool) -> None:
        self.channel = channel
        self.first = delivery_tag
        self.delivery_tag = delivery_tag
        self.multiple = multiple


@mypyc_attr(acyclic=True)
@final
class Rejected:
    """basic.nack or basic.reject."""

    def __init__(
        self, channel: i64, delivery_tag: i64, multiple: bool, requeue: bool, index: i64
    ) -> None:
        self.channel = channel  # 1 to 65535
        self.delivery_tag = delivery_tag  # as in `Acked`
        self.multiple = multiple  # as in `Acked`; always False for basic.reject
        self.requeue = requeue  # back to the queue, else dead-letter or drop
        self.index = index  # BASIC_NACK or BASIC_REJECT


@final
class Heartbeat:
    """A heartbeat frame."""

    def __init__(self) -> None:
        pass


@final
class ContentTooLarge:
    """A publish announced a body above body_bytes_max: close the channel with reply code 406.

    The parser skips the content's frames; the connection lives.
    """

    def __init__(self, channel: i64, size: int) -> None:
        self.channel = channel  # 1 to 65535
        self.size = size  # announced bytes, up to 2**64 - 1


@final
class Violation:
    """The stream broke the protocol: the last event, the parser takes no more bytes."""

    def __init__(self, code: i64, text: str, channel: i64, class_id: i64, method_id: i64) -> None:
        self.code = code  # a hard reply code of `model.reply_code`
        self.text = text  # what was wrong
        self.channel = channel  # channel of the offending frame
        self.class_id = class_id  # class of the method at fault, 0 when there is none
        self.method_id = method_id  # method at fault, 0 when there is none


Event: TypeAlias = (
    Publish | Acked | Rejected | Method | Heartbeat | ContentTooLarge | ProtocolHeader | Violation
)


def settled(buf: bytes, pos: i64, channel: i64, index: i64) -> Event:
    """Return the event of a BASIC_ACK, NACK or REJECT, whose delivery tag stands at `pos`."""
    tag: i64 = read_i64_be(buf, pos)
    if tag < 0:
        tag = _DELIVERY_TAG_MAX
    bits: i64 = buf[pos + 8]
    if index == BASIC_ACK:
        return Acked(channel, tag, (bits & 1) != 0)
    if index == BASIC_NACK:
        return Rejected(channel, tag, (bits & 1) != 0, (bits & 2) != 0, index)
    return Rejected(channel, tag, False, (bits & 1) != 0, index)
