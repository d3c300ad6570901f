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
    """Return the bytes that carry an argument that was checked: a field table with `x-filter`."""
    return encode.field_table({X_FILTER: value})


def decode_filter(data: bytes) -> Filter:
    """Return the filter in what `encode_filter` gave; SelectorError where it is not known."""
    if FieldWalker().table(data, 0, len(data)) != len(data):
        raise SelectorError("the bytes are no field table")
    return make_filter(decode.field_table(data)[1].get(X_FILTER))
