"""Field tables between their messages and AMQP's bytes: every type has a kind of its own.

Source: AMQP 0-9-1 section 4.2.5 with the field types of RabbitMQ's errata, as `codecs.field`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from headrace_broker.model.limits import TABLE_DEPTH_MAX
from headrace_protos.broker.v1.value_pb2 import Array, Decimal, Table, Value

SHORT_BYTES_MAX: Final = 255  # of a short string, as the names in a table are
TIMESTAMP_MAX: Final = (1 << 63) - 1  # seconds; clients decode a signed number

_U32: Final = struct.Struct(">I")
_DECIMAL: Final = struct.Struct(">cBi")

# Kinds that are a type byte and one number.
_NUMBERS: Final[dict[str, tuple[struct.Struct, bytes, int, int]]] = {
    "int8": (struct.Struct(">cb"), b"b", -(1 << 7), (1 << 7) - 1),
    "uint8": (struct.Struct(">cB"), b"B", 0, (1 << 8) - 1),
    "int16": (struct.Struct(">ch"), b"s", -(1 << 15), (1 << 15) - 1),
    "uint16": (struct.Struct(">cH"), b"u", 0, (1 << 16) - 1),
    "int32": (struct.Struct(">ci"), b"I", -(1 << 31), (1 << 31) - 1),
    "uint32": (struct.Struct(">cI"), b"i", 0, (1 << 32) - 1),
    "int64": (struct.Struct(">cq"), b"l", -(1 << 63), (1 << 63) - 1),
    "long_int": (struct.Struct(">cq"), b"L", -(1 << 63), (1 << 63) - 1),
    "timestamp": (struct.Struct(">cQ"), b"T", 0, TIMESTAMP_MAX),
}
_FLOATS: Final = {"float": (struct.Struct(">cf"), b"f"), "double": (struct.Struct(">cd"), b"d")}
_BY_TYPE: Final = {row[1][0]: (kind, row[0]) for kind, row in _NUMBERS.items()}
_FLOAT_BY_TYPE: Final = {row[1][0]: (kind, row[0]) for kind, row in _FLOATS.items()}


class ValueProblemError(ValueError):
    """A value cannot be written, or bytes cannot be told as values."""

    def __init__(self, place: str, rule: str) -> None:
        super().__init__(f"{place}: {rule}" if place else rule)
        self.place = place  # where it is, "" for the whole: `.fields["x"].int8`
        self.rule = rule  # what it broke


def encode_table(table: Table, depth: int = 1) -> bytes:
    """Return a table's bytes, its length before them.

    Raises:
        ValueProblemError: a number or name is out of bounds, or tables nest too deeply.
    """
    _check_depth(depth)
    parts = [b""]
    for name, value in table.fields.items():
        data = name.encode()
        if len(data) > SHORT_BYTES_MAX:
            rule = f"a name must have at most {SHORT_BYTES_MAX} bytes"
            raise ValueProblemError(f'.fields["{name[:20]}..."]', rule)
        parts.append(bytes((len(data),)) + data)
        try:
            parts.append(_encode_value(value, depth))
        except ValueProblemError as problem:
            raise ValueProblemError(f'.fields["{name}"]{problem.place}', problem.rule) from None
    return _with_length(parts)


def _encode_array(array: Array, depth: int) -> bytes:
    _check_depth(depth)
    parts = [b""]
    for index, value in enumerate(array.values):
        try:
            parts.append(_encode_value(value, depth))
        except ValueProblemError as problem:
            raise ValueProblemError(f".values[{index}]{problem.place}", problem.rule) from None
    return _with_length(parts)


def _check_depth(depth: int) -> None:
    if depth > TABLE_DEPTH_MAX:
        raise ValueProblemError("", f"tables and arrays must nest at most {TABLE_DEPTH_MAX} deep")


def _with_length(parts: list[bytes]) -> bytes:
    """Put the length of all parts before them; the first one is a place for it."""
    parts[0] = _U32.pack(sum(map(len, parts)))
    return b"".join(parts)


def _encode_value(value: Value, depth: int) -> bytes:
    kind = value.WhichOneof("kind")
    if kind is None or kind == "none":
        return b"V"
    given = getattr(value, kind)
    number = _NUMBERS.get(kind)
    if number is not None:
        packer, byte, low, high = number
        if not low <= given <= high:
            raise ValueProblemError(f".{kind}", f"must be {low} to {high}")
        return packer.pack(byte, given)
    fraction = _FLOATS.get(kind)
    if fraction is not None:
        return fraction[0].pack(fraction[1], given)
    try:
        return _ENCODERS[kind](given, depth)
    except ValueProblemError as problem:
        raise ValueProblemError(f".{kind}{problem.place}", problem.rule) from None


def _encode_decimal(value: Decimal, depth: int) -> bytes:
    if value.scale > SHORT_BYTES_MAX:
        raise ValueProblemError(".scale", f"must be 0 to {SHORT_BYTES_MAX}")
    return _DECIMAL.pack(b"D", value.scale, value.value)


def _long(byte: bytes, data: bytes) -> bytes:
    return byte + _U32.pack(len(data)) + data


_ENCODERS: Final[dict[str, Callable[[Any, int], bytes]]] = {
    "boolean": lambda given, depth: b"t\x01" if given else b"t\x00",
    "string": lambda given, depth: _long(b"S", given.encode()),
    "octets": lambda given, depth: _long(b"S", given),
    "bytes": lambda given, depth: _long(b"x", given),
    "decimal": _encode_decimal,
    "table": lambda given, depth: b"F" + encode_table(given, depth + 1),
    "array": lambda given, depth: b"A" + _encode_array(given, depth + 1),
}


def decode_table(data: bytes, pos: int = 0) -> tuple[Table, int]:
    """Return the table whose length stands at `pos`, which `codecs.field` has checked, and its end.

    Raises:
        ValueProblemError: a name is not UTF-8 or comes twice, or a timestamp is out of bounds.
    """
    table = Table()
    fields = table.fields
    stop = pos + 4 + _U32.unpack_from(data, pos)[0]
    pos += 4
    while pos < stop:
        start = pos + 1
        pos = start + data[pos]
        try:
            name = data[start:pos].decode()
        except UnicodeDecodeError:
            raise ValueProblemError("", "a name is not UTF-8") from None
        if name in fields:
            raise ValueProblemError("", "a name comes twice")
        pos = _decode_value(data, pos, fields[name])
    return table, stop


def _decode_value(data: bytes, pos: int, value: Value) -> int:
    """Read one value into a message and return the position after it."""
    byte = data[pos]
    number = _BY_TYPE.get(byte) or _FLOAT_BY_TYPE.get(byte)
    if number is not None:
        kind, packer = number
        setattr(value, kind, packer.unpack_from(data, pos)[1])
        return pos + packer.size
    if byte in b"Sx":
        start = pos + 5
        pos = start + _U32.unpack_from(data, pos + 1)[0]
        _set_string(value, byte, data[start:pos])
        return pos
    if byte == 0x74:  # t
        value.boolean = data[pos + 1] != 0
        return pos + 2
    if byte == 0x44:  # D
        _, value.decimal.scale, value.decimal.value = _DECIMAL.unpack_from(data, pos)
        value.decimal.SetInParent()
        return pos + _DECIMAL.size
    if byte == 0x46:  # F
        table, pos = decode_table(data, pos + 1)
        value.table.CopyFrom(table)
        return pos
    if byte == 0x41:  # A
        stop = pos + 5 + _U32.unpack_from(data, pos + 1)[0]
        pos += 5
        value.array.SetInParent()
        while pos < stop:
            pos = _decode_value(data, pos, value.array.values.add())
        return pos
    assert byte == 0x56, "the table was checked"  # V
    value.none = 0  # type: ignore[assignment]  # NULL_UNSPECIFIED
    return pos + 1


def _set_string(value: Value, byte: int, text: bytes) -> None:
    if byte == 0x78:  # x
        value.bytes = text
        return
    try:
        value.string = text.decode()
    except UnicodeDecodeError:
        value.octets = text
