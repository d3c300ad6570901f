"""Properties of messages between their message and AMQP's property block.

Blocks are what travels and is stored. Numbers of fields are in the order of AMQP's flags.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from headrace_broker.codecs.field import properties_problem
from headrace_broker.gateways.grpc.values.values import (
    SHORT_BYTES_MAX,
    TIMESTAMP_MAX,
    ValueProblemError,
    decode_table,
    encode_table,
)
from headrace_broker.model.limits import (
    PROPERTIES_BYTES_MAX,
    PROPERTIES_REMEMBERED_BYTES,
    PROPERTIES_REMEMBERED_MAX,
)
from headrace_protos.broker.v1.message_pb2 import Properties

NO_PROPERTIES: Final = b"\x00\x00"

_HEADERS: Final = 3
_DELIVERY_MODE: Final = 4
_PRIORITY: Final = 5
_TIMESTAMP: Final = 10
_ENCODED: Final = 15
_FLAGS: Final = 16  # flag of field n: 1 << (16 - n)
_U16: Final = struct.Struct(">H")
_U64: Final = struct.Struct(">Q")
_NAMES: Final = {field.number: field.name for field in Properties.DESCRIPTOR.fields}


def encode_properties(properties: Properties) -> bytes:
    """Return the property block.

    Raises:
        ValueProblemError: naming field and rule.
    """
    fields = properties.ListFields()
    if not fields:
        return NO_PROPERTIES
    if fields[-1][0].number == _ENCODED:
        if len(fields) > 1:
            raise ValueProblemError(".encoded", "must stand alone")
        _check(properties.encoded, ".encoded")
        return properties.encoded
    flags = 0
    parts = [b""]
    for field, value in fields:
        number = field.number
        flags |= 1 << (_FLAGS - number)
        try:
            parts.append(_encode(number, value))
        except ValueProblemError as problem:
            raise ValueProblemError(f".{field.name}{problem.place}", problem.rule) from None
    parts[0] = _U16.pack(flags)
    block: bytes = b"".join(parts)
    if len(block) > SHORT_BYTES_MAX:
        _check(block, "")
    return block


def _encode(number: int, value: Any) -> bytes:
    if number == _HEADERS:
        return encode_table(value)
    if number == _TIMESTAMP:
        if value > TIMESTAMP_MAX:
            raise ValueProblemError("", f"must be 0 to {TIMESTAMP_MAX}")
        return _U64.pack(int(value))
    if number in (_DELIVERY_MODE, _PRIORITY):
        if value > SHORT_BYTES_MAX:
            raise ValueProblemError("", f"must be 0 to {SHORT_BYTES_MAX}")
        return bytes((value,))
    text = str(value).encode()
    if len(text) > SHORT_BYTES_MAX:
        raise ValueProblemError("", f"must have at most {SHORT_BYTES_MAX} bytes")
    return bytes((len(text),)) + text


def _check(block: bytes, place: str) -> None:
    """Refuse a block that no AMQP client could have sent."""
    if len(block) > PROPERTIES_BYTES_MAX:
        rule = f"must have at most {PROPERTIES_BYTES_MAX} bytes in AMQP's form"
        raise ValueProblemError(place, rule)
    problem = "must be a property block" if len(block) < 2 else ""
    problem = problem or properties_problem(block, 0, len(block))
    if problem:
        raise ValueProblemError(place, problem)


def decode_properties(block: bytes) -> Properties:
    """Return a block, which was checked when it came, as a message.

    What has no form there (a name or text that is not UTF-8, a name that comes twice) stands in
    `encoded` as a whole.
    """
    try:
        return _decode(block)
    except (UnicodeDecodeError, ValueProblemError):
        return Properties(encoded=block)


def _decode(block: bytes) -> Properties:
    properties = Properties()
    (flags,) = _U16.unpack_from(block)
    pos = 2
    for number in range(1, _ENCODED):
        if not flags & (1 << (_FLAGS - number)):
            continue
        if number == _HEADERS:
            table, pos = decode_table(block, pos)
            properties.headers.CopyFrom(table)
        elif number == _TIMESTAMP:
            properties.timestamp = _U64.unpack_from(block, pos)[0]
            pos += 8
        elif number in (_DELIVERY_MODE, _PRIORITY):
            setattr(properties, _NAMES[number], block[pos])
            pos += 1
        else:
            start = pos + 1
            pos = start + block[pos]
            setattr(properties, _NAMES[number], block[start:pos].decode())
    return properties


class PropertyMemory:
    """Decoded blocks: those of consecutive messages are often the same."""

    def __init__(self) -> None:
        self._known: dict[bytes, Properties] = {}

    def decode(self, block: bytes) -> Properties:
        """Return a block as a read-only message."""
        found = self._known.get(block)
        if found is None:
            found = decode_properties(block)
            if len(block) <= PROPERTIES_REMEMBERED_BYTES:
                if len(self._known) >= PROPERTIES_REMEMBERED_MAX:
                    self._known.clear()
                self._known[block] = found
        return found


class PartReader:
    """Reads parts of messages that come one after the other, and are often those of the last."""

    def __init__(self) -> None:
        self._properties = PropertyMemory()
        self._routes: tuple[bytes, str, str] = (b"", "", "")

    def _decoded(self, block: bytes) -> Properties | None:
        return self._properties.decode(block) if len(block) > 2 else None

    def _route(self, route: bytes) -> tuple[str, str]:
        """Return exchange and routing key; bytes that are not UTF-8 are replaced."""
        known, exchange, key = self._routes
        if route != known:
            length = route[0]
            exchange = route[1 : 1 + length].decode("utf-8", "replace")
            key = route[2 + length :].decode("utf-8", "replace")
            self._routes = (route, exchange, key)
        return exchange, key
