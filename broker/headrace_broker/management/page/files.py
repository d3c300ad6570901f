"""The page's files, from memory: what browsers ask for again is answered in a few bytes."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Final, NamedTuple

from aiohttp import web

from headrace_broker.management.http.route import NOBODY, Handler, Route

PREFIX: Final = "/page/static/"
TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
# Nothing from elsewhere, no script or style in the text, no text that becomes either, no frame
# around it. A file is asked for again at each visit, and answered with 304 while it is the same.
HEADERS: Final = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "form-action 'none'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    ),
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class File(NamedTuple):
    """A file in the form in which it is sent."""

    content_type: str  # of its text, which is UTF-8
    tag: str  # its entity tag; another one for other contents. Weak, since it may be compressed.
    content: bytes


def load_files() -> dict[str, File]:
    """Return the files of the page by name, as they were installed."""
    found = {}
    for entry in resources.files(__package__).joinpath("static").iterdir():
        suffix = entry.name[entry.name.rfind(".") :]
        if suffix not in TYPES:
            continue
        content = entry.read_bytes()
        tag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'
        found[entry.name] = File(TYPES[suffix], tag, content)
    return found


class PageFiles:
    """Serves the page to anybody: it holds nothing of the cluster."""

    def __init__(self) -> None:
        self._files = load_files()

    def routes(self) -> list[Route]:
        """Return the route table."""
        paths = {"/": "index.html", **{PREFIX + name: name for name in self._files}}
        text = "A file of the web page."
        return [Route("GET", path, self._sender(paths[path]), text, NOBODY) for path in paths]

    def _sender(self, name: str) -> Handler:
        file = self._files[name]

        async def send(request: web.Request) -> web.StreamResponse:
            return _answer(request, file)

        return send


def _answer(request: web.Request, file: File) -> web.Response:
    headers = {**HEADERS, "ETag": file.tag}
    asked = request.headers.get("If-None-Match", "")
    if file.tag in (each.strip() for each in asked.split(",")):
        return web.Response(status=304, headers=headers)
    return web.Response(
        body=file.content, headers=headers, content_type=file.content_type, charset="utf-8"
    )
