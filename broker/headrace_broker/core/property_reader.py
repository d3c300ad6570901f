"""Reads single properties and headers out of a message's raw property block.

Nothing is decoded that is not asked for, and nothing trusts a length: bytes that make no sense
read as a property or header that is not there. Of headers of one name the first counts, as in
RabbitMQ.

Source: AMQP 0-9-1 sections 4.2.5.5 and 4.2.6.1, field types as in RabbitMQ's errata
(https://www.rabbitmq.com/amqp-0-9-1-errata.html, section 3).
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i64_be
from mypy_extensions import i64, mypyc_attr

from headrace_broker.model.field_size import UNKNOWN_SIZE, VALUE_SIZES, VARIABLE_SIZE

CONTENT_TYPE: Final = 0x8000
CONTENT_ENCODING: Final = 0x4000
HEADERS: Final = 0x2000
DELIVERY_MODE: Final = 0x1000
PRIORITY: Final = 0x0800
CORRELATION_ID: Final = 0x0400
REPLY_TO: Final = 0x0200
EXPIRATION: Final = 0x0100
MESSAGE_ID: Final = 0x0080
TIMESTAMP: Final = 0x0040
TYPE: Final = 0x0020
USER_ID: Final = 0x0010
APP_ID: Final = 0x0008
CLUSTER_ID: Final = 0x0004

UNSET: Final = -1
INVALID: Final = -2
NO_INTEGER: Final = -(1 << 63)  # `header_int` of what is no integer, or is just this one
EXPIRATION_MS_MAX: Final = 10**15  # 31,000 years: what is longer is as long, and sums stay in i64

_U32: Final = 0xFFFFFFFF
_DIGITS_MAX: Final = 18  # of a decimal number that surely fits an i64


@mypyc_attr(acyclic=True)
@final
class PropertyReader:
    """A property block of class basic that was looked through once; to be used again and again."""

    def __init__(self) -> None:
        self.flags: i64 = 0  # the property flags; 0 before `scan` and where the block is malformed
        self.start: i64 = 0  # offset of the first property's value
        self.stop: i64 = 0  # offset after the block
        self.priority: i64 = UNSET  # 0 to 255, or UNSET
        self.delivery_mode: i64 = UNSET  # 0 to 255, or UNSET
        self.expiration_ms: i64 = UNSET  # 0 to EXPIRATION_MS_MAX, UNSET or INVALID
        self.headers_start: i64 = 0  # offset of the first name, or `headers_stop` for none
        self.headers_stop: i64 = 0  # offset after the last header

    def scan(self, blob: bytes, start: i64) -> bool:
        """Scan the block whose u32 length stands at `start`, within a whole message.

        Returns whether it is well formed; of one that is not, every attribute says "not there".
        """
        self._clear()
        size: i64 = len(blob)
        if start < 0 or size - start < 4:
            return False
        return self.scan_block(blob, start + 4, start + 4 + (i64(read_i32_be(blob, start)) & _U32))

    def scan_block(self, blob: bytes, start: i64, stop: i64) -> bool:
        """Scan the block (flags and list) that fills `start` to `stop`; as `scan`."""
        self._clear()
        if start < 0 or stop > len(blob) or stop - start < 2:
            return False
        flags: i64 = i64(read_i16_be(blob, start)) & 0xFFFF
        self.start = start + 2
        self.stop = stop
        if flags & 3 or self._walk(blob, flags) != stop:
            self._clear()
            return False
        self.flags = flags
        return True

    def value_start(self, blob: bytes, mask: i64) -> i64:
        """Return the offset of the property with flag `mask` in the block scanned, or -1.

        There stands a short string (length byte, bytes), a byte, or for TIMESTAMP a u64.
        """
        if not self.flags & mask:
            return -1
        pos = self.start
        bit: i64 = CONTENT_TYPE
        while bit > mask:
            if self.flags & bit:
                pos = _property_stop(blob, bit, pos, self.stop)
            bit >>= 1
        return pos

    def text(self, blob: bytes, mask: i64) -> bytes | None:
        """Return the bytes of the property with flag `mask`, which is a short string, or None."""
        pos = self.value_start(blob, mask)
        if pos < 0:
            return None
        return blob[pos + 1 : pos + 1 + blob[pos]]

    def timestamp(self, blob: bytes) -> i64:
        """Return the timestamp in seconds of Unix time, or UNSET (also for 2**63 and more)."""
        pos = self.value_start(blob, TIMESTAMP)
        if pos < 0:
            return UNSET
        return max(read_i64_be(blob, pos), UNSET)

    def header(self, blob: bytes, name: bytes) -> i64:
        """Return the offset of the type byte of the header `name` in the block, or -1."""
        return find_field(blob, self.headers_start, self.headers_stop, name)

    def _clear(self) -> None:
        self.flags = 0
        self.start = 0
        self.stop = 0
        self.priority = UNSET
        self.delivery_mode = UNSET
        self.expiration_ms = UNSET
        self.headers_start = 0
        self.headers_stop = 0

    def _walk(self, blob: bytes, flags: i64) -> i64:
        """Note what the attributes tell; return the offset after the list, -1 where it is torn."""
        pos = self.start
        stop = self.stop
        bit: i64 = CONTENT_TYPE
        while flags != 0:
            if flags & bit:
                flags ^= bit
                after = _property_stop(blob, bit, pos, stop)
                if after < 0:
                    return -1
                if bit == HEADERS:
                    self.headers_start = pos + 4
                    self.headers_stop = after
                elif bit == PRIORITY:
                    self.priority = blob[pos]
                elif bit == DELIVERY_MODE:
                    self.delivery_mode = blob[pos]
                elif bit == EXPIRATION:
                    self.expiration_ms = _expiration(blob, pos + 1, after)
                pos = after
            bit >>= 1
        return pos


def _property_stop(blob: bytes, bit: i64, pos: i64, stop: i64) -> i64:
    """Return where the property with flag `bit` that begins at `pos` ends, -1 when past `stop`."""
    after: i64
    if bit == HEADERS:
        if stop - pos < 4:
            return -1
        after = pos + 4 + (i64(read_i32_be(blob, pos)) & _U32)
    elif bit in (DELIVERY_MODE, PRIORITY):
        after = pos + 1
    elif bit == TIMESTAMP:
        after = pos + 8
    else:
        if pos >= stop:
            return -1
        after = pos + 1 + blob[pos]
    return after if after <= stop else -1


def _expiration(blob: bytes, start: i64, stop: i64) -> i64:
    """Return the number in decimal digits that fills `start` to `stop`, or INVALID."""
    if start < stop and blob[start] == 0x2B:  # "+", which RabbitMQ takes too
        start += 1
    if start >= stop:
        return INVALID
    value: i64 = 0
    while start < stop:
        digit: i64 = blob[start]
        digit -= 0x30
        if digit < 0 or digit > 9:
            return INVALID
        if value < EXPIRATION_MS_MAX:
            value = value * 10 + digit
        start += 1
    return min(value, EXPIRATION_MS_MAX)


def field_stop(blob: bytes, pos: i64, stop: i64) -> i64:
    """Return where the field value whose type byte stands at `pos` ends, or -1.

    -1 is for a value that runs past `stop` and for a type that there is not.
    """
    if pos >= stop:
        return -1
    size: i64 = VALUE_SIZES[blob[pos]]
    if size == VARIABLE_SIZE:
        if stop - pos < 5:
            return -1
        size = 4 + (i64(read_i32_be(blob, pos + 1)) & _U32)
    elif size == UNKNOWN_SIZE:
        return -1
    after: i64 = pos + 1 + size
    return after if after <= stop else -1


def find_field(blob: bytes, start: i64, stop: i64, name: bytes) -> i64:
    """Return the offset of a field's type byte in a table from its first name on, or -1."""
    wanted: i64 = len(name)
    pos = start
    while pos < stop:
        size: i64 = blob[pos]
        value: i64 = pos + 1 + size
        after = field_stop(blob, value, stop)
        if after < 0:
            return -1
        if size == wanted and blob[pos + 1 : value] == name:
            return value
        pos = after
    return -1


