"""Origin checks: browsers send log-ins by themselves, for pages of other sites as well."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from headrace_broker.management.http.answer import forbidden

CHANGE_HEADER: Final = "X-Headrace-Change"  # only scripts of the web page can send it
PAGE_PREFIX: Final = "/page/"
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def is_of_page(request: web.Request) -> bool:
    """Return whether a request comes from the web page, which asks for a log-in itself."""
    return CHANGE_HEADER in request.headers or request.path.startswith(PAGE_PREFIX)


def check_origin(request: web.Request) -> None:
    """Refuse a change that another page has a browser ask for.

    Raises:
        ApiError: 403.
    """
    if request.method in SAFE:
        return
    told = "Sec-Fetch-Site" in request.headers
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    origin = request.headers.get("Origin", "")
    # A proxy may change Host, but then browsers say by themselves that it is the same origin.
    same = not origin or told or origin.partition("://")[2] == request.headers.get("Host", "")
    if site not in ("same-origin", "none") or not same:
        raise forbidden("Origin: must be this node's own page, or none")
