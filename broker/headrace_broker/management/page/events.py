"""GET /page/events: what changes in a view, as server-sent events.

Source: WHATWG HTML, server-sent events. Events are `cluster` (what stands in the page's head) and
`view`; their data are {"whole", "put", "gone", "at"}, see `board.Change`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

import msgspec
from aiohttp import web

from headrace_broker.management.http.access import PAGE_TOKEN, Caller, caller
from headrace_broker.management.http.answer import ApiError, bad_request
from headrace_broker.management.http.origin import PAGE_PREFIX
from headrace_broker.management.http.route import Route
from headrace_broker.management.page.feed import (
    Feed,
    FeedOverError,
    TooManyError,
    View,
    ViewSubscriber,
)
from headrace_broker.management.page.login import PageLogin
from headrace_broker.management.page.view_query import KINDS
from headrace_broker.management.page.view_state import Change
from headrace_broker.model.limits import NAME_BYTES_MAX, PAGE_REMOTE_S, PAGE_WRITE_SECONDS_MAX

CLUSTER: Final = View("cluster")
OVER: Final = b"event: over\ndata: {}\n\n"
RETRY_MS: Final = 2000  # after which a page that was cut off comes back
HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # proxies are to pass events on at once
}


class PageEvents:
    """Sends changes until the page is closed, or the log-in is over."""

    def __init__(self, feed: Feed, login: PageLogin) -> None:
        self._feed = feed  # knows what has changed
        self._login = login  # says whose a request is

    def routes(self) -> list[Route]:
        """Return the route table."""
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
            over = asyncio.Event()
            with self._login.watched(who, over.set):
                await answer.prepare(request)
                await _write(answer, f"retry: {RETRY_MS}\n\n".encode())
                await self._send_until(over, request, answer, seat, who)
            await _write(answer, OVER)
        except (FeedOverError, TimeoutError, ConnectionResetError):
            pass  # the page asks again when it is still there
        finally:
            self._feed.leave(seat)
        return answer

    async def _send_until(
        self,
        over: asyncio.Event,
        request: web.Request,
        answer: web.StreamResponse,
        seat: ViewSubscriber,
        who: Caller,
    ) -> None:
        """Send changes until the log-in is over, and nothing after that, read or not."""
        sending = asyncio.create_task(self._send(request, answer, seat, who))
        ending = asyncio.create_task(over.wait())
        try:
            await asyncio.wait((sending, ending), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, ending):
                task.cancel()
            await asyncio.gather(sending, ending, return_exceptions=True)

    async def _send(
        self, request: web.Request, answer: web.StreamResponse, seat: ViewSubscriber, who: Caller
    ) -> None:
        of_page = bool(PAGE_TOKEN.get())  # else it is a program with a password or certificate
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
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAGE_REMOTE_S):
                    looks = await self._feed.wait(looks)
            # Who was deleted, or has other tags or another password, begins anew.
            changed = self._login.user(who) != user
            if changed or (of_page and await self._is_over(request, who)):
                return

    async def _is_over(self, request: web.Request, who: Caller) -> bool:
        """Return whether the log-in at the page has ended, or allows something else by now."""
        try:
            return await self._login.caller(request) != who
        except ApiError:  # nobody can be asked, and there is no last word: the page asks again
            return True


def _view(request: web.Request) -> View:
    query = request.query
    view = View(query.get("view", ""), query.get("vhost", ""), query.get("name", ""))
    if view.kind not in KINDS:
        raise bad_request(f"view: must be one of {', '.join(sorted(KINDS))}")
    for field in ("vhost", "name"):
        if len(query.get(field, "").encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
            raise bad_request(f"{field}: must have at most {NAME_BYTES_MAX} bytes")
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
