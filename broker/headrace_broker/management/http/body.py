"""Bodies of requests: JSON objects as typed values, or a refusal that names field and rule."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from headrace_broker.management.http.answer import ApiError, bad_request
from headrace_broker.model import limits

T = TypeVar("T")

_WHERE: Final = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")


async def decode(request: web.Request, kind: type[T]) -> T:
    """Return the request's body as a value of a type; fields that it does not know are ignored.

    Numbers and booleans may come as text, as in RabbitMQ. No body is an empty object.

    Raises:
        ApiError: 400, the body is no JSON object, or a field is missing or breaks its rule; 413, it
            has more than REQUEST_BODY_BYTES_MAX bytes.
    """
    return decoded(await _read(request, limits.REQUEST_BODY_BYTES_MAX), kind)


class LargeBodies:
    """Bodies that are larger than others: few of them are read and worked at at once."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(limits.LARGE_BODIES_MAX)

    @contextlib.asynccontextmanager
    async def decoded(
        self,
        request: web.Request,
        kind: type[T],
        # raises ApiError 400 for bytes that would be too many values
        check: Callable[[bytes], None] = lambda text: None,
    ) -> AsyncIterator[T]:
        """Give the body as `decode` does, with up to LARGE_BODY_BYTES_MAX bytes.

        What takes any values at all has to bound them by `check` or by being msgspec.Raw.
        """
        async with self._slots:
            text = await _read(request, limits.LARGE_BODY_BYTES_MAX)
            check(text)
            yield decoded(text, kind)


async def _read(request: web.Request, bytes_max: int) -> bytes:
    try:
        async with asyncio.timeout(limits.BODY_SECONDS_MAX):
            return await request.clone(client_max_size=bytes_max).read()
    except web.HTTPRequestEntityTooLarge:
        reason = f"body: must have at most {bytes_max} bytes"
        raise ApiError(413, "payload_too_large", reason) from None
    except TimeoutError:
        reason = f"body: must be there within {limits.BODY_SECONDS_MAX} s"
        raise ApiError(408, "request_timeout", reason) from None


def decoded(text: bytes, kind: type[T], field: str = "") -> T:
    """Return UTF-8 JSON as a value of a type, "" as an empty object; only what the type asks for.

    Raises ApiError 400: it is none, or a field (below `field` of the body) breaks its rule.
    """
    text = text.strip() or b"{}"
    try:
        text.decode()  # also what is skipped
        if not text.startswith(b"{"):
            msgspec.json.decode(text, type=msgspec.Raw)  # what is no JSON at all is told so
            raise bad_request(f"{field or 'body'}: must be a JSON object")
        return msgspec.json.decode(text, type=kind, strict=False)
    except msgspec.ValidationError as error:
        raise bad_request(_explain(str(error), field)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"body: is not JSON: {error}") from None


def converted(data: Any, kind: type[T]) -> T:
    """Return a value of a type that JSON stands for; ApiError 400 where a field breaks its rule."""
    try:
        return msgspec.convert(data, kind, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise bad_request(_explain(str(error))) from None


def _explain(error: str, within: str = "") -> str:
    match = _WHERE.fullmatch(error)
    assert match is not None
    what = match[1]
    where = ".".join(filter(None, (within, match[2]))) or "body"
    missing = _MISSING.fullmatch(what)
    if missing is not None:
        field = missing[1] if where == "body" else f"{where}.{missing[1]}"
        return f"{field}: is missing"
    return f"{where}: {what[:1].lower()}{what[1:]}"
