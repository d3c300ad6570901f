"""Headers of dead-lettered messages: x-death and its companions.

The property block is cut into the parts that stay, byte for byte as the publisher sent them, and
those that change. Total for any bytes: what is no property block counts as an empty one.

Source: RabbitMQ's guide on dead letter exchanges, and `mc:record_death/3` of RabbitMQ 4.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64

from headrace_broker.codecs.field import HEADERS_FLAG, FieldWalker, properties_problem, value_end
from headrace_broker.model.limits import DEATHS_KEPT_MAX, PROPERTIES_BYTES_MAX

X_DEATH: Final = b"x-death"
X_DELAY: Final = b"x-delay"
CC: Final = b"CC"
BCC: Final = b"BCC"
_FIRST: Final = (b"x-first-death-reason", b"x-first-death-queue", b"x-first-death-exchange")
_LAST: Final = (b"x-last-death-reason", b"x-last-death-queue", b"x-last-death-exchange")

_EXPIRATION_FLAG: Final = 0x0100
_EMPTY: Final = b"\x00\x00"
_TYPE_TABLE: Final = 0x46  # F
_TYPE_ARRAY: Final = 0x41  # A
_TYPE_LONG_STRING: Final = 0x53  # S
_TYPE_TIMESTAMP: Final = 0x54  # T
_TYPE_INT64: Final = 0x6C  # l
_TYPE_BYTES: Final = 0x78  # x
_DIGITS_MAX: Final = 18  # of a number that stands in a string; what surely fits 64 bits


@final
class Death:
    """Reason and circumstances of a dead letter."""

    def __init__(
        self, queue: bytes, reason: bytes, exchange: bytes, routing_key: bytes, time_s: i64
    ) -> None:
        self.queue = queue  # name of the queue that it leaves
        self.reason = reason  # "rejected", "expired", "maxlen" or "delivery_limit"
        self.exchange = exchange  # to which the message was published last
        self.routing_key = routing_key  # with which
        self.time_s = time_s  # Unix time


@final
class Past:
    """A death as it stands in x-death."""

    def __init__(self, queue: bytes, reason: bytes, table: bytes) -> None:
        self.queue = queue  # name of the queue
        self.reason = reason  # as in `Death`
        self.table = table  # the fields, without the table's length


@final
class DeadProperties:
    """A property block after a death."""

    def __init__(self, data: bytes, deaths: list[tuple[bytes, bytes]]) -> None:
        self.data = data  # the block
        self.deaths = deaths  # queue and reason of each death, the newest first


@final
class _Field:
    """One field of the headers table: its name, and where it and its value stand."""

    def __init__(self, name: bytes, start: i64, value: i64, stop: i64) -> None:
        self.name = name
        self.start = start
        self.value = value
        self.stop = stop


@final
class _Block:
    """A property block, cut where the headers and the expiration stand."""

    def __init__(self, properties: bytes) -> None:
        sound = len(properties) >= 2 and not properties_problem(properties, 0, len(properties))
        buf = properties if sound else _EMPTY
        self.buf = buf  # the block
        self.flags: i64 = i64(read_i16_be(buf, 0)) & 0xFFFF  # its property flags
        pos: i64 = 2
        for flag in (0x8000, 0x4000):  # content-type, content-encoding
            if self.flags & flag:
                pos += 1 + i64(buf[pos])
        self.headers = pos  # offset of the headers table, or of where it would stand
        if self.flags & HEADERS_FLAG:
            pos += 4 + i64(read_i32_be(buf, pos))
        self.rest = pos  # offset after it
        for flag in (0x1000, 0x0800):  # delivery-mode, priority
            if self.flags & flag:
                pos += 1
        for flag in (0x0400, 0x0200):  # correlation-id, reply-to
            if self.flags & flag:
                pos += 1 + i64(buf[pos])
        self.expiration = pos  # offset of the expiration, or of where it would stand
        if self.flags & _EXPIRATION_FLAG:
            pos += 1 + i64(buf[pos])
        self.tail = pos  # offset after it

    def fields(self) -> list[_Field]:
        """Return the fields of the headers table, in order."""
        if not self.flags & HEADERS_FLAG:
            return []
        return _fields(self.buf, self.headers + 4, self.rest)


def copied_keys(properties: bytes, name: bytes) -> list[bytes]:
    """Return the routing keys in the header `name`, CC or BCC: the strings of an array."""
    block = _Block(properties)
    for field in block.fields():
        if field.name == name:
            return _strings(block.buf, field.value)
    return []


def dead_letter(properties: bytes, death: Death, trusted: bool, keep_keys: bool) -> DeadProperties:
    """Return the properties with which a message goes to its dead letter exchange.

    Its death is counted in x-death, which is ordered by recency; x-first-death-* and x-last-death-*
    say the same in short. The expiration is removed, so that the message does not expire again
    where it arrives, and an x-delay negated, so that it is not delayed again.

    At most DEATHS_KEPT_MAX deaths are kept, and fewer where the block would not fit a frame or
    hold more fields than a client may send. When not even the newest fits, none is recorded.

    Args:
        properties: flags and list, as the queue has them.
        death: what happened.
        trusted: the x-death that is there was written by a broker and not by a client, whose
            x-death counts for nothing and is replaced.
        keep_keys: leave the CC and BCC headers: the message keeps its routing keys.
    """
    block = _Block(properties)
    fields = block.fields()
    keys = () if keep_keys else (CC, BCC)
    past = _past(block.buf, fields) if trusted else []
    replaced = (*keys, X_DEATH, *_LAST) if past else (*keys, X_DEATH, *_FIRST, *_LAST)
    known = _shift(past, death, _original_expiration(block), copied_keys(properties, CC))
    fixed = block.headers + len(block.buf) - block.rest + 4
    written = _with_deaths(
        _kept(block, fields, replaced), known, death, len(past) > 0, PROPERTIES_BYTES_MAX - fixed
    )
    if written is None:
        unrecorded = _kept(block, fields, keys if trusted else replaced)
        return DeadProperties(_compose(block, unrecorded), [(p.queue, p.reason) for p in past])
    table, count = written
    return DeadProperties(
        _compose(block, table), [(item.queue, item.reason) for item in known[:count]]
    )


def _kept(block: _Block, fields: list[_Field], replaced: tuple[bytes, ...]) -> bytes:
    """Return the header fields but for those named, and with an x-delay that works no more."""
    out = BytesWriter()
    for field in fields:
        if field.name in replaced:
            continue
        number = _integer(block.buf, field.value) if field.name == X_DELAY else 0
        if number > 0:
            _write_integer(out, X_DELAY, -number)
        else:
            out.write(block.buf[field.start : field.stop])
    return out.getvalue()


def _shift(past: list[Past], death: Death, expiration: bytes | None, cc: list[bytes]) -> list[Past]:
    """Return the deaths with the newest first; one for the same reason there counts up."""
    rest: list[Past] = []
    newest: Past | None = None
    for item in past:
        if newest is None and item.queue == death.queue and item.reason == death.reason:
            newest = Past(item.queue, item.reason, _counted_up(item.table))
        else:
            rest.append(item)
    if newest is None:
        newest = Past(
            death.queue, death.reason, _table(death, [death.routing_key, *cc], expiration)
        )
        if not _fits(newest.table):
            alone = _table(death, [death.routing_key], expiration)
            newest = Past(death.queue, death.reason, alone)
    return [newest, *rest]


def _fits(table: bytes) -> bool:
    """Return whether a death is small enough to leave room for others."""
    return len(table) <= PROPERTIES_BYTES_MAX // 4 and _field_count(table) <= 256


def _with_deaths(
    stays: bytes, known: list[Past], death: Death, has_first: bool, room: i64
) -> tuple[bytes, int] | None:
    """Return the fields of the headers table with as many deaths as fit, and how many those are."""
    out = BytesWriter()
    out.write(stays)
    if not has_first:
        _write_three(out, _FIRST, death)
    _write_three(out, _LAST, death)
    head = out.getvalue()
    walker = FieldWalker()
    if walker.fields(head, 0, len(head)) < 0:
        return None
    byte_count = room - len(head) - (1 + len(X_DEATH) + 1 + 4)
    slots = walker.fields_left - 1
    fitting: list[Past] = []
    for item in known[:DEATHS_KEPT_MAX]:
        byte_count -= 5 + len(item.table)
        slots -= 1 + _field_count(item.table)
        if byte_count < 0 or slots < 0:
            break
        fitting.append(item)
    if not fitting:
        return None
    return head + _array_field(X_DEATH, fitting), len(fitting)


def _compose(block: _Block, table: bytes) -> bytes:
    """Return the block with these header fields and without an expiration."""
    out = BytesWriter()
    flags = block.flags & ~_EXPIRATION_FLAG
    flags = flags | HEADERS_FLAG if table else flags & ~HEADERS_FLAG
    write_i16_be(out, i16(flags if flags < 0x8000 else flags - 0x10000))
    out.write(block.buf[2 : block.headers])
    if table:
        write_i32_be(out, i32(len(table)))
        out.write(table)
    out.write(block.buf[block.rest : block.expiration])
    out.write(block.buf[block.tail :])
    return out.getvalue()


# Reading


def _fields(buf: bytes, pos: i64, stop: i64) -> list[_Field]:
    found: list[_Field] = []
    while pos < stop:
        value: i64 = pos + 1 + buf[pos]
        end = value_end(buf, value)
        found.append(_Field(buf[pos + 1 : value], pos, value, end))
        pos = end
    return found


def _field_count(table: bytes) -> i64:
    """Return how many fields and array elements a sound table counts, at every depth."""
    walker = FieldWalker()
    before = walker.fields_left
    walker.fields(table, 0, len(table))
    return before - walker.fields_left


def _original_expiration(block: _Block) -> bytes | None:
    if not block.flags & _EXPIRATION_FLAG:
        return None
    return block.buf[block.expiration + 1 : block.tail]


def _strings(buf: bytes, value: i64) -> list[bytes]:
    """Return the strings in the array at `value`; other elements and other values give none."""
    if buf[value] != _TYPE_ARRAY:
        return []
    strings: list[bytes] = []
    stop = value_end(buf, value)
    pos = value + 5
    while pos < stop:
        end = value_end(buf, pos)
        if buf[pos] == _TYPE_LONG_STRING:
            strings.append(buf[pos + 5 : end])
        pos = end
    return strings


def _past(buf: bytes, fields: list[_Field]) -> list[Past]:
    """Return the deaths in x-death; elements that are none are passed over."""
    deaths: list[Past] = []
    for field in fields:
        if field.name != X_DEATH or buf[field.value] != _TYPE_ARRAY:
            continue
        pos = field.value + 5
        while pos < field.stop:
            end = value_end(buf, pos)
            if buf[pos] == _TYPE_TABLE:
                item = _past_of(buf[pos + 5 : end])
                if item is not None:
                    deaths.append(item)
            pos = end
    return deaths


def _past_of(table: bytes) -> Past | None:
    queue: bytes | None = None
    reason: bytes | None = None
    for field in _fields(table, 0, len(table)):
        if table[field.value] == _TYPE_LONG_STRING:
            if field.name == b"queue":
                queue = table[field.value + 5 : field.stop]
            elif field.name == b"reason":
                reason = table[field.value + 5 : field.stop]
    if queue is None or reason is None:
        return None
    return Past(queue, reason, table)


def _integer(buf: bytes, value: i64) -> i64:
    """Return the number of the value at `value`, which may stand in a string; else 0."""
    kind: i64 = buf[value]
    pos: i64 = value + 1
    if kind in (0x6C, 0x4C):  # l, L
        return read_i64_be(buf, pos)
    if kind == 0x49:  # I
        return i64(read_i32_be(buf, pos))
    if kind == 0x69:  # i
        return i64(read_i32_be(buf, pos)) & 0xFFFFFFFF
    if kind == 0x73:  # s
        return i64(read_i16_be(buf, pos))
    if kind == 0x75:  # u
        return i64(read_i16_be(buf, pos)) & 0xFFFF
    if kind == 0x42:  # B
        return i64(buf[pos])
    if kind == 0x62:  # b
        byte: i64 = buf[pos]
        return byte if byte < 128 else byte - 256
    if kind in (_TYPE_LONG_STRING, _TYPE_BYTES):
        return _digits(buf[pos + 4 : value_end(buf, value)])
    return 0


def _digits(text: bytes) -> i64:
    """Return the number that ASCII digits say, 0 for other bytes and for more than 18 digits."""
    if not text or len(text) > _DIGITS_MAX or not text.isdigit():
        return 0
    return int(text)


# Writing


def _table(death: Death, routing_keys: list[bytes], expiration: bytes | None) -> bytes:
    """Return the fields of a first death, in the order in which RabbitMQ writes them."""
    out = BytesWriter()
    _write_integer(out, b"count", 1)
    _write_string(out, b"reason", death.reason)
    _write_string(out, b"queue", death.queue)
    _write_name(out, b"time", _TYPE_TIMESTAMP)
    write_i64_be(out, death.time_s)
    _write_string(out, b"exchange", death.exchange)
    _write_name(out, b"routing-keys", _TYPE_ARRAY)
    byte_count: i64 = 0
    for key in routing_keys:
        byte_count += 5 + len(key)
    write_i32_be(out, i32(byte_count))
    for key in routing_keys:
        out.append(_TYPE_LONG_STRING)
        _write_bytes(out, key)
    if expiration is not None:
        _write_string(out, b"original-expiration", expiration)
    return out.getvalue()


def _counted_up(table: bytes) -> bytes:
    """Return the fields of a death with its count one higher."""
    out = BytesWriter()
    count: i64 = 0
    rest = BytesWriter()
    for field in _fields(table, 0, len(table)):
        if field.name == b"count":
            count = _integer(table, field.value)
        else:
            rest.write(table[field.start : field.stop])
    _write_integer(out, b"count", count + 1 if 0 <= count < (1 << 62) else 1)
    out.write(rest.getvalue())
    return out.getvalue()


def _array_field(name: bytes, deaths: list[Past]) -> bytes:
    out = BytesWriter()
    _write_name(out, name, _TYPE_ARRAY)
    byte_count: i64 = 0
    for item in deaths:
        byte_count += 5 + len(item.table)
    write_i32_be(out, i32(byte_count))
    for item in deaths:
        out.append(_TYPE_TABLE)
        _write_bytes(out, item.table)
    return out.getvalue()


def _write_three(out: BytesWriter, names: tuple[bytes, bytes, bytes], death: Death) -> None:
    _write_string(out, names[0], death.reason)
    _write_string(out, names[1], death.queue)
    _write_string(out, names[2], death.exchange)


def _write_name(out: BytesWriter, name: bytes, kind: int) -> None:
    out.append(len(name))
    out.write(name)
    out.append(kind)


def _write_string(out: BytesWriter, name: bytes, text: bytes) -> None:
    _write_name(out, name, _TYPE_LONG_STRING)
    _write_bytes(out, text)


def _write_integer(out: BytesWriter, name: bytes, number: i64) -> None:
    _write_name(out, name, _TYPE_INT64)
    write_i64_be(out, number)


def _write_bytes(out: BytesWriter, data: bytes) -> None:
    write_i32_be(out, i32(len(data)))
    out.write(data)
