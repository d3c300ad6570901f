"""/api/permissions."""

from __future__ import annotations

from operator import attrgetter
from typing import NotRequired

import msgspec
from aiohttp import web
from typing_extensions import TypedDict

from headrace_broker.catalog.command import DeletePermission, PutPermission
from headrace_broker.catalog.proposal import permission_defect
from headrace_broker.management.http.answer import done, json_answer, not_found
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import ADMINISTRATOR, deleted, got, listed, put
from headrace_broker.model.definition import Permission


class PermissionBody(msgspec.Struct):
    """Body of PUT /api/permissions/V/U."""

    configure: str
    write: str
    read: str


class PermissionView(TypedDict):
    """A permission as JSON; `problem` is why it allows nothing of an operation."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str
    problem: NotRequired[str]


class PermissionEndpoints(Endpoints):
    """Answers requests about what users may."""

    @listed("/api/permissions", "What users may do.", PermissionView, ADMINISTRATOR)
    @listed("/api/users/{user}/permissions", "What a user may do.", PermissionView, ADMINISTRATOR)
    @listed(
        "/api/vhosts/{vhost}/permissions",
        "What users may do in a vhost.",
        PermissionView,
        ADMINISTRATOR,
    )
    async def _permissions(self, request: web.Request) -> web.Response:
        found = await self._of_asked_user(request, self._node.view.permissions)
        return await listing(request, found, _described, name=attrgetter("user"))

    @got(
        "/api/permissions/{vhost}/{user}",
        "What a user may do in a vhost.",
        PermissionView,
        ADMINISTRATOR,
    )
    async def _permission(self, request: web.Request) -> web.Response:
        vhost = await self._known_vhost(request)
        user = await self._known_user(request)
        found = self._node.view.permission(user.name, vhost)
        if found is None:
            raise not_found(f"permission of user '{user.name}' in vhost '{vhost}'")
        return json_answer(_described(found))

    @put(
        "/api/permissions/{vhost}/{user}",
        "Say what a user may do in a vhost.",
        PermissionBody,
        ADMINISTRATOR,
    )
    async def _put_permission(self, request: web.Request) -> web.Response:
        body = await decode(request, PermissionBody)
        user, vhost = request.match_info["user"], request.match_info["vhost"]
        created = self._node.view.permission(user, vhost) is None
        permission = Permission(user, vhost, body.configure, body.write, body.read)
        await self._submit(PutPermission(permission))
        return done(created)

    @deleted(
        "/api/permissions/{vhost}/{user}", "Take away what a user may do in a vhost.", ADMINISTRATOR
    )
    async def _delete_permission(self, request: web.Request) -> web.Response:
        user, vhost = request.match_info["user"], request.match_info["vhost"]
        await self._submit(DeletePermission(user, vhost))
        return done()


def _described(told: Permission) -> PermissionView:
    view = PermissionView(
        user=told.user, vhost=told.vhost, configure=told.configure, write=told.write, read=told.read
    )
    if problem := permission_defect(told):
        view["problem"] = problem
    return view
