"""The web page of a node: its files, its log-ins, and what changes while it is open."""

from __future__ import annotations

from aiohttp import web

from headrace_broker.management.http.access import Caller
from headrace_broker.management.http.route import Route
from headrace_broker.management.page.events import PageEvents
from headrace_broker.management.page.feed import Feed
from headrace_broker.management.page.files import PageFiles
from headrace_broker.management.page.login import PageLogin
from headrace_broker.management.page.view_query import ViewQuery
from headrace_broker.management.view.pace import Pace
from headrace_broker.runtime.administration.administration import NodeAdministration
from headrace_broker.runtime.administration.status import NodeStatusSource


class Page:
    """Puts the parts of the page together."""

    def __init__(self, node: NodeAdministration, status: NodeStatusSource) -> None:
        self._login = PageLogin(node, status)
        pace = Pace()
        self._feed = Feed(lambda: ViewQuery(node, status, pace))

    def routes(self) -> list[Route]:
        """Return the route table: nothing that belongs to the API."""
        events = PageEvents(self._feed, self._login)
        return [*PageFiles().routes(), *self._login.routes(), *events.routes()]

    async def caller(self, request: web.Request) -> Caller | None:
        """Return who is logged in at the page, None for nobody; ApiError 403 likewise."""
        return await self._login.caller(request)

    async def stop(self) -> None:
        """Send nothing more to anybody."""
        await self._feed.stop()
