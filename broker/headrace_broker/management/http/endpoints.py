"""Parts of the API: classes whose methods are decorated with the routes that they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from aiohttp import web

from headrace_broker.catalog.access import check_sees
from headrace_broker.catalog.command import AnyCommand
from headrace_broker.catalog.permission import DEFAULT_EXCHANGE_NAME, READ
from headrace_broker.management.http.access import caller, check_allowed, check_enters
from headrace_broker.management.http.answer import check, not_found
from headrace_broker.management.http.route import Route
from headrace_broker.model.definition import (
    Exchange,
    Node,
    Permission,
    Queue,
    TopicPermission,
    User,
    Vhost,
)
from headrace_broker.runtime.administration.administration import NodeAdministration
from headrace_broker.runtime.administration.status import NodeStatusSource

T = TypeVar("T")
P = TypeVar("P", Permission, TopicPermission)


class Endpoints:
    """Answers the routes that its methods are decorated with; see `route.listed` and the like."""

    def __init__(self, node: NodeAdministration, source: NodeStatusSource) -> None:
        self._node = node  # what is looked at and changed through it
        self._source = source  # what the node tells of itself; asked at each request

    def routes(self) -> list[Route]:
        """Return the route table."""
        return self.decorated(type(self))

    def decorated(self, kind: type[Endpoints]) -> list[Route]:
        """Return the routes of the methods that a class has of its own, in their order."""
        return [
            row._replace(handler=getattr(self, name))
            for name, method in vars(kind).items()
            for row in getattr(method, "routes", ())
        ]

    async def _submit(self, command: AnyCommand) -> Any:
        """Change the catalog and return its result; ApiError where nothing changed."""
        return check(await self._node.submit(command))

    async def _find_or_404(self, find: Callable[[], T | None], what: str) -> T:
        """Return what is looked for, after catching up if need be; ApiError 404 without."""
        found = find()
        if found is None:
            await self._node.catch_up()
            found = find()
        if found is None:
            raise not_found(what)
        return found

    async def _known_node(self, name: str) -> Node:
        """Return a node of the cluster by its name; 404 where there is none."""
        return await self._find_or_404(lambda: self._node.view.node_named(name), f"node '{name}'")

    async def _known_vhost(self, request: web.Request) -> str:
        """Return the vhost that a path names; 404 without, ACCESS_REFUSED to who may not know."""
        vhost, who, view = request.match_info["vhost"], caller(), self._node.view
        if not who.sees(view, vhost):
            await self._node.catch_up()
            check_sees(who, view, vhost)
        await self._find_or_404(lambda: view.vhost(vhost), f"vhost '{vhost}'")
        return vhost

    async def _asked_vhost(self, request: web.Request) -> str | None:
        """Return the vhost that a path names, see `_known_vhost`; None where it names none."""
        return await self._known_vhost(request) if "vhost" in request.match_info else None

    async def _asked_vhosts(self, request: web.Request) -> list[str]:
        """Return the vhost that a path names; where it names none, all that the caller sees."""
        named = await self._asked_vhost(request)
        return [each.name for each in self._seen_vhosts()] if named is None else [named]

    def _seen_vhosts(self) -> list[Vhost]:
        """Return the vhosts that the caller sees."""
        who, view = caller(), self._node.view
        return [vhost for vhost in view.vhosts() if who.sees(view, vhost.name)]

    async def _known_user(self, request: web.Request) -> User:
        """Return the user that a path names; 404 where there is none."""
        name = request.match_info["user"]
        return await self._find_or_404(lambda: self._node.view.user(name), f"user '{name}'")

    async def _of_asked_user(
        self, request: web.Request, found: Callable[[str | None], list[P]]
    ) -> list[P]:
        """Return what is found of the user that a path names, or of all, in its vhost or in all."""
        vhost = await self._asked_vhost(request)
        if "user" not in request.match_info:
            return found(vhost)
        user = await self._known_user(request)
        return [each for each in found(vhost) if each.user == user.name]

    async def _known_queue(self, vhost: str, name: str) -> Queue:
        """Return a queue; 404 where there is none."""
        what = f"queue '{name}' in vhost '{vhost}'"
        return await self._find_or_404(lambda: self._node.view.queue(vhost, name), what)

    async def _path_queue(self, request: web.Request) -> Queue:
        """Return the queue that a path names; see `_known_vhost`."""
        vhost = await self._known_vhost(request)
        return await self._known_queue(vhost, request.match_info["queue"])

    async def _readable_queue(self, request: web.Request) -> Queue:
        """Return the queue that a path names, from which the asker may read."""
        vhost, name, who = await self._known_vhost(request), request.match_info["queue"], caller()
        check_enters(who, self._node.view, vhost)
        check_allowed(who, self._node.view, vhost, READ, "queue", name)
        return await self._known_queue(vhost, name)

    async def _known_exchange(self, vhost: str, name: str) -> Exchange:
        """Return an exchange; "" and "amq.default" are the default one. 404 where there is none."""
        name = exchange_name(name)
        if not name:
            return Exchange(vhost, "", "direct")
        what = f"exchange '{name}' in vhost '{vhost}'"
        return await self._find_or_404(lambda: self._node.view.exchange(vhost, name), what)


def exchange_name(name: str) -> str:
    """Return the name of an exchange that a request names; "amq.default" stands for ""."""
    return "" if name == DEFAULT_EXCHANGE_NAME else name
