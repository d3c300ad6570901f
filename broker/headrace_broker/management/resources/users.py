"""/api/whoami and /api/users."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Annotated, Final, NamedTuple

import msgspec
from aiohttp import web
from typing_extensions import TypedDict

from headrace_broker.catalog.command import DeleteUser, PutUser
from headrace_broker.management.http.access import caller
from headrace_broker.management.http.answer import bad_request, done, json_answer
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import ADMINISTRATOR, deleted, got, listed, posted, put
from headrace_broker.model.definition import HASHED_SCRYPT, HASHED_SHA256, HASHED_SHA512, User
from headrace_broker.model.limits import BULK_USERS_MAX
from headrace_broker.runtime.security.password import BYTES, new_user

HASHING_ALGORITHM: Final = "scrypt"  # with the parameters of runtime/security/password.py
ALGORITHMS: Final = {
    HASHING_ALGORITHM: HASHED_SCRYPT,
    "rabbit_password_hashing_sha256": HASHED_SHA256,
    "rabbit_password_hashing_sha512": HASHED_SHA512,
}
_NAMES: Final = {hashing: name for name, hashing in ALGORITHMS.items()}


class UserBody(msgspec.Struct):
    """Body of PUT /api/users/U; without password and hash the user has no password.

    Attributes:
        end_sessions: sessions of the user that began before end on all nodes.
    """

    tags: str | list[str]
    password: str | None = None
    password_hash: str | None = None
    hashing_algorithm: str | None = None
    end_sessions: bool = False


class BulkBody(msgspec.Struct):
    """Body of POST /api/users/bulk-delete."""

    users: Annotated[list[str], msgspec.Meta(min_length=1, max_length=BULK_USERS_MAX)]


class WhoView(TypedDict):
    """Calling user."""

    name: str
    tags: list[str]


class UserView(TypedDict):
    """A user."""

    name: str
    password_hash: str
    hashing_algorithm: str
    tags: list[str]
    limits: dict[str, int]


class UserEndpoints(Endpoints):
    """Answers requests about users."""

    @got("/api/whoami", "Who asks.", WhoView)
    async def _whoami(self, request: web.Request) -> web.Response:
        who = caller()
        return json_answer({"name": who.name, "tags": list(who.tags)})

    @listed("/api/users", "All users.", UserView, ADMINISTRATOR)
    async def _list(self, request: web.Request) -> web.Response:
        return await listing(request, self._node.view.users(), self._render)

    @listed(
        "/api/users/without-permissions", "Users that may enter no vhost.", UserView, ADMINISTRATOR
    )
    async def _without_permissions(self, request: web.Request) -> web.Response:
        allowed = {each.user for each in self._node.view.permissions()}
        found = [user for user in self._node.view.users() if user.name not in allowed]
        return await listing(request, found, self._render)

    @posted(
        "/api/users/bulk-delete",
        "Delete users; those that are not there are none.",
        BulkBody,
        ADMINISTRATOR,
        codes=(204,),
    )
    async def _bulk_delete(self, request: web.Request) -> web.Response:
        body = await decode(request, BulkBody)
        await self._node.catch_up()
        for name in body.users:
            if self._node.view.user(name) is not None:
                await self._submit(DeleteUser(name))
        return done()

    @got("/api/users/{user}", "A user.", UserView, ADMINISTRATOR)
    async def _get(self, request: web.Request) -> web.Response:
        return json_answer(self._render(await self._known_user(request)))

    def _render(self, user: User) -> UserView:
        return render_user(user, self._node.view.user_limits(user.name))

    @put("/api/users/{user}", "Create or change a user.", UserBody, ADMINISTRATOR)
    async def _put(self, request: web.Request) -> web.Response:
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
            proof = given_hash(body.password_hash, body.hashing_algorithm)
            user = proof.user(name, tags, loopback_only)
        await self._submit(PutUser(user, end_sessions=body.end_sessions))
        return done(created=current is None)

    @deleted("/api/users/{user}", "Delete a user.", ADMINISTRATOR)
    async def _delete(self, request: web.Request) -> web.Response:
        await self._submit(DeleteUser(request.match_info["user"]))
        return done()


def render_user(user: User, limits: dict[str, int]) -> UserView:
    """Return a user as JSON."""
    secret = base64.b64encode(user.salt + user.password_hash).decode()
    return {
        "name": user.name,
        "password_hash": secret if user.password_hash else "",
        "hashing_algorithm": _NAMES.get(user.hashing, user.hashing),
        "tags": list(user.tags),
        "limits": limits,
    }


class Proof(NamedTuple):
    """Salted hash of a password, and its algorithm."""

    hashing: str
    salt: bytes
    password_hash: bytes

    def user(self, name: str, tags: tuple[str, ...], loopback_only: bool) -> User:
        """Return a user with that password."""
        return User(name, self.salt, self.password_hash, tags, loopback_only, self.hashing)


def given_hash(password_hash: str | None, algorithm: str | None) -> Proof:
    """Return the hash in a body without password; an empty one for no password at all.

    Without an algorithm it is known by its length. ApiError 400 where it cannot be verified.
    """
    if not password_hash:
        return Proof(HASHED_SCRYPT, b"", b"")
    if algorithm is not None and algorithm not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise bad_request(f"hashing_algorithm: must be one of {known}, not '{algorithm:.64}'")
    try:
        data = base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    wanted = ALGORITHMS if algorithm is None else {algorithm: ALGORITHMS[algorithm]}
    for hashing in wanted.values():
        salt, hashed = BYTES[hashing]
        if len(data) == salt + hashed:
            return Proof(hashing, data[:salt], data[salt:])
    rules = [
        f"{BYTES[hashing][0]} bytes of salt and {BYTES[hashing][1]} of hash ({name})"
        for name, hashing in wanted.items()
    ]
    raise bad_request(f"password_hash: must be {', or '.join(rules)}, in base64")
