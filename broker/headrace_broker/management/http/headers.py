"""Headers that every answer of the HTTP API has, for browsers and for who looks for versions."""

from __future__ import annotations

from typing import Final

from aiohttp import hdrs, web

SERVER: Final = "Headrace"  # and no version: who may know asks `/api/overview`
API_PREFIX: Final = "/api"
_NO_SNIFFING: Final = "X-Content-Type-Options"


def protect(answer: web.StreamResponse, path: str) -> None:
    """Forbid sniffing of content types, and storing of the API's answers; before it is sent."""
    answer.headers[hdrs.SERVER] = SERVER
    answer.headers[_NO_SNIFFING] = "nosniff"
    if not path or path == API_PREFIX or path.startswith(f"{API_PREFIX}/"):
        answer.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")


async def protect_prepared(request: web.Request, answer: web.StreamResponse) -> None:
    """Likewise, as a signal of aiohttp's before an answer leaves."""
    protect(answer, request.path)
