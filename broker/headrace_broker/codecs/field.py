"""Walks field tables and property blocks without decoding them: are all lengths consistent?

What passes here can be handed to `pamqp` or to a consumer: it nests no deeper and holds no more
fields than the limits say, and every length stays within its frame.

Source: AMQP 0-9-1 section 4.2.5 with the field types of RabbitMQ's errata
(https://www.rabbitmq.com/amqp-0-9-1-errata.html, section 3), which clients follow in its place; "L"
is a signed number there as "l" is.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64

from headrace_broker.model.field_size import VALUE_SIZES, VARIABLE_SIZE
from headrace_broker.model.limits import TABLE_DEPTH_MAX, TABLE_FIELDS_MAX

HEADERS_FLAG: Final = 0x2000
_BYTE_FLAGS: Final = 0x1800  # delivery-mode, priority
_TIMESTAMP_FLAG: Final = 0x0040
_UNDEFINED_FLAGS: Final = 0x0003  # bit 0 would announce a second flag word, which basic has not
_TOP_FLAG: Final = 0x8000

_TYPE_ARRAY: Final = 0x41  # A
_TYPE_TABLE: Final = 0x46  # F
_TYPE_LONG_STRING: Final = 0x53  # S
_TYPE_BYTES: Final = 0x78  # x


@final
class FieldWalker:
    """Steps over tables of one method or property block and counts their fields."""

    def __init__(self) -> None:
        self.problem = ""  # what is wrong, once a method has returned -1; "" before
        self.fields_left: i64 = TABLE_FIELDS_MAX  # how many more fields there may be

    def table(self, buf: bytes, pos: i64, end: i64, depth: i64 = 1) -> i64:
        """Step over the table (u32 length, fields) at `pos`, which ends by `end`; `depth` from 1.

        Returns the offset after the table, or -1 with `problem` set.
        """
        stop = self._enter(buf, pos, end, depth)
        if stop < 0:
            return -1
        return self.fields(buf, pos + 4, stop, depth)

    def fields(self, buf: bytes, pos: i64, stop: i64, depth: i64 = 1) -> i64:
        """Step over the fields (name, value) that fill `pos` to `stop`; as `table`."""
        while pos < stop:
            value: i64 = pos + 1 + buf[pos]
            if value >= stop:
                return self._fail("a field name runs past the end of its table")
            next_pos = self._value(buf, value, stop, depth)
            if next_pos < 0:
                name = buf[pos + 1 : value].decode("utf-8", "replace")
                return self._fail(f"field '{name}': {self.problem}")
            pos = next_pos
        return pos

    def _array(self, buf: bytes, pos: i64, end: i64, depth: i64) -> i64:
        stop = self._enter(buf, pos, end, depth)
        if stop < 0:
            return -1
        pos += 4
        while pos < stop:
            pos = self._value(buf, pos, stop, depth)
            if pos < 0:
                return -1
        return pos

    def _enter(self, buf: bytes, pos: i64, end: i64, depth: i64) -> i64:
        if depth > TABLE_DEPTH_MAX:
            return self._fail(f"tables and arrays nest deeper than {TABLE_DEPTH_MAX}")
        stop = long_string_end(buf, pos, end)
        if stop < 0:
            return self._fail("a table or array runs past the end of what holds it")
        return stop

    def _value(self, buf: bytes, pos: i64, end: i64, depth: i64) -> i64:
        self.fields_left -= 1
        if self.fields_left < 0:
            return self._fail(f"more than {TABLE_FIELDS_MAX} fields")
        kind: i64 = buf[pos]
        size: i64 = VALUE_SIZES[kind]
        pos += 1
        if size < VARIABLE_SIZE:
            pos += size
            return pos if pos <= end else self._fail("a value runs past the end of its table")
        if kind in (_TYPE_LONG_STRING, _TYPE_BYTES):
            pos = long_string_end(buf, pos, end)
            return pos if pos >= 0 else self._fail("a string runs past the end of its table")
        if kind == _TYPE_TABLE:
            return self.table(buf, pos, end, depth + 1)
        if kind == _TYPE_ARRAY:
            return self._array(buf, pos, end, depth + 1)
        return self._fail(f"unknown field type 0x{int(kind):02x}")

    def _fail(self, problem: str) -> i64:
        self.problem = problem
        return -1


def value_end(buf: bytes, pos: i64) -> i64:
    """Return where the value whose type byte stands at `pos` of a checked table ends."""
    size: i64 = VALUE_SIZES[buf[pos]]
    if size < VARIABLE_SIZE:
        return pos + 1 + size
    return pos + 5 + (i64(read_i32_be(buf, pos + 1)) & 0xFFFFFFFF)


def long_string_end(buf: bytes, pos: i64, end: i64) -> i64:
    """Return where the long string (u32 length, bytes) at `pos` ends, or -1 when past `end`."""
    if end - pos < 4:
        return -1
    stop: i64 = pos + 4 + (i64(read_i32_be(buf, pos)) & 0xFFFFFFFF)
    return stop if stop <= end else -1


def short_string_end(buf: bytes, pos: i64, end: i64) -> i64:
    """Return where the short string (length byte, bytes) at `pos` ends, or -1 when past `end`."""
    if pos >= end:
        return -1
    stop: i64 = pos + 1 + buf[pos]
    return stop if stop <= end else -1


def headers_start(buf: bytes) -> i64:
    """Return the offset of the headers table in a checked property block, or -1 without one."""
    flags: i64 = i64(read_i16_be(buf, 0)) & 0xFFFF
    return headers_place(buf) if flags & HEADERS_FLAG else -1


def headers_place(buf: bytes) -> i64:
    """Return the offset in a checked property block where a headers table stands or would."""
    flags: i64 = i64(read_i16_be(buf, 0)) & 0xFFFF
    pos: i64 = 2
    if flags & 0x8000:  # content-type
        pos += 1 + i64(buf[pos])
    if flags & 0x4000:  # content-encoding
        pos += 1 + i64(buf[pos])
    return pos


def properties_problem(buf: bytes, start: i64, end: i64) -> str:
    """Say what is wrong with the property block in `buf[start:end]`; "" if nothing."""
    flags: i64 = i64(read_i16_be(buf, start)) & 0xFFFF
    pos: i64 = start + 2
    if flags & _UNDEFINED_FLAGS:
        return f"property flags 0x{int(flags):04x} have bits that class basic does not define"
    mask: i64 = _TOP_FLAG
    while flags != 0:
        if flags & mask:
            flags ^= mask
            if mask & _BYTE_FLAGS:
                pos += 1
            elif mask == _TIMESTAMP_FLAG:
                pos += 8
            elif mask == HEADERS_FLAG:
                walker = FieldWalker()
                pos = walker.table(buf, pos, end)
                if pos < 0:
                    return f"headers: {walker.problem}"
            else:
                pos = short_string_end(buf, pos, end)
            if pos < 0 or pos > end:
                return "the property list is shorter than its flags say"
        mask >>= 1
    if pos != end:
        return f"{int(end - pos)} bytes follow the property list"
    return ""
