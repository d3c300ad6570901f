"""Calls about users."""

from __future__ import annotations

import asyncio

import msgspec

from headrace_broker.catalog.access import Caller, check_administers
from headrace_broker.catalog.command import DeleteUser, PutUser, SetUserLimits
from headrace_broker.catalog.setting import USER_LIMITS
from headrace_broker.gateways.grpc.server.errors import bad_field
from headrace_broker.gateways.grpc.server.lookup import LookupService, check_name, done, missing
from headrace_broker.gateways.grpc.server.page import Pager
from headrace_broker.gateways.grpc.topology.vhost_calls import checked_limits, checked_tags
from headrace_broker.model.definition import HASHED_SCRYPT, User
from headrace_broker.runtime.security.password import new_user
from headrace_protos.broker.v1 import topology_pb2 as messages


class UserCalls:
    """Declares, deletes and describes users."""

    def __init__(self, lookup: LookupService) -> None:
        self._lookup = lookup
        self._pager: Pager[User] = Pager("users", lambda user: (user.name,))

    async def declare(
        self, who: Caller, request: messages.DeclareUserRequest
    ) -> messages.DeclareUserResponse:
        """Create a user, or change one."""
        check_administers(who)
        lookup, name = self._lookup, request.name
        check_name("name", name)
        limits = checked_limits(request.limits, USER_LIMITS)
        tags = checked_tags(request.tags)
        current = await find_user(lookup, name)
        known = current or User(name, b"", b"")
        if not request.HasField("tags"):
            tags = known.tags
        user = msgspec.structs.replace(await _with_secret(known, request), tags=tags)
        if user != current or request.end_sessions:
            command = PutUser(user, end_sessions=request.end_sessions)
            done(await lookup.node.submit(command), "name")
        if limits:
            done(await lookup.node.submit(SetUserLimits(name, limits)), "limits")
        return messages.DeclareUserResponse(created=current is None)

    async def delete(
        self, who: Caller, request: messages.DeleteUserRequest
    ) -> messages.DeleteResponse:
        """Delete a user; one that is not there is no error."""
        check_administers(who)
        check_name("name", request.name)
        if await find_user(self._lookup, request.name) is None:
            return messages.DeleteResponse(deleted=False)
        done(await self._lookup.node.submit(DeleteUser(request.name)), "name")
        return messages.DeleteResponse(deleted=True)

    async def describe(
        self, who: Caller, request: messages.DescribeUserRequest
    ) -> messages.UserDescription:
        """Return everything about a user but the password."""
        check_administers(who)
        check_name("name", request.name)
        user = await find_user(self._lookup, request.name)
        if user is None:
            raise missing(f"user '{request.name}'", "name")
        return self._render(user)

    async def list(
        self, who: Caller, request: messages.ListUsersRequest
    ) -> messages.ListUsersResponse:
        """List users."""
        check_administers(who)
        rows = self._lookup.view.users()
        users, token = await self._pager.page(request.page, rows, self._render)
        return messages.ListUsersResponse(users=users, next_token=token)

    def _render(self, user: User) -> messages.UserDescription:
        return messages.UserDescription(
            name=user.name,
            tags=user.tags,
            has_password=bool(user.password_hash),
            loopback_only=user.loopback_only,
            limits=self._lookup.view.user_limits(user.name),
        )


async def find_user(lookup: LookupService, name: str) -> User | None:
    """Return a user, None when there is none of that name."""
    if lookup.view.user(name) is None:
        await lookup.node.catch_up()
    return lookup.view.user(name)


async def _with_secret(user: User, request: messages.DeclareUserRequest) -> User:
    """Return a user with the password that a request gives, or takes away."""
    kind = request.WhichOneof("secret")
    if kind == "password":
        if not request.password:
            raise bad_field("password", "must not be empty")
        tags, local = user.tags, user.loopback_only
        return await asyncio.to_thread(new_user, user.name, request.password, tags, local)
    if kind == "no_password" and request.no_password:
        return msgspec.structs.replace(user, salt=b"", password_hash=b"", hashing=HASHED_SCRYPT)
    return user