def note_fields(blob: bytes, start: i64, stop: i64, places: dict[bytes, int]) -> i64:
    """Note the offset of each field's type byte by its name, and return how many there were."""
    count: i64 = 0
    pos = start
    while pos < stop:
        value: i64 = pos + 1 + i64(blob[pos])
        after = field_stop(blob, value, stop)
        if after < 0:
            break
        count += 1
        name = blob[pos + 1 : value]
        if name not in places:
            places[name] = int(value)
        pos = after
    return count


def header_key(blob: bytes, start: i64, stop: i64, name: bytes) -> bytes | None:
    """Return bytes that are equal for equal values of a field, or None; see `find_field`.

    An integer is the same key in whatever width it came, and so are a string and a byte array;
    other values are keys as they stand in the table. A value of type void is no key.
    """
    pos = find_field(blob, start, stop, name)
    if pos < 0:
        return None
    kind: i64 = blob[pos]
    if kind == 0x56:  # V
        return None
    if kind == 0x53 or kind == 0x78:  # S, x
        return b"S" + blob[pos + 5 : field_stop(blob, pos, stop)]
    number = integer_at(blob, pos)
    if number == NO_INTEGER:
        return blob[pos : field_stop(blob, pos, stop)]
    out = BytesWriter()
    out.append(0x6C)  # l
    write_i64_be(out, number)
    return out.getvalue()


