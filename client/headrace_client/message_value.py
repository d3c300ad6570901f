"""Values read from protobuf messages that have fields of the same names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from headrace_client.value import decode_table
from headrace_protos.broker.v1.value_pb2 import Table

T = TypeVar("T")


def read_value(kind: type[T], message: Any, /, **given: Any) -> T:
    """Return a dataclass or named tuple with the fields of a message.

    Repeated fields become tuples, maps and tables of headers dicts, messages values of the kind
    that the annotation names. A field `... | None` is None where the message does not have it.

    Args:
        kind: of the value.
        message: any with a field for each of the value's but those given.
        given: fields that are not read.
    """
    readers = _readers(kind)  # type: ignore[arg-type]  # types have hashes
    read = {name: reader(message, name) for name, reader in readers.items() if name not in given}
    return kind(**read, **given)


@functools.cache
def _readers(kind: type[Any]) -> dict[str, Callable[[Any, str], Any]]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


def _reader(hint: Any) -> Callable[[Any, str], Any]:
    """Return what reads a field with this annotation from a message, by its name."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType and type(None) in arguments:
        present = _reader(arguments[0])
        return lambda message, name: present(message, name) if message.HasField(name) else None
    if origin is tuple:
        element = _element(arguments[0])
        return lambda message, name: tuple(map(element, getattr(message, name)))
    if origin is Mapping:
        return functools.partial(_read_mapping, _element(arguments[1]))
    element = _element(hint)
    return lambda message, name: element(getattr(message, name))


def _element(hint: Any) -> Callable[[Any], Any]:
    is_value = is_dataclass(hint) or hasattr(hint, "_fields")
    return functools.partial(read_value, hint) if is_value else lambda value: value


def _read_mapping(element: Callable[[Any], Any], message: Any, name: str) -> dict[str, Any]:
    found = getattr(message, name)
    if isinstance(found, Table):
        return decode_table(found)
    return {key: element(found[key]) for key in found}
