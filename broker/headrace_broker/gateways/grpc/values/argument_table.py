"""Arguments and definitions as the catalog stores them, and their messages.

What is stored has lost AMQP's types: there is one kind of integer, `int64`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace_broker.gateways.grpc.server.errors import bad_field
from headrace_broker.model.limits import NAME_BYTES_MAX, TABLE_DEPTH_MAX
from headrace_protos.broker.v1.value_pb2 import Array, Table, Value

INT64_MAX: Final = (1 << 63) - 1
_SIMPLE: Final = frozenset({"boolean", "double", "float", "string", "bytes"})
_RANGES: Final = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "uint8": (0, (1 << 8) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-INT64_MAX - 1, INT64_MAX),
    "long_int": (-INT64_MAX - 1, INT64_MAX),
    "timestamp": (0, INT64_MAX),
}


def read_table(message: Table, field: str, depth: int = 1) -> dict[str, Any]:
    """Return a table of a request as arguments.

    Args:
        message: the table.
        field: its path in the request.
        depth: of the table within others.

    Raises:
        CallError: INVALID_ARGUMENT.
    """
    _check_depth(field, depth)
    found: dict[str, Any] = {}
    for name, value in message.fields.items():
        byte_count = len(name.encode())
        if byte_count > NAME_BYTES_MAX:
            rule = f"a name must have at most {NAME_BYTES_MAX} bytes, not {byte_count}"
            raise bad_field(f'{field}.fields["{name[:20]}..."]', rule)
        found[name] = _read(value, f'{field}.fields["{name}"]', depth)
    return found


def _read(value: Value, field: str, depth: int) -> Any:
    kind = value.WhichOneof("kind")
    if kind is None or kind == "none":
        return None
    given = getattr(value, kind)
    if kind in _SIMPLE:
        return given
    if kind in _RANGES:
        low, high = _RANGES[kind]
        if not low <= given <= high:
            raise bad_field(f"{field}.{kind}", f"must be {low} to {high}, not {given}")
        return given
    if kind == "table":
        return read_table(given, f"{field}.table", depth + 1)
    if kind == "array":
        _check_depth(f"{field}.array", depth + 1)
        return [
            _read(each, f"{field}.array.values[{at}]", depth + 1)
            for at, each in enumerate(given.values)
        ]
    rule = "an argument must be a boolean, a number, a text, bytes, a table or an array"
    raise bad_field(f"{field}.{kind}", rule)


def _check_depth(field: str, depth: int) -> None:
    if depth > TABLE_DEPTH_MAX:
        raise bad_field(field, f"tables and arrays must nest at most {TABLE_DEPTH_MAX} deep")


def written_table(arguments: Mapping[str, Any]) -> Table:
    """Return stored arguments as a table."""
    return Table(fields={name: _written(value) for name, value in arguments.items()})


def _written(value: Any) -> Value:
    if value is None:
        return Value(none=0)  # type: ignore[arg-type]  # NULL_UNSPECIFIED
    if isinstance(value, bool):
        return Value(boolean=value)
    if isinstance(value, int):
        if -INT64_MAX - 1 <= value <= INT64_MAX:
            return Value(int64=value)
        return Value(string=str(value))  # nobody writes such a one, and AMQP has no type for it
    if isinstance(value, float):
        return Value(double=value)
    if isinstance(value, bytes):
        return Value(bytes=value)
    if isinstance(value, Mapping):
        return Value(table=written_table(value))
    if isinstance(value, list | tuple):
        return Value(array=Array(values=[_written(each) for each in value]))
    return Value(string=str(value))
