"""Calls about what users may: permissions, and topic permissions."""

from __future__ import annotations

from headrace_broker.catalog.access import Caller, check_administers
from headrace_broker.catalog.command import (
    DeletePermission,
    DeleteTopicPermissions,
    PutPermission,
    PutTopicPermission,
)
from headrace_broker.gateways.grpc.server.lookup import LookupService, check_name, done, missing
from headrace_broker.gateways.grpc.server.page import Pager
from headrace_broker.gateways.grpc.topology.user_calls import find_user
from headrace_broker.model.definition import Permission, TopicPermission
from headrace_protos.broker.v1 import topology_pb2 as messages


class PermissionCalls:
    """Gives, takes away and describes permissions."""

    def __init__(self, lookup: LookupService) -> None:
        self._lookup = lookup
        self._pager: Pager[Permission] = Pager("permissions", lambda each: (each.vhost, each.user))

    async def declare(
        self, who: Caller, request: messages.DeclarePermissionRequest
    ) -> messages.DeclarePermissionResponse:
        """Give a user a permission in a vhost, or another one."""
        check_administers(who)
        wanted = request.permission
        user, vhost = await _known_ends(self._lookup, who, wanted.user, wanted.vhost, "permission.")
        current = self._lookup.view.permission(user, vhost)
        permission = Permission(user, vhost, wanted.configure, wanted.write, wanted.read)
        if permission != current:
            command = PutPermission(permission)
            done(await self._lookup.node.submit(command), "permission", "permission.")
        return messages.DeclarePermissionResponse(created=current is None)

    async def delete(
        self, who: Caller, request: messages.DeletePermissionRequest
    ) -> messages.DeleteResponse:
        """Take a user's permission in a vhost away; one that is not there is no error."""
        check_administers(who)
        check_name("user", request.user)
        vhost = await self._lookup.known_vhost(who, request.vhost)
        user = request.user
        if await find_user(self._lookup, user) is None:
            return messages.DeleteResponse(deleted=False)
        dropped = done(await self._lookup.node.submit(DeletePermission(user, vhost)), "user")
        return messages.DeleteResponse(deleted=dropped is not None)

    async def describe(
        self, who: Caller, request: messages.DescribePermissionRequest
    ) -> messages.Permission:
        """Return a user's permissions in a vhost."""
        check_administers(who)
        user, vhost = await _known_ends(self._lookup, who, request.user, request.vhost)
        permission = self._lookup.view.permission(user, vhost)
        if permission is None:
            raise missing(f"permission of user '{user}' in vhost '{vhost}'", "user")
        return _render(permission)

    async def list(
        self, who: Caller, request: messages.ListPermissionsRequest
    ) -> messages.ListPermissionsResponse:
        """List permissions."""
        check_administers(who)
        vhost = await self._lookup.known_vhost(who, request.vhost) if request.vhost else None
        rows = [
            permission
            for permission in self._lookup.view.permissions(vhost)
            if request.user in ("", permission.user)
        ]
        permissions, token = await self._pager.page(request.page, rows, _render)
        return messages.ListPermissionsResponse(permissions=permissions, next_token=token)


class TopicPermissionCalls:
    """Gives, takes away and describes topic permissions."""

    def __init__(self, lookup: LookupService) -> None:
        self._lookup = lookup
        self._pager: Pager[TopicPermission] = Pager(
            "topic-permissions", lambda each: (each.vhost, each.user, each.exchange)
        )

    async def declare(
        self, who: Caller, request: messages.DeclareTopicPermissionRequest
    ) -> messages.DeclareTopicPermissionResponse:
        """Say which routing keys a user may use at a topic exchange."""
        check_administers(who)
        wanted = request.permission
        user, vhost = await _known_ends(self._lookup, who, wanted.user, wanted.vhost, "permission.")
        check_name("permission.exchange", wanted.exchange)
        current = self._lookup.view.topic_permission(user, vhost, wanted.exchange)
        told = TopicPermission(user, vhost, wanted.exchange, wanted.write, wanted.read)
        if told != current:
            command = PutTopicPermission(told)
            done(await self._lookup.node.submit(command), "permission", "permission.")
        return messages.DeclareTopicPermissionResponse(created=current is None)

    async def delete(
        self, who: Caller, request: messages.DeleteTopicPermissionRequest
    ) -> messages.DeleteResponse:
        """Lift the topic permission of a user; without one it is no error."""
        check_administers(who)
        check_name("user", request.user)
        check_name("exchange", request.exchange, low=0)
        vhost = await self._lookup.known_vhost(who, request.vhost)
        if await find_user(self._lookup, request.user) is None:
            return messages.DeleteResponse(deleted=False)
        command = DeleteTopicPermissions(request.user, vhost, request.exchange)
        dropped = done(await self._lookup.node.submit(command), "user")
        return messages.DeleteResponse(deleted=bool(dropped))

    async def describe(
        self, who: Caller, request: messages.DescribeTopicPermissionRequest
    ) -> messages.TopicPermission:
        """Return a user's permitted routing keys at a topic exchange."""
        check_administers(who)
        user, vhost = await _known_ends(self._lookup, who, request.user, request.vhost)
        check_name("exchange", request.exchange)
        told = self._lookup.view.topic_permission(user, vhost, request.exchange)
        if told is None:
            where = f"at exchange '{request.exchange}' in vhost '{vhost}'"
            raise missing(f"topic permission of user '{user}' {where}", "exchange")
        return _render_topic(told)

    async def list(
        self, who: Caller, request: messages.ListTopicPermissionsRequest
    ) -> messages.ListTopicPermissionsResponse:
        """List topic permissions."""
        check_administers(who)
        vhost = await self._lookup.known_vhost(who, request.vhost) if request.vhost else None
        rows = [
            told
            for told in self._lookup.view.topic_permissions(vhost)
            if request.user in ("", told.user)
        ]
        permissions, token = await self._pager.page(request.page, rows, _render_topic)
        return messages.ListTopicPermissionsResponse(permissions=permissions, next_token=token)


async def _known_ends(
    lookup: LookupService, who: Caller, user: str, vhost: str, prefix: str = ""
) -> tuple[str, str]:
    """Return a user and a vhost that are there.

    Raises:
        CallError: INVALID_ARGUMENT.
        AmqpError: NOT_FOUND.
    """
    check_name(f"{prefix}user", user)
    await lookup.known_vhost(who, vhost, f"{prefix}vhost")
    if await find_user(lookup, user) is None:
        raise missing(f"user '{user}'", f"{prefix}user")
    return user, vhost


def _render(permission: Permission) -> messages.Permission:
    return messages.Permission(
        user=permission.user,
        vhost=permission.vhost,
        configure=permission.configure,
        write=permission.write,
        read=permission.read,
    )


def _render_topic(told: TopicPermission) -> messages.TopicPermission:
    return messages.TopicPermission(
        user=told.user, vhost=told.vhost, exchange=told.exchange, write=told.write, read=told.read
    )
