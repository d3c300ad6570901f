"""/api/topic-permissions."""

from __future__ import annotations

import msgspec
from aiohttp import web

from headrace_broker.catalog.command import DeleteTopicPermissions, PutTopicPermission
from headrace_broker.management.http.access import administrator
from headrace_broker.management.http.administration import Administration, known_user, known_vhost
from headrace_broker.management.http.answer import check, done, json_answer, not_found
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import (
    ADMINISTRATOR,
    Handler,
    Route,
    deleted,
    got,
    listed,
    put,
)
from headrace_broker.model.definition import TopicPermission


class TopicPermissionBody(msgspec.Struct):
    """Body of PUT /api/topic-permissions/V/U."""

    exchange: str
    write: str
    read: str


class TopicPermissionEndpoints:
    """Answers requests about routing keys that users may use at topic exchanges."""

    def __init__(self, node: Administration) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return the route table."""
        every, mine = "/api/topic-permissions", "/api/topic-permissions/{vhost}/{user}"
        one = mine + "/{exchange}"
        return [
            self._listed(every, self._list, "Topic permissions."),
            self._listed("/api/users/{user}/topic-permissions", self._of_user, "Of a user."),
            self._listed("/api/vhosts/{vhost}/topic-permissions", self._in_vhost, "In a vhost."),
            self._listed(mine, self._of_user_in_vhost, "Of a user in a vhost."),
            put(
                mine,
                self._put,
                "Say which routing keys a user may use at a topic exchange.",
                TopicPermissionBody,
                ADMINISTRATOR,
            ),
            deleted(mine, self._delete, "Let a user use any in a vhost.", ADMINISTRATOR),
            got(one, self._get, "Of a user at an exchange.", TopicPermission, ADMINISTRATOR),
            deleted(one, self._delete, "Let a user use any at an exchange.", ADMINISTRATOR),
        ]

    def _listed(self, path: str, handler: Handler, summary: str) -> Route:
        return listed(path, handler, summary, TopicPermission, ADMINISTRATOR)

    async def _list(self, request: web.Request) -> web.Response:
        administrator()
        return await _listed(request, self._node.view.topic_permissions())

    async def _of_user(self, request: web.Request) -> web.Response:
        administrator()
        user = await known_user(self._node, request)
        return await _listed(request, self._found(user.name, None))

    async def _in_vhost(self, request: web.Request) -> web.Response:
        administrator()
        vhost = await known_vhost(self._node, request)
        return await _listed(request, self._node.view.topic_permissions(vhost))

    async def _of_user_in_vhost(self, request: web.Request) -> web.Response:
        administrator()
        vhost = await known_vhost(self._node, request)
        user = await known_user(self._node, request)
        return await _listed(request, self._found(user.name, vhost))

    def _found(self, user: str, vhost: str | None) -> list[TopicPermission]:
        return [each for each in self._node.view.topic_permissions(vhost) if each.user == user]

    async def _get(self, request: web.Request) -> web.Response:
        administrator()
        vhost = await known_vhost(self._node, request)
        user = await known_user(self._node, request)
        exchange = request.match_info["exchange"]
        found = self._node.view.topic_permission(user.name, vhost, exchange)
        if found is None:
            where = f"at exchange '{exchange}' in vhost '{vhost}'"
            raise not_found(f"topic permission of user '{user.name}' {where}")
        return json_answer(msgspec.to_builtins(found))

    async def _put(self, request: web.Request) -> web.Response:
        administrator()
        body = await decode(request, TopicPermissionBody)
        user, vhost = request.match_info["user"], request.match_info["vhost"]
        created = self._node.view.topic_permission(user, vhost, body.exchange) is None
        told = TopicPermission(user, vhost, body.exchange, body.write, body.read)
        check(await self._node.submit(PutTopicPermission(told)))
        return done(created)

    async def _delete(self, request: web.Request) -> web.Response:
        administrator()
        user, vhost = request.match_info["user"], request.match_info["vhost"]
        exchange = request.match_info.get("exchange", "")
        check(await self._node.submit(DeleteTopicPermissions(user, vhost, exchange)))
        return done()


async def _listed(request: web.Request, rows: list[TopicPermission]) -> web.Response:
    return await listing(request, rows, msgspec.structs.asdict, name=_named)


def _named(row: TopicPermission) -> str:
    return row.user
