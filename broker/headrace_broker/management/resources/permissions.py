"""/api/permissions."""

from __future__ import annotations

from typing import NotRequired

import msgspec
from aiohttp import web
from typing_extensions import TypedDict

from headrace_broker.catalog.command import DeletePermission, PutPermission
from headrace_broker.catalog.proposal import permission_defect
from headrace_broker.management.http.access import administrator
from headrace_broker.management.http.administration import Administration, known_user, known_vhost
from headrace_broker.management.http.answer import check, done, json_answer, not_found
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import ADMINISTRATOR, Route, deleted, got, listed, put
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


class PermissionEndpoints:
    """Answers requests about what users may."""

    def __init__(self, node: Administration) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return the route table."""
        return [
            listed(
                "/api/users/{user}/permissions",
                self._permissions_of_user,
                "What a user may do.",
                PermissionView,
                ADMINISTRATOR,
            ),
            listed(
                "/api/vhosts/{vhost}/permissions",
                self._permissions_in_vhost,
                "What users may do in a vhost.",
                PermissionView,
                ADMINISTRATOR,
            ),
            listed(
                "/api/permissions",
                self._permissions,
                "What users may do.",
                PermissionView,
                ADMINISTRATOR,
            ),
            got(
                "/api/permissions/{vhost}/{user}",
                self._permission,
                "What a user may do in a vhost.",
                PermissionView,
                ADMINISTRATOR,
            ),
            put(
                "/api/permissions/{vhost}/{user}",
                self._put_permission,
                "Say what a user may do in a vhost.",
                PermissionBody,
                ADMINISTRATOR,
            ),
            deleted(
                "/api/permissions/{vhost}/{user}",
                self._delete_permission,
                "Take away what a user may do in a vhost.",
                ADMINISTRATOR,
            ),
        ]

    async def _permissions(self, request: web.Request) -> web.Response:
        administrator()
        return await _permissions_listed(request, self._node.view.permissions())

    async def _permissions_of_user(self, request: web.Request) -> web.Response:
        administrator()
        user = await known_user(self._node, request)
        found = [each for each in self._node.view.permissions() if each.user == user.name]
        return await _permissions_listed(request, found)

    async def _permissions_in_vhost(self, request: web.Request) -> web.Response:
        administrator()
        vhost = await known_vhost(self._node, request)
        return await _permissions_listed(request, self._node.view.permissions(vhost))

    async def _permission(self, request: web.Request) -> web.Response:
        administrator()
        vhost = await known_vhost(self._node, request)
        user = await known_user(self._node, request)
        found = self._node.view.permission(user.name, vhost)
        if found is None:
            raise not_found(f"permission of user '{user.name}' in vhost '{vhost}'")
        return json_answer(_described(found))

    async def _put_permission(self, request: web.Request) -> web.Response:
        administrator()
        body = await decode(request, PermissionBody)
        user, vhost = request.match_info["user"], request.match_info["vhost"]
        created = self._node.view.permission(user, vhost) is None
        permission = Permission(user, vhost, body.configure, body.write, body.read)
        check(await self._node.submit(PutPermission(permission)))
        return done(created)

    async def _delete_permission(self, request: web.Request) -> web.Response:
        administrator()
        user, vhost = request.match_info["user"], request.match_info["vhost"]
        check(await self._node.submit(DeletePermission(user, vhost)))
        return done()


async def _permissions_listed(request: web.Request, rows: list[Permission]) -> web.Response:
    return await listing(request, rows, _described, name=_permitted)


def _permitted(row: Permission) -> str:
    return row.user


def _described(told: Permission) -> PermissionView:
    view = PermissionView(
        user=told.user,
        vhost=told.vhost,
        configure=told.configure,
        write=told.write,
        read=told.read,
    )
    if problem := permission_defect(told):
        view["problem"] = problem
    return view
