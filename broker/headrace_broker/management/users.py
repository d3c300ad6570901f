"""/api/whoami and /api/users."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Annotated, Final

import msgspec
from aiohttp import web
from typing_extensions import TypedDict

from headrace_broker.catalog.command import (
    DeleteUser,
    PutUser,
)
from headrace_broker.management.access import administrator, caller
from headrace_broker.management.administration import Administration, known_user
from headrace_broker.management.answer import bad_request, check, done, json_answer
from headrace_broker.management.body import decode
from headrace_broker.management.listing import listing
from headrace_broker.management.route import ADMINISTRATOR, Route, deleted, got, listed, posted, put
from headrace_broker.model.definition import User
from headrace_broker.model.limits import BULK_USERS_MAX
from headrace_broker.runtime.password import HASH_OCTETS, SALT_OCTETS, new_user

HASHING_ALGORITHM: Final = "scrypt"  # with the parameters of runtime/password.py


class UserBody(msgspec.Struct):
    """Body of PUT /api/users/U; without password and hash the user has no password."""

    tags: str | list[str]
    password: str | None = None
    password_hash: str | None = None
    hashing_algorithm: str | None = None


class BulkBody(msgspec.Struct):
    """Body of POST /api/users/bulk-delete."""

    users: Annotated[list[str], msgspec.Meta(min_length=1, max_length=BULK_USERS_MAX)]


class WhoView(TypedDict):
    """Who asks."""

    name: str
    tags: list[str]


class UserView(TypedDict):
    """A user."""

    name: str
    password_hash: str
    hashing_algorithm: str
    tags: list[str]
    limits: dict[str, int]


class UserEndpoints:
    """Answers requests about users."""

    def __init__(self, node: Administration) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return what is answered."""
        return [
            got("/api/whoami", self._whoami, "Who asks.", WhoView),
            listed("/api/users", self._list, "All users.", UserView, ADMINISTRATOR),
            listed(
                "/api/users/without-permissions",
                self._without_permissions,
                "Users that may enter no vhost.",
                UserView,
                ADMINISTRATOR,
            ),
            posted(
                "/api/users/bulk-delete",
                self._bulk_delete,
                "Delete users; those that are not there are none.",
                BulkBody,
                ADMINISTRATOR,
                codes=(204,),
            ),
            got("/api/users/{user}", self._get, "A user.", UserView, ADMINISTRATOR),
            put(
                "/api/users/{user}", self._put, "Create or change a user.", UserBody, ADMINISTRATOR
            ),
            deleted("/api/users/{user}", self._delete, "Delete a user.", ADMINISTRATOR),
        ]

    async def _whoami(self, request: web.Request) -> web.Response:
        who = caller()
        return json_answer({"name": who.name, "tags": list(who.tags)})

    async def _list(self, request: web.Request) -> web.Response:
        administrator()
        return await listing(request, self._node.view.users(), self._render)

    async def _without_permissions(self, request: web.Request) -> web.Response:
        allowed = {each.user for each in self._node.view.permissions()}
        found = [user for user in self._node.view.users() if user.name not in allowed]
        return await listing(request, found, self._render)

    async def _bulk_delete(self, request: web.Request) -> web.Response:
        administrator()
        body = await decode(request, BulkBody)
        await self._node.catch_up()
        for name in body.users:
            if self._node.view.user(name) is not None:
                check(await self._node.submit(DeleteUser(name)))
        return done()

    async def _get(self, request: web.Request) -> web.Response:
        administrator()
        return json_answer(self._render(await known_user(self._node, request)))

    def _render(self, user: User) -> UserView:
        return render_user(user, self._node.view.user_limits(user.name))

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
            salt, password_hash = given_hash(body.password_hash, body.hashing_algorithm)
            user = User(name, salt, password_hash, tags, loopback_only)
        check(await self._node.submit(PutUser(user)))
        return done(created=current is None)

    async def _delete(self, request: web.Request) -> web.Response:
        administrator()
        check(await self._node.submit(DeleteUser(request.match_info["user"])))
        return done()


def render_user(user: User, limits: dict[str, int]) -> UserView:
    """Return a user as JSON."""
    secret = base64.b64encode(user.salt + user.password_hash).decode()
    return {
        "name": user.name,
        "password_hash": secret if user.password_hash else "",
        "hashing_algorithm": HASHING_ALGORITHM,
        "tags": list(user.tags),
        "limits": limits,
    }


def given_hash(password_hash: str | None, algorithm: str | None) -> tuple[bytes, bytes]:
    """Return salt and hash in a body without password; both empty for no password at all.

    Raises:
        ApiError: 400, it is none that this broker makes.
    """
    if not password_hash:
        return b"", b""
    if algorithm not in (None, HASHING_ALGORITHM):
        raise bad_request(f"hashing_algorithm: must be '{HASHING_ALGORITHM}', not '{algorithm}'")
    try:
        octets = base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError):
        octets = b""
    if len(octets) != SALT_OCTETS + HASH_OCTETS:
        raise bad_request(
            f"password_hash: must be {SALT_OCTETS} octets of salt and {HASH_OCTETS} of hash in "
            "base64"
        )
    return octets[:SALT_OCTETS], octets[SALT_OCTETS:]
