"""Calls about users and their permissions."""

from __future__ import annotations

import asyncio

import msgspec

from headrace_broker.catalog.access import Caller, check_administers
from headrace_broker.catalog.command import (
    DeletePermission,
    DeleteUser,
    PutPermission,
    PutUser,
    SetUserLimits,
)
from headrace_broker.catalog.setting import USER_LIMITS
from headrace_broker.gateways.grpc.desk import Desk, check_name, done, missing
from headrace_broker.gateways.grpc.errors import bad_field
from headrace_broker.gateways.grpc.page import Pager
from headrace_broker.gateways.grpc.pb import topology_pb2 as messages
from headrace_broker.gateways.grpc.vhost_calls import checked_limits, checked_tags
from headrace_broker.model.definition import HASHED_SCRYPT, Permission, User
from headrace_broker.runtime.password import new_user


class UserCalls:
    """Declares, deletes and describes users."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._pager: Pager[User] = Pager("users", lambda user: (user.name,))

    async def declare(
        self, who: Caller, request: messages.DeclareUserRequest
    ) -> messages.DeclareUserResponse:
        """Create a user, or change one."""
        check_administers(who)
        desk, name = self._desk, request.name
        check_name("name", name)
        limits = checked_limits(request.limits, USER_LIMITS)
        tags = checked_tags(request.tags)
        current = await _find_user(desk, name)
        known = current or User(name, b"", b"")
        if not request.HasField("tags"):
            tags = known.tags
        user = msgspec.structs.replace(await _with_secret(known, request), tags=tags)
        if user != current:
            done(await desk.node.submit(PutUser(user)), "name")
        if limits:
            done(await desk.node.submit(SetUserLimits(name, limits)), "limits")
        return messages.DeclareUserResponse(created=current is None)

    async def delete(
        self, who: Caller, request: messages.DeleteUserRequest
    ) -> messages.DeleteResponse:
        """Delete a user; one that is not there is no error."""
        check_administers(who)
        check_name("name", request.name)
        if await _find_user(self._desk, request.name) is None:
            return messages.DeleteResponse(deleted=False)
        done(await self._desk.node.submit(DeleteUser(request.name)), "name")
        return messages.DeleteResponse(deleted=True)

    async def describe(
        self, who: Caller, request: messages.DescribeUserRequest
    ) -> messages.UserDescription:
        """Tell everything about a user but the password."""
        check_administers(who)
        check_name("name", request.name)
        user = await _find_user(self._desk, request.name)
        if user is None:
            raise missing(f"user '{request.name}'", "name")
        return self._render(user)

    async def list(
        self, who: Caller, request: messages.ListUsersRequest
    ) -> messages.ListUsersResponse:
        """List users."""
        check_administers(who)
        rows = self._desk.view.users()
        users, token = await self._pager.page(request.page, rows, self._render)
        return messages.ListUsersResponse(users=users, next_token=token)

    def _render(self, user: User) -> messages.UserDescription:
        return messages.UserDescription(
            name=user.name,
            tags=user.tags,
            has_password=bool(user.password_hash),
            loopback_only=user.loopback_only,
            limits=self._desk.view.user_limits(user.name),
        )


class PermissionCalls:
    """Gives, takes away and describes permissions."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._pager: Pager[Permission] = Pager("permissions", lambda each: (each.vhost, each.user))

    async def declare(
        self, who: Caller, request: messages.DeclarePermissionRequest
    ) -> messages.DeclarePermissionResponse:
        """Give a user a permission in a vhost, or another one."""
        check_administers(who)
        wanted = request.permission
        user, vhost = await self._ends(wanted.user, wanted.vhost, "permission.")
        current = self._desk.view.permission(user, vhost)
        permission = Permission(user, vhost, wanted.configure, wanted.write, wanted.read)
        if permission != current:
            command = PutPermission(permission)
            done(await self._desk.node.submit(command), "permission", "permission.")
        return messages.DeclarePermissionResponse(created=current is None)

    async def delete(
        self, who: Caller, request: messages.DeletePermissionRequest
    ) -> messages.DeleteResponse:
        """Take a user's permission in a vhost away; one that is not there is no error."""
        check_administers(who)
        check_name("user", request.user)
        vhost = await self._desk.known_vhost(request.vhost)
        user = request.user
        if await _find_user(self._desk, user) is None:
            return messages.DeleteResponse(deleted=False)
        dropped = done(await self._desk.node.submit(DeletePermission(user, vhost)), "user")
        return messages.DeleteResponse(deleted=dropped is not None)

    async def describe(
        self, who: Caller, request: messages.DescribePermissionRequest
    ) -> messages.Permission:
        """Tell what a user may do in a vhost."""
        check_administers(who)
        user, vhost = await self._ends(request.user, request.vhost)
        permission = self._desk.view.permission(user, vhost)
        if permission is None:
            raise missing(f"permission of user '{user}' in vhost '{vhost}'", "user")
        return _render(permission)

    async def list(
        self, who: Caller, request: messages.ListPermissionsRequest
    ) -> messages.ListPermissionsResponse:
        """List permissions."""
        check_administers(who)
        vhost = await self._desk.known_vhost(request.vhost) if request.vhost else None
        rows = [
            permission
            for permission in self._desk.view.permissions(vhost)
            if request.user in ("", permission.user)
        ]
        permissions, token = await self._pager.page(request.page, rows, _render)
        return messages.ListPermissionsResponse(permissions=permissions, next_token=token)

    async def _ends(self, user: str, vhost: str, prefix: str = "") -> tuple[str, str]:
        """Return a user and a vhost that are there.

        Raises:
            CallError: INVALID_ARGUMENT.
            AmqpError: NOT_FOUND.
        """
        check_name(f"{prefix}user", user)
        await self._desk.known_vhost(vhost, f"{prefix}vhost")
        if await _find_user(self._desk, user) is None:
            raise missing(f"user '{user}'", f"{prefix}user")
        return user, vhost


async def _find_user(desk: Desk, name: str) -> User | None:
    if desk.view.user(name) is None:
        await desk.node.catch_up()
    return desk.view.user(name)


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


def _render(permission: Permission) -> messages.Permission:
    return messages.Permission(
        user=permission.user,
        vhost=permission.vhost,
        configure=permission.configure,
        write=permission.write,
        read=permission.read,
    )
