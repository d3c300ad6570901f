"""Filters as tables: conditions on headers and properties by name.

A value is what the header must equal, a list what it must be one of, void that it is there, and a
table gives bounds: `gt`, `gte`, `lt`, `lte` for numbers and texts, `ne`. All conditions have to
hold, or with `x-match` "any" one of them.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from headrace_broker.core.filter.condition import (
    EQUAL,
    GREATER,
    GREATER_OR_EQUAL,
    LESS,
    LESS_OR_EQUAL,
    UNEQUAL,
    Comparison,
    Every,
    Expression,
    Literal,
    Missing,
    Not,
    OneOf,
    Some,
)
from headrace_broker.core.filter.selector_lexer import SelectorError
from headrace_broker.core.filter.selector_parser import name_expression
from headrace_broker.model.limits import SELECTOR_NODES_MAX

X_MATCH: Final = "x-match"
_BOUNDS: Final = {
    "gt": GREATER,
    "gte": GREATER_OR_EQUAL,
    "lt": LESS,
    "lte": LESS_OR_EQUAL,
    "ne": UNEQUAL,
}


def table_condition(table: dict[str, object]) -> Expression:
    """Return the condition that a table of plain values says, true for an empty one.

    Raises SelectorError: the text names the key and the rule that it breaks.
    """
    mode = table.get(X_MATCH, "all")
    if mode != "all" and mode != "any":
        raise SelectorError(f"{X_MATCH}: {mode!r} is neither 'all' nor 'any'")
    parts: list[Expression] = []
    nodes: i64 = 0
    for name, value in table.items():
        if name != X_MATCH:
            nodes += 2 + (len(value) if isinstance(value, (list, dict)) else 0)
            parts.append(_part(name, value))
    if nodes > SELECTOR_NODES_MAX:
        raise SelectorError(f"more than {SELECTOR_NODES_MAX} names and values")
    return Every(parts) if mode == "all" or not parts else Some(parts)


def _part(name: str, value: object) -> Expression:
    try:
        subject = name_expression(name)
    except KeyError:
        raise SelectorError(f"{name}: there is no such property") from None
    if value is None:
        return Not(Missing(subject))
    if isinstance(value, list):
        return OneOf(subject, [_literal(name, item) for item in value])
    if isinstance(value, dict):
        return _bounds(name, subject, value)
    return Comparison(EQUAL, subject, _literal(name, value), False)


def _bounds(name: str, subject: Expression, bounds: dict[str, object]) -> Expression:
    if not bounds:
        raise SelectorError(f"{name}: a table without bounds; there are {', '.join(_BOUNDS)}")
    parts: list[Expression] = []
    for key, value in bounds.items():
        operator = _BOUNDS.get(key)
        if operator is None:
            raise SelectorError(f"{name}: no bound '{key}'; there are {', '.join(_BOUNDS)}")
        literal = _literal(f"{name}.{key}", value)
        if operator != UNEQUAL and isinstance(literal.value, bool):
            raise SelectorError(f"{name}.{key}: a boolean is no bound")
        parts.append(Comparison(operator, subject, literal, True))
    return Every(parts)


def _literal(name: str, value: object) -> Literal:
    if isinstance(value, (bool, int, float)):
        return Literal(value)
    if isinstance(value, str):
        return Literal(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, (bytes, bytearray)):
        return Literal(bytes(value))
    raise SelectorError(f"{name}: a {type(value).__name__} cannot be compared with")
