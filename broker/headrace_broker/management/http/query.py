"""Parameters of queries as typed values, or a refusal that names parameter and rule."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from headrace_broker.management.http.answer import bad_request
from headrace_broker.management.http.route import Parameter

DIGITS_MAX: Final = 19  # of the largest number that anything has
BOOLEAN: Final = {"type": "boolean"}

IF_UNUSED: Final = Parameter("if-unused", "Only if nobody uses it.", BOOLEAN)
IF_EMPTY: Final = Parameter("if-empty", "Only if it holds no message.", BOOLEAN)


def flag(request: web.Request, name: str) -> bool:
    """Return a boolean, False when it is not there; ApiError 400 unless "true" or "false"."""
    value = request.query.get(name, "false")
    if value not in ("true", "false"):
        raise bad_request(f"{name}: must be true or false, not '{value}'")
    return value == "true"


def number(request: web.Request, name: str, default: int, low: int, high: int) -> int:
    """Return a number; ApiError 400 where it is none, or out of range."""
    text = request.query.get(name)
    if text is None:
        return default
    return checked_number(name, text, low, high)


def checked_number(name: str, text: str, low: int, high: int) -> int:
    """Return the number that a text says; ApiError 400 where it says none, or one out of range."""
    if not (is_number(text) and low <= int(text) <= high):
        raise bad_request(f"{name}: must be a number from {low} to {high}, not '{text:.40}'")
    return int(text)


def is_number(text: str) -> bool:
    """Return whether a text is a number that is worth to be read: int() has a bound of its own."""
    return text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
