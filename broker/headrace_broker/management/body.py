"""Bodies of requests: JSON objects as typed values, or a refusal that names field and rule."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from headrace_broker.management.answer import bad_request

T = TypeVar("T")

_WHERE: Final = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")


async def decode(request: web.Request, kind: type[T]) -> T:
    """Return the request's body as a value of a type; fields that it does not know are ignored.

    Numbers and booleans may come as text, as in RabbitMQ. No body is an empty object.

    Raises:
        ApiError: 400, the body is no JSON object, or a field is missing or breaks its rule.
    """
    text = await request.read()
    try:
        data: Any = msgspec.json.decode(text) if text.strip() else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"body: is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise bad_request("body: must be a JSON object")
    try:
        return msgspec.convert(data, kind, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise bad_request(_explain(str(error))) from None


def flag(request: web.Request, name: str) -> bool:
    """Return a boolean parameter of the query, False when it is not there.

    Raises:
        ApiError: 400, it is neither "true" nor "false".
    """
    value = request.query.get(name, "false")
    if value not in ("true", "false"):
        raise bad_request(f"{name}: must be true or false, not '{value}'")
    return value == "true"


def _explain(error: str) -> str:
    match = _WHERE.fullmatch(error)
    assert match is not None
    what, where = match[1], match[2] or "body"
    missing = _MISSING.fullmatch(what)
    if missing is not None:
        field = missing[1] if where == "body" else f"{where}.{missing[1]}"
        return f"{field}: is missing"
    return f"{where}: {what[:1].lower()}{what[1:]}"
