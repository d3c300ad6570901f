"""Headers of messages as JSON has them; whatever a client sent can be shown.

Names that are not UTF-8 are shown with replacement characters, bytes that are not in base64,
timestamps as seconds, decimals as numbers. Of a name that comes twice the last value counts.

Source: AMQP 0-9-1 section 4.2.5 with the field types of RabbitMQ's errata, as `codecs.field`.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from librt.strings import read_f32_be, read_f64_be, read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from headrace_broker.codecs.field import value_end

SECONDS_MAX: Final = (1 << 32) - 1  # a timestamp beyond, in 2106, is one of milliseconds

_ARRAY: Final = 0x41  # A
_TABLE: Final = 0x46  # F
_LONG_STRING: Final = 0x53  # S
_BYTES: Final = 0x78  # x
_TIMESTAMP: Final = 0x54  # T
_BOOLEAN: Final = 0x74  # t
_INT8: Final = 0x62  # b
_UINT8: Final = 0x42  # B
_INT16: Final = 0x73  # s
_UINT16: Final = 0x75  # u
_INT32: Final = 0x49  # I
_UINT32: Final = 0x69  # i
_INT64: Final = 0x6C  # l
_LONG_INT: Final = 0x4C  # L
_FLOAT: Final = 0x66  # f
_DOUBLE: Final = 0x64  # d
_DECIMAL: Final = 0x44  # D
_U32: Final = 0xFFFFFFFF


def bytes_text(data: bytes) -> str:
    """Return bytes as JSON has them: as text where they are UTF-8, in base64 otherwise."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def header_values(block: bytes, pos: i64) -> dict[str, Any]:
    """Return the table whose length stands at `pos` of a checked property block."""
    return _table(block, pos + 4, value_start_end(block, pos))


def value_start_end(block: bytes, pos: i64) -> i64:
    """Return where the long string, table or array whose length stands at `pos` ends."""
    return pos + 4 + (i64(read_i32_be(block, pos)) & _U32)


def timestamp_ms(value: i64) -> i64:
    """Return the Unix time in milliseconds of a timestamp, which some clients give in those."""
    return value * 1000 if 0 <= value <= SECONDS_MAX else value


def _table(block: bytes, pos: i64, stop: i64) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while pos < stop:
        value: i64 = pos + 1 + block[pos]
        found[block[pos + 1 : value].decode("utf-8", "replace")] = _value(block, value)
        pos = value_end(block, value)
    return found


def _array(block: bytes, pos: i64, stop: i64) -> list[Any]:
    found: list[Any] = []
    while pos < stop:
        found.append(_value(block, pos))
        pos = value_end(block, pos)
    return found


def _value(block: bytes, pos: i64) -> Any:
    """Return the value whose type byte stands at `pos`."""
    kind: i64 = block[pos]
    pos += 1
    if kind in (_LONG_STRING, _BYTES):
        return bytes_text(block[pos + 4 : value_start_end(block, pos)])
    if kind == _TABLE:
        return _table(block, pos + 4, value_start_end(block, pos))
    if kind == _ARRAY:
        return _array(block, pos + 4, value_start_end(block, pos))
    if kind == _BOOLEAN:
        return block[pos] != 0
    return _number(block, pos, kind)


def _number(block: bytes, pos: i64, kind: i64) -> int | float | None:
    """Return the number of a kind that stands at `pos`, None for the kind that has no value."""
    if kind == _FLOAT:
        return read_f32_be(block, pos)
    if kind == _DOUBLE:
        return read_f64_be(block, pos)
    if kind == _DECIMAL:
        unscaled = int(i64(read_i32_be(block, pos + 1)) & _U32)
        return float(unscaled / 10 ** int(block[pos]))
    if kind == _TIMESTAMP:
        return int(timestamp_ms(i64(read_i64_be(block, pos)))) // 1000
    return _integer(block, pos, kind)


def _integer(block: bytes, pos: i64, kind: i64) -> int | None:
    if kind in (_INT64, _LONG_INT):
        return int(read_i64_be(block, pos))
    if kind == _INT32:
        return int(read_i32_be(block, pos))
    if kind == _UINT32:
        return int(i64(read_i32_be(block, pos)) & _U32)
    if kind == _INT16:
        return int(read_i16_be(block, pos))
    if kind == _UINT16:
        return int(i64(read_i16_be(block, pos)) & 0xFFFF)
    if kind == _UINT8:
        return int(block[pos])
    if kind == _INT8:
        byte = int(block[pos])
        return byte - 256 if byte > 127 else byte
    return None
