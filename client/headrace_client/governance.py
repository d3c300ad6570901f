"""Vhosts, users, permissions and policies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from headrace_client.definition import Permission, Policy, TopicPermission, User, Vhost
from headrace_client.definition_reader import (
    read_permission,
    read_policy,
    read_topic_permission,
    read_user,
    read_vhost,
)
from headrace_client.topology_call import TopologyCalls
from headrace_client.value import encode_table
from headrace_protos.broker.v1 import topology_pb2 as pb


class Governance(TopologyCalls):
    """Permissions, users and policies of a cluster."""

    # Vhosts

    async def declare_vhost(
        self,
        name: str,
        *,
        description: str | None = None,
        tags: Iterable[str] | None = None,
        default_queue_type: str | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> bool:
        """Create a vhost, or change one (None changes nothing); return whether it is new.

        A negative limit takes it away.
        """
        request = pb.DeclareVhostRequest(
            name=name,
            description=description,
            tags=_tags(tags),
            default_queue_type=default_queue_type,
            limits=limits or {},
        )
        return bool((await self._call(lambda stub: stub.DeclareVhost, request)).created)

    async def delete_vhost(self, name: str) -> bool:
        """Delete a vhost and all that is in it; return whether it was there."""
        request = pb.DeleteVhostRequest(name=name)
        return bool((await self._call(lambda stub: stub.DeleteVhost, request)).deleted)

    async def vhost(self, name: str) -> Vhost:
        """Return everything about a vhost."""
        request = pb.DescribeVhostRequest(name=name)
        return read_vhost(await self._call(lambda stub: stub.DescribeVhost, request))

    def vhosts(self) -> AsyncIterator[Vhost]:
        """Return the vhosts that one may look at."""

        async def page(page: pb.PageRequest) -> pb.ListVhostsResponse:
            request = pb.ListVhostsRequest(page=page)
            found: pb.ListVhostsResponse = await self._call(lambda stub: stub.ListVhosts, request)
            return found

        return self._listed(page, lambda answer: map(read_vhost, answer.vhosts))

    # Users

    async def declare_user(
        self,
        name: str,
        *,
        password: str | None = None,
        no_password: bool = False,
        tags: Iterable[str] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> bool:
        """Create a user, or change one (None changes nothing); return whether it is new.

        Args:
            name: of the user.
            password: a new one.
            no_password: take the password away.
            tags: roles, as "administrator".
            limits: by name; a negative one is taken away.
        """
        if password is not None and no_password:
            raise ValueError("no_password: does not go with a password")
        request = pb.DeclareUserRequest(name=name, tags=_tags(tags), limits=limits or {})
        if password is not None:
            request.password = password
        elif no_password:
            request.no_password = True
        return bool((await self._call(lambda stub: stub.DeclareUser, request)).created)

    async def delete_user(self, name: str) -> bool:
        """Delete a user; return whether it was there."""
        request = pb.DeleteUserRequest(name=name)
        return bool((await self._call(lambda stub: stub.DeleteUser, request)).deleted)

    async def user(self, name: str) -> User:
        """Return everything about a user but the password."""
        request = pb.DescribeUserRequest(name=name)
        return read_user(await self._call(lambda stub: stub.DescribeUser, request))

    def users(self) -> AsyncIterator[User]:
        """Return all users."""

        async def page(page: pb.PageRequest) -> pb.ListUsersResponse:
            request = pb.ListUsersRequest(page=page)
            found: pb.ListUsersResponse = await self._call(lambda stub: stub.ListUsers, request)
            return found

        return self._listed(page, lambda answer: map(read_user, answer.users))

    # Permissions

    async def declare_permission(
        self,
        user: str,
        *,
        configure: str = "",
        write: str = "",
        read: str = "",
        vhost: str | None = None,
    ) -> bool:
        """Give a user a permission in a vhost, or another one; return whether it is the first."""
        permission = pb.Permission(
            user=user, vhost=self._where(vhost), configure=configure, write=write, read=read
        )
        request = pb.DeclarePermissionRequest(permission=permission)
        return bool((await self._call(lambda stub: stub.DeclarePermission, request)).created)

    async def delete_permission(self, user: str, *, vhost: str | None = None) -> bool:
        """Take a user's permission in a vhost away; return whether there was one."""
        request = pb.DeletePermissionRequest(user=user, vhost=self._where(vhost))
        return bool((await self._call(lambda stub: stub.DeletePermission, request)).deleted)

    async def permission(self, user: str, *, vhost: str | None = None) -> Permission:
        """Return what a user may do in a vhost."""
        request = pb.DescribePermissionRequest(user=user, vhost=self._where(vhost))
        return read_permission(await self._call(lambda stub: stub.DescribePermission, request))

    def permissions(self, *, user: str = "", vhost: str = "") -> AsyncIterator[Permission]:
        """Return permissions; of all users and vhosts unless one is given."""

        async def page(page: pb.PageRequest) -> pb.ListPermissionsResponse:
            request = pb.ListPermissionsRequest(user=user, vhost=vhost, page=page)
            found: pb.ListPermissionsResponse = await self._call(
                lambda stub: stub.ListPermissions, request
            )
            return found

        return self._listed(page, lambda answer: map(read_permission, answer.permissions))

    # Topic permissions

    async def declare_topic_permission(
        self,
        user: str,
        exchange: str,
        *,
        write: str = "",
        read: str = "",
        vhost: str | None = None,
    ) -> bool:
        """Bound the routing keys that a user may use at an exchange; return whether it is new."""
        permission = pb.TopicPermission(
            user=user, vhost=self._where(vhost), exchange=exchange, write=write, read=read
        )
        request = pb.DeclareTopicPermissionRequest(permission=permission)
        answer = await self._call(lambda stub: stub.DeclareTopicPermission, request)
        return bool(answer.created)

    async def delete_topic_permission(
        self, user: str, exchange: str = "", *, vhost: str | None = None
    ) -> bool:
        """Take that away, for all exchanges unless one is given; return whether it was there."""
        where = self._where(vhost)
        request = pb.DeleteTopicPermissionRequest(user=user, vhost=where, exchange=exchange)
        return bool((await self._call(lambda stub: stub.DeleteTopicPermission, request)).deleted)

    async def topic_permission(
        self, user: str, exchange: str, *, vhost: str | None = None
    ) -> TopicPermission:
        """Return which routing keys a user may use at an exchange."""
        where = self._where(vhost)
        request = pb.DescribeTopicPermissionRequest(user=user, vhost=where, exchange=exchange)
        answer = await self._call(lambda stub: stub.DescribeTopicPermission, request)
        return read_topic_permission(answer)

    def topic_permissions(
        self, *, user: str = "", vhost: str = ""
    ) -> AsyncIterator[TopicPermission]:
        """Return topic permissions; of all users and vhosts unless one is given."""

        async def page(page: pb.PageRequest) -> pb.ListTopicPermissionsResponse:
            request = pb.ListTopicPermissionsRequest(user=user, vhost=vhost, page=page)
            found: pb.ListTopicPermissionsResponse = await self._call(
                lambda stub: stub.ListTopicPermissions, request
            )
            return found

        return self._listed(page, lambda answer: map(read_topic_permission, answer.permissions))

    # Policies

    async def declare_policy(
        self,
        name: str,
        pattern: str,
        definition: Mapping[str, Any],
        *,
        priority: int = 0,
        apply_to: str = "all",
        operator: bool = False,
        vhost: str | None = None,
    ) -> bool:
        """Create a policy, or change one; return whether it is new."""
        policy = pb.Policy(
            vhost=self._where(vhost),
            name=name,
            pattern=pattern,
            definition=encode_table(definition, "definition"),
            priority=priority,
            apply_to=apply_to,
            operator=operator,
        )
        request = pb.DeclarePolicyRequest(policy=policy)
        return bool((await self._call(lambda stub: stub.DeclarePolicy, request)).created)

    async def delete_policy(
        self, name: str, *, operator: bool = False, vhost: str | None = None
    ) -> bool:
        """Delete a policy; return whether it was there."""
        where = self._where(vhost)
        request = pb.DeletePolicyRequest(vhost=where, name=name, operator=operator)
        return bool((await self._call(lambda stub: stub.DeletePolicy, request)).deleted)

    async def policy(
        self, name: str, *, operator: bool = False, vhost: str | None = None
    ) -> Policy:
        """Return everything about a policy."""
        where = self._where(vhost)
        request = pb.DescribePolicyRequest(vhost=where, name=name, operator=operator)
        return read_policy(await self._call(lambda stub: stub.DescribePolicy, request))

    def policies(self, *, vhost: str = "", operator: bool = False) -> AsyncIterator[Policy]:
        """Return policies, or operator policies; of all vhosts unless one is given."""

        async def page(page: pb.PageRequest) -> pb.ListPoliciesResponse:
            request = pb.ListPoliciesRequest(vhost=vhost, operator=operator, page=page)
            found: pb.ListPoliciesResponse = await self._call(
                lambda stub: stub.ListPolicies, request
            )
            return found

        return self._listed(page, lambda answer: map(read_policy, answer.policies))


def _tags(tags: Iterable[str] | None) -> pb.Tags | None:
    return None if tags is None else pb.Tags(tags=tags)
