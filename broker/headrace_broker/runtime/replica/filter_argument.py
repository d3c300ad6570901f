"""The argument `x-filter` of a consumer: checked at its gateway, applied where the queue is led."""

from __future__ import annotations

from typing import Any, Final

from pamqp import decode, encode

from headrace_broker.codecs.field import FieldWalker
from headrace_broker.core.filter.selector import Filter, make_filter
from headrace_broker.core.filter.selector_lexer import SelectorError

X_FILTER: Final = "x-filter"


def filter_problem(value: object) -> str:
    """Return the error in the argument `x-filter` of basic.consume: rule and place; or ""."""
    try:
        make_filter(value)
    except SelectorError as error:
        return str(error)
    return ""


def encode_filter(value: Any) -> bytes:
    """Return the octets that carry an argument that was checked: a field table with `x-filter`."""
    return encode.field_table({X_FILTER: value})


def decode_filter(octets: bytes) -> Filter:
    """Return the filter in what `encode_filter` gave, perhaps on a node of another version.

    Raises:
        SelectorError: this version knows no such filter.
    """
    if FieldWalker().table(octets, 0, len(octets)) != len(octets):
        raise SelectorError("the octets are no field table")
    return make_filter(decode.field_table(octets)[1].get(X_FILTER))
