"""/api/whoami, /api/users, /api/user-limits and /api/permissions."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Any, Final

import msgspec
from aiohttp import web

from headrace_broker.catalog.command import (
    DeletePermission,
    DeleteUser,
    PutPermission,
    PutUser,
    SetUserLimits,
)
from headrace_broker.management.access import administrator, caller
from headrace_broker.management.administration import Administration, known_vhost
from headrace_broker.management.answer import bad_request, check, done, json_answer, not_found
from headrace_broker.management.body import decode
from headrace_broker.management.vhosts import LimitBody
from headrace_broker.model.definition import Permission, User
from headrace_broker.runtime.password import HASH_OCTETS, SALT_OCTETS, new_user

HASHING_ALGORITHM: Final = "scrypt"  # with the parameters of runtime/password.py


class UserBody(msgspec.Struct):
    """Body of PUT /api/users/U; without password and hash the user has no password."""

    tags: str | list[str]
    password: str | None = None
    password_hash: str | None = None
    hashing_algorithm: str | None = None


class PermissionBody(msgspec.Struct):
    """Body of PUT /api/permissions/V/U."""

    configure: str
    write: str
    read: str


class UserEndpoints:
    """Answers requests about users and what they may."""

    def __init__(self, node: Administration) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        """Return paths and handlers."""
        return [
            web.get("/api/whoami", self._whoami),
            web.get("/api/users", self._list),
            web.get("/api/users/{user}", self._get),
            web.put("/api/users/{user}", self._put),
            web.delete("/api/users/{user}", self._delete),
            web.get("/api/users/{user}/permissions", self._permissions_of_user),
            web.get("/api/vhosts/{vhost}/permissions", self._permissions_in_vhost),
            web.get("/api/permissions", self._permissions),
            web.get("/api/permissions/{vhost}/{user}", self._permission),
            web.put("/api/permissions/{vhost}/{user}", self._put_permission),
            web.delete("/api/permissions/{vhost}/{user}", self._delete_permission),
            web.get("/api/user-limits", self._all_limits),
            web.get("/api/user-limits/{user}", self._limits),
            web.put("/api/user-limits/{user}/{limit}", self._put_limit),
            web.delete("/api/user-limits/{user}/{limit}", self._delete_limit),
        ]

    async def _user(self, request: web.Request) -> User:
        """Return the user that the path names; raises ApiError 404."""
        name = request.match_info["user"]
        if self._node.view.user(name) is None:
            await self._node.catch_up()
        user = self._node.view.user(name)
        if user is None:
            raise not_found(f"user '{name}'")
        return user

    async def _whoami(self, request: web.Request) -> web.Response:
        who = caller()
        return json_answer({"name": who.name, "tags": list(who.tags)})

    async def _list(self, request: web.Request) -> web.Response:
        administrator()
        return json_answer([self._render(user) for user in self._node.view.users()])

    async def _get(self, request: web.Request) -> web.Response:
        administrator()
        return json_answer(self._render(await self._user(request)))

    def _render(self, user: User) -> dict[str, Any]:
        secret = base64.b64encode(user.salt + user.password_hash).decode()
        return {
            "name": user.name,
            "password_hash": secret if user.password_hash else "",
            "hashing_algorithm": HASHING_ALGORITHM,
            "tags": list(user.tags),
            "limits": self._node.view.user_limits(user.name),
        }

    async def _put(self, request: web.Request) -> web.Response:
        administrator()
        body = await decode(request, UserBody)
        name = request.match_info["user"]
        current = self._node.view.user(name)
        loopback_only = current is not None and current.loopback_only
        given = body.tags.split(",") if isinstance(body.tags, str) else body.tags
        tags = tuple(tag.strip() for tag in given if tag.strip())
        if body.password is not None:
            if body.password_hash is not None:
                raise bad_request("password_hash: is not allowed beside password")
            if not body.password:
                raise bad_request("password: must not be empty")
            user = await asyncio.to_thread(new_user, name, body.password, tags, loopback_only)
        else:
            salt, password_hash = _hash(body)
            user = User(name, salt, password_hash, tags, loopback_only)
        check(await self._node.submit(PutUser(user)))
        return done(created=current is None)

    async def _delete(self, request: web.Request) -> web.Response:
        administrator()
        check(await self._node.submit(DeleteUser(request.match_info["user"])))
        return done()

    # Permissions

    async def _permissions(self, request: web.Request) -> web.Response:
        administrator()
        return json_answer(msgspec.to_builtins(self._node.view.permissions()))

    async def _permissions_of_user(self, request: web.Request) -> web.Response:
        administrator()
        user = await self._user(request)
        found = [each for each in self._node.view.permissions() if each.user == user.name]
        return json_answer(msgspec.to_builtins(found))

    async def _permissions_in_vhost(self, request: web.Request) -> web.Response:
        administrator()
        vhost = await known_vhost(self._node, request)
        return json_answer(msgspec.to_builtins(self._node.view.permissions(vhost)))

    async def _permission(self, request: web.Request) -> web.Response:
        administrator()
        vhost = await known_vhost(self._node, request)
        user = await self._user(request)
        found = self._node.view.permission(user.name, vhost)
        if found is None:
            raise not_found(f"permission of user '{user.name}' in vhost '{vhost}'")
        return json_answer(msgspec.to_builtins(found))

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

    # Limits

    async def _all_limits(self, request: web.Request) -> web.Response:
        administrator()
        users = self._node.view.users()
        return json_answer([row for user in users for row in self._render_limits(user.name)])

    async def _limits(self, request: web.Request) -> web.Response:
        administrator()
        return json_answer(self._render_limits((await self._user(request)).name))

    def _render_limits(self, user: str) -> list[dict[str, Any]]:
        limits = self._node.view.user_limits(user)
        return [{"user": user, "value": limits}] if limits else []

    async def _put_limit(self, request: web.Request) -> web.Response:
        administrator()
        body = await decode(request, LimitBody)
        user, limit = request.match_info["user"], request.match_info["limit"]
        check(await self._node.submit(SetUserLimits(user, {limit: body.value})))
        return done()

    async def _delete_limit(self, request: web.Request) -> web.Response:
        administrator()
        user = (await self._user(request)).name
        limit = request.match_info["limit"]
        if limit not in self._node.view.user_limits(user):
            raise not_found(f"limit '{limit}' of user '{user}'")
        check(await self._node.submit(SetUserLimits(user, {limit: -1})))
        return done()


def _hash(body: UserBody) -> tuple[bytes, bytes]:
    """Return salt and hash of a body without password; both empty for no password at all."""
    if not body.password_hash:
        return b"", b""
    if body.hashing_algorithm not in (None, HASHING_ALGORITHM):
        raise bad_request(
            f"hashing_algorithm: must be '{HASHING_ALGORITHM}', not '{body.hashing_algorithm}'"
        )
    try:
        octets = base64.b64decode(body.password_hash, validate=True)
    except (binascii.Error, ValueError):
        octets = b""
    if len(octets) != SALT_OCTETS + HASH_OCTETS:
        raise bad_request(
            f"password_hash: must be {SALT_OCTETS} octets of salt and {HASH_OCTETS} of hash in "
            "base64"
        )
    return octets[:SALT_OCTETS], octets[SALT_OCTETS:]
