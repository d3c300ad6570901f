"""The web page of a node: its files, its log-ins, and what changes while it is open."""

from __future__ import annotations

from aiohttp import web

from headrace_broker.management.http.access import Caller
from headrace_broker.management.http.administration import Administration
from headrace_broker.management.http.route import Route
from headrace_broker.management.http.status_source import StatusSource
from headrace_broker.management.page.events import PageEvents
from headrace_broker.management.page.feed import Feed
from headrace_broker.management.page.files import PageFiles
from headrace_broker.management.page.login import PageLogin
from headrace_broker.management.page.pace import Pace
from headrace_broker.management.page.view_query import ViewQuery


class Page:
    """Puts the parts of the page together.

    Args:
        node: access to its state and operations.
        status: of this node.
    """

    def __init__(self, node: Administration, status: StatusSource) -> None:
        self._login = PageLogin(node, status)
        pace = Pace()
        self._feed = Feed(lambda: ViewQuery(node, status, pace))

    def routes(self) -> list[Route]:
        """Return the route table: nothing that belongs to the API."""
        events = PageEvents(self._feed, self._login)
        return [*PageFiles().routes(), *self._login.routes(), *events.routes()]

    async def caller(self, request: web.Request) -> Caller | None:
        """Return the user who is logged in at the requesting page, None without one.

        Raises:
            ApiError: 403, it changes something and does not come from the page.
        """
        return await self._login.caller(request)

    async def stop(self) -> None:
        """Send nothing more to anybody."""
        await self._feed.stop()
