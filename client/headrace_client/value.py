"""Values of headers and arguments, between Python and their messages.

| Python | message |
| --- | --- |
| None, bool, float, str, bytes | none, boolean, double, string, bytes |
| int | int64; what AMQP clients have written in other widths is read as int as well |
| datetime | timestamp, in seconds; one without time zone is taken as UTC, and all are read as UTC |
| decimal.Decimal | decimal |
| Mapping with str keys | table |
| list, tuple | array |
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal as Fraction
from typing import Any, Final

from headrace_client.limits import TABLE_DEPTH_MAX
from headrace_protos.broker.v1.value_pb2 import Array, Decimal, Table, Value

INT64_MAX: Final = (1 << 63) - 1
INT32_MAX: Final = (1 << 31) - 1
SCALE_MAX: Final = 255


def encode_table(table: Mapping[str, Any], where: str = "headers", depth: int = 1) -> Table:
    """Return a table as a message.

    Args:
        table: names to values.
        where: what it is called in errors.
        depth: 1 for a table that stands in no other.

    Raises:
        TypeError: a value, or a name, has a type that cannot be sent.
        ValueError: a number is out of range, or tables and arrays nest deeper than brokers take.
    """
    _check_depth(depth, where)
    found = Table()
    for name, value in table.items():
        if not isinstance(name, str):
            raise TypeError(f"{where}: a name must be a str, not {type(name).__name__}")
        _encode(value, found.fields[name], f"{where}[{name!r}]", depth)
    return found


def _check_depth(depth: int, where: str) -> None:
    if depth > TABLE_DEPTH_MAX:  # far deeper ones would end the whole stream
        name = where.partition("[")[0]
        raise ValueError(f"{name}: tables and arrays nest deeper than {TABLE_DEPTH_MAX}")


def _encode(value: Any, message: Value, where: str, depth: int) -> None:
    if value is None:
        message.none = 0  # type: ignore[assignment]  # NULL_UNSPECIFIED
    elif isinstance(value, bool):
        message.boolean = value
    elif isinstance(value, int):
        if not -INT64_MAX - 1 <= value <= INT64_MAX:
            raise ValueError(f"{where}: {value} has more than 64 bits")
        message.int64 = value
    elif isinstance(value, float):
        message.double = value
    elif isinstance(value, str):
        message.string = value
    elif isinstance(value, bytes | bytearray | memoryview):
        message.bytes = bytes(value)
    elif isinstance(value, datetime):
        message.timestamp = timestamp_of(value, where)
    elif isinstance(value, Fraction):
        message.decimal.CopyFrom(_encode_decimal(value, where))
    elif isinstance(value, Mapping):
        message.table.CopyFrom(encode_table(value, where, depth + 1))
    elif isinstance(value, list | tuple):
        _check_depth(depth + 1, where)
        message.array.SetInParent()
        for at, each in enumerate(value):
            _encode(each, message.array.values.add(), f"{where}[{at}]", depth + 1)
    else:
        raise TypeError(f"{where}: a {type(value).__name__} cannot be sent")


def timestamp_of(value: datetime, where: str) -> int:
    """Return seconds since 1970.

    Raises:
        ValueError: it is before that.
    """
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    seconds = int(aware.timestamp())
    if seconds < 0:
        raise ValueError(f"{where}: {value} is before 1970")
    return seconds


def _encode_decimal(value: Fraction, where: str) -> Decimal:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{where}: {value} is not a number")
    number = int("".join(map(str, digits))) * 10 ** max(exponent, 0) if exponent < 64 else INT64_MAX
    number = -number if sign else number
    scale = max(-exponent, 0)
    if not -INT32_MAX - 1 <= number <= INT32_MAX or scale > SCALE_MAX:
        raise ValueError(f"{where}: {value} has more than 32 bits")
    return Decimal(scale=scale, value=number)


def decode_table(table: Table) -> dict[str, Any]:
    """Return a table's values by name."""
    return {name: _decode(value) for name, value in table.fields.items()}


def _decode(value: Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind is None or kind == "none":
        return None
    given = getattr(value, kind)
    if kind == "table":
        return decode_table(given)
    if kind == "array":
        return _decode_array(given)
    if kind == "decimal":
        return Fraction(given.value).scaleb(-given.scale)
    if kind == "timestamp":
        return time_of(given)
    return given


def _decode_array(array: Array) -> list[Any]:
    return [_decode(value) for value in array.values]


def time_of(seconds: int) -> datetime | int:
    """Return a time, or the seconds of one that Python has none for."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return seconds
