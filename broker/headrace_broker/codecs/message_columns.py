"""Columns of messages: for archives and leases alike.

Text stands as the bytes of its UTF-8, as `column_block` takes it; what is not UTF-8 is shown with
replacement characters, and stands as it is in the column `properties`.
"""

from __future__ import annotations

from typing import Any, Final, final

import msgspec
from librt.strings import read_i16_be, read_i64_be
from mypy_extensions import i64

from headrace_broker.codecs.batch import message_start, properties_start, properties_stop
from headrace_broker.codecs.column_block import BINARY, INT32, INT64, TIMESTAMP_MS, UTF8, Column
from headrace_broker.codecs.field import HEADERS_FLAG, properties_problem
from headrace_broker.codecs.header_values import header_values, timestamp_ms, value_start_end
from headrace_broker.model.limits import PROPERTIES_REMEMBERED_BYTES, PROPERTIES_REMEMBERED_MAX

MESSAGE_COLUMNS: Final[tuple[Column, ...]] = (
    ("exchange", UTF8),
    ("routing_key", UTF8),
    ("message_id", UTF8),
    ("correlation_id", UTF8),
    ("content_type", UTF8),
    ("content_encoding", UTF8),
    ("priority", INT32),
    ("headers", UTF8),  # JSON
    ("properties", BINARY),  # the property block as it was published
    ("payload", BINARY),
    ("payload_bytes", INT64),
    ("published_at", TIMESTAMP_MS),
)
INT32_MAX: Final = (1 << 31) - 1
TIMESTAMP_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999, after which readers fail

_CONTENT_TYPE: Final = 0x8000
_CONTENT_ENCODING: Final = 0x4000
_DELIVERY_MODE: Final = 0x1000
_PRIORITY: Final = 0x0800
_CORRELATION_ID: Final = 0x0400
_REPLY_TO: Final = 0x0200
_EXPIRATION: Final = 0x0100
_MESSAGE_ID: Final = 0x0080
_TIMESTAMP: Final = 0x0040


@final
class Properties:
    """Properties with columns of their own; None for absent ones."""

    def __init__(self) -> None:
        self.message_id: bytes | None = None
        self.correlation_id: bytes | None = None
        self.content_type: bytes | None = None
        self.content_encoding: bytes | None = None
        self.priority: int | None = None
        self.headers: bytes | None = None
        self.published_ms: int | None = None


@final
class MessageColumns:
    """Makes the columns of one reader: blocks of consecutive messages are often the same."""

    def __init__(self) -> None:
        self._known: dict[bytes, Properties] = {}
        self._route = b""
        self._exchange = b""
        self._key = b""

    def of(self, batch: bytes, byte_counts: list[int], full: list[bool] | None) -> list[list[Any]]:
        """Return the values of MESSAGE_COLUMNS; `full` says whose body is there, None for all."""
        count = len(byte_counts)
        exchanges: list[Any] = []
        keys: list[Any] = []
        found: list[Properties] = []
        blocks: list[Any] = []
        bodies: list[Any] = []
        start = message_start(batch, 0, 0)
        for position in range(count):
            route = batch[start : properties_start(batch, start)]
            if route != self._route:
                self._split(route)
            exchanges.append(self._exchange)
            keys.append(self._key)
            body = properties_stop(batch, start)
            block = batch[start + len(route) + 4 : body]
            found.append(self._decode(block))
            blocks.append(block)
            start = message_start(batch, 0, position + 1)
            bodies.append(batch[body:start] if full is None or full[position] else None)
        return [
            exchanges,
            keys,
            [each.message_id for each in found],
            [each.correlation_id for each in found],
            [each.content_type for each in found],
            [each.content_encoding for each in found],
            [each.priority for each in found],
            [each.headers for each in found],
            blocks,
            bodies,
            list[Any](byte_counts),
            [each.published_ms for each in found],
        ]

    def _split(self, route: bytes) -> None:
        middle: i64 = 1 + route[0]
        self._route = route
        self._exchange = _text(route[1:middle])
        self._key = _text(route[middle + 1 :])

    def _decode(self, block: bytes) -> Properties:
        found = self._known.get(block)
        if found is None:
            found = decode(block)
            if len(block) <= PROPERTIES_REMEMBERED_BYTES:
                if len(self._known) >= PROPERTIES_REMEMBERED_MAX:
                    self._known.clear()
                self._known[block] = found
        return found


def decode(block: bytes) -> Properties:
    """Return what of a property block has columns of its own; nothing of one that is malformed."""
    found = Properties()
    if len(block) < 2 or properties_problem(block, 0, len(block)):
        return found
    flags: i64 = i64(read_i16_be(block, 0)) & 0xFFFF
    pos: i64 = 2
    if flags & _CONTENT_TYPE:
        found.content_type = _short(block, pos)
        pos += 1 + block[pos]
    if flags & _CONTENT_ENCODING:
        found.content_encoding = _short(block, pos)
        pos += 1 + block[pos]
    if flags & HEADERS_FLAG:
        found.headers = msgspec.json.encode(header_values(block, pos))
        pos = value_start_end(block, pos)
    if flags & _DELIVERY_MODE:
        pos += 1
    if flags & _PRIORITY:
        found.priority = int(block[pos])
        pos += 1
    if flags & _CORRELATION_ID:
        found.correlation_id = _short(block, pos)
        pos += 1 + block[pos]
    if flags & _REPLY_TO:
        pos += 1 + block[pos]
    if flags & _EXPIRATION:
        pos += 1 + block[pos]
    if flags & _MESSAGE_ID:
        found.message_id = _short(block, pos)
        pos += 1 + block[pos]
    if flags & _TIMESTAMP:
        at = timestamp_ms(i64(read_i64_be(block, pos)))
        found.published_ms = int(at) if 0 <= at <= TIMESTAMP_MS_MAX else None
    return found


def _short(block: bytes, pos: i64) -> bytes:
    """Return the text of the short string at `pos`."""
    return _text(block[pos + 1 : pos + 1 + block[pos]])


def _text(data: bytes) -> bytes:
    return data if data.isascii() else data.decode("utf-8", "replace").encode()
