"""GET /page/events: what changes in a view, as server-sent events.

Source: WHATWG HTML, server-sent events. Events are `cluster` (what stands in the page's head) and
`view`; their data are {"whole", "put", "gone", "at"}, see `board.Change`.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec
from aiohttp import web

from headrace_broker.management.access import Caller, caller
from headrace_broker.management.answer import ApiError, bad_request
from headrace_broker.management.origin import PAGE_PREFIX
from headrace_broker.management.page.board import Change
from headrace_broker.management.page.feed import Feed, FeedOverError, Seat, TooManyError, View
from headrace_broker.management.page.login import PageLogin
from headrace_broker.management.page.look import KINDS
from headrace_broker.management.route import Route
from headrace_broker.model.limits import NAME_OCTETS_MAX, PAGE_WRITE_SECONDS_MAX

CLUSTER: Final = View("cluster")
RETRY_MS: Final = 2000  # after which a page that was cut off comes back
HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # proxies are to pass events on at once
}


class PageEvents:
    """Sends changes until the page is closed, or the log-in is over.

    Args:
        feed: knows what has changed.
        login: says whose a request is.
    """

    def __init__(self, feed: Feed, login: PageLogin) -> None:
        self._feed = feed
        self._login = login

    def routes(self) -> list[Route]:
        """Return what is answered."""
        return [Route("GET", PAGE_PREFIX + "events", self._events, "What changes in a view.")]

    async def _events(self, request: web.Request) -> web.StreamResponse:
        who = caller()
        views = (CLUSTER, _view(request))
        try:
            seat = self._feed.join(who, views)
        except TooManyError as error:
            raise ApiError(503, "unavailable", str(error)) from None
        answer = web.StreamResponse(headers=HEADERS)
        try:
            await answer.prepare(request)
            await _write(answer, f"retry: {RETRY_MS}\n\n".encode())
            await self._send(request, answer, seat, who)
        except (FeedOverError, TimeoutError, ConnectionResetError):
            pass  # the page asks again when it is still there
        finally:
            self._feed.leave(seat)
        return answer

    async def _send(
        self, request: web.Request, answer: web.StreamResponse, seat: Seat, who: Caller
    ) -> None:
        # Otherwise it is a program with a password or certificate.
        of_page = await self._login.caller(request) is not None
        user = self._login.user(who)
        versions = [0] * len(seat.places)
        looks = self._feed.looks
        while True:
            text = b""
            for at, place in enumerate(seat.places):
                change = place.board.since(versions[at])
                if place.board.version and not change.is_empty():
                    text += _event("cluster" if at == 0 else "view", change)
                    versions[at] = change.version
            # A comment where nothing has changed: one finds out that nobody is there any more.
            await _write(answer, text or b":\n\n")
            looks = await self._feed.wait(looks)
            # Who was deleted, or has other tags or another password, begins anew.
            changed = self._login.user(who) != user
            if changed or (of_page and await self._is_over(request, who)):
                await _write(answer, b"event: over\ndata: {}\n\n")
                return

    async def _is_over(self, request: web.Request, who: Caller) -> bool:
        """Return whether the log-in at the page has ended, or allows something else by now."""
        return await self._login.caller(request) != who


def _view(request: web.Request) -> View:
    query = request.query
    view = View(query.get("view", ""), query.get("vhost", ""), query.get("name", ""))
    if view.kind not in KINDS:
        raise bad_request(f"view: must be one of {', '.join(sorted(KINDS))}")
    for field in ("vhost", "name"):
        if len(query.get(field, "").encode("utf-8", "surrogatepass")) > NAME_OCTETS_MAX:
            raise bad_request(f"{field}: must have at most {NAME_OCTETS_MAX} octets")
    return view


def _event(name: str, change: Change) -> bytes:
    data = {
        "at": time.time_ns() // 1_000_000,
        "whole": change.whole,
        "put": change.put,
        "gone": change.gone,
    }
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))


async def _write(answer: web.StreamResponse, text: bytes) -> None:
    async with asyncio.timeout(PAGE_WRITE_SECONDS_MAX):
        await answer.write(text)