def header_int(blob: bytes, start: i64, stop: i64, name: bytes) -> i64:
    """Return the value of an integer field, or NO_INTEGER; see `find_field`.

    A string of decimal digits counts as the integer it spells, for clients that send nothing else.
    """
    pos = find_field(blob, start, stop, name)
    return NO_INTEGER if pos < 0 else field_int(blob, pos, stop)


def field_int(blob: bytes, pos: i64, stop: i64) -> i64:
    """Return the integer at an offset that `find_field` gave, or NO_INTEGER; see `header_int`."""
    number = integer_at(blob, pos)
    if number != NO_INTEGER or blob[pos] != 0x53:  # S
        return number
    return _decimal(blob, pos + 5, field_stop(blob, pos, stop))


def integer_at(blob: bytes, pos: i64) -> i64:
    """Return the value of an integer type at an offset that `find_field` gave, or NO_INTEGER."""
    kind: i64 = blob[pos]
    if kind == 0x49:  # I
        return i64(read_i32_be(blob, pos + 1))
    if kind == 0x6C or kind == 0x4C:  # l, L
        return read_i64_be(blob, pos + 1)
    if kind == 0x62:  # b
        byte: i64 = blob[pos + 1]
        return byte - 256 if byte > 127 else byte
    if kind == 0x42:  # B
        return i64(blob[pos + 1])
    if kind == 0x73:  # s
        return i64(read_i16_be(blob, pos + 1))
    if kind == 0x75:  # u
        return i64(read_i16_be(blob, pos + 1)) & 0xFFFF
    if kind == 0x69:  # i
        return i64(read_i32_be(blob, pos + 1)) & _U32
    return NO_INTEGER


def _decimal(blob: bytes, start: i64, stop: i64) -> i64:
    """Return the decimal number, with a sign perhaps, that fills `start` to `stop`."""
    negative = start < stop and blob[start] == 0x2D  # -
    if negative:
        start += 1
    if start >= stop or stop - start > _DIGITS_MAX:
        return NO_INTEGER
    value: i64 = 0
    while start < stop:
        digit: i64 = blob[start]
        digit -= 0x30
        if digit < 0 or digit > 9:
            return NO_INTEGER
        value = value * 10 + digit
        start += 1
    return -value if negative else value
