"""/api/topic-permissions."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Final

import msgspec
from aiohttp import web

from headrace_broker.catalog.command import DeleteTopicPermissions, PutTopicPermission
from headrace_broker.management.http.answer import done, json_answer, not_found
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import ADMINISTRATOR, H, deleted, got, listed, put
from headrace_broker.model.definition import TopicPermission

_MINE: Final = "/api/topic-permissions/{vhost}/{user}"
_ONE: Final = _MINE + "/{exchange}"


class TopicPermissionBody(msgspec.Struct):
    """Body of PUT /api/topic-permissions/V/U."""

    exchange: str
    write: str
    read: str


def _told(path: str, summary: str) -> Callable[[H], H]:
    return listed(path, summary, TopicPermission, ADMINISTRATOR)


class TopicPermissionEndpoints(Endpoints):
    """Answers requests about routing keys that users may use at topic exchanges."""

    @_told("/api/topic-permissions", "Topic permissions.")
    @_told("/api/users/{user}/topic-permissions", "Of a user.")
    @_told("/api/vhosts/{vhost}/topic-permissions", "In a vhost.")
    @_told(_MINE, "Of a user in a vhost.")
    async def _list(self, request: web.Request) -> web.Response:
        found = await self._of_asked_user(request, self._node.view.topic_permissions)
        return await listing(request, found, msgspec.structs.asdict, name=attrgetter("user"))

    @got(_ONE, "Of a user at an exchange.", TopicPermission, ADMINISTRATOR)
    async def _get(self, request: web.Request) -> web.Response:
        vhost = await self._known_vhost(request)
        user = await self._known_user(request)
        exchange = request.match_info["exchange"]
        found = self._node.view.topic_permission(user.name, vhost, exchange)
        if found is None:
            where = f"at exchange '{exchange}' in vhost '{vhost}'"
            raise not_found(f"topic permission of user '{user.name}' {where}")
        return json_answer(msgspec.to_builtins(found))

    @put(
        _MINE,
        "Say which routing keys a user may use at a topic exchange.",
        TopicPermissionBody,
        ADMINISTRATOR,
    )
    async def _put(self, request: web.Request) -> web.Response:
        body = await decode(request, TopicPermissionBody)
        user, vhost = request.match_info["user"], request.match_info["vhost"]
        created = self._node.view.topic_permission(user, vhost, body.exchange) is None
        told = TopicPermission(user, vhost, body.exchange, body.write, body.read)
        await self._submit(PutTopicPermission(told))
        return done(created)

    @deleted(_MINE, "Let a user use any in a vhost.", ADMINISTRATOR)
    @deleted(_ONE, "Let a user use any at an exchange.", ADMINISTRATOR)
    async def _delete(self, request: web.Request) -> web.Response:
        user, vhost = request.match_info["user"], request.match_info["vhost"]
        exchange = request.match_info.get("exchange", "")
        await self._submit(DeleteTopicPermissions(user, vhost, exchange))
        return done()
