"""Declaring, deleting and listing queues, exchanges, bindings, vhosts, users and policies.

All calls may be repeated, and are repeated at another node where one does not answer. To declare
what is there already, and equal, and to delete what is not there, are no errors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace_client.definition import (
    Binding,
    DeclaredQueue,
    DeletedQueue,
    Exchange,
    Permission,
    Policy,
    Queue,
    TopicPermission,
    User,
    Vhost,
)
from headrace_client.message_value import read_value
from headrace_client.service_calls import ServiceCalls
from headrace_client.value import encode_table
from headrace_protos.broker.v1 import topology_pb2 as pb
from headrace_protos.broker.v1.topology_pb2_grpc import TopologyStub

if TYPE_CHECKING:
    from headrace_protos.broker.v1.topology_pb2_grpc import TopologyAsyncStub
else:
    TopologyAsyncStub = Any  # it exists in the types alone


class Topology(ServiceCalls[TopologyAsyncStub]):
    """Definitions of a cluster; `Client.topology`. `vhost` is the client's unless one is given.

    Everything raises HeadraceError: NotFoundError, AccessRefusedError, InvalidArgumentError and
    PreconditionError name the field that is wrong.
    """

    _service = TopologyStub

    # Queues

    async def declare_queue(
        self,
        name: str = "",
        *,
        durable: bool = True,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        passive: bool = False,
        vhost: str | None = None,
    ) -> DeclaredQueue:
        """Create a queue unless an equivalent one is there.

        Args:
            name: "" for one that the broker makes up.
            durable: it outlives its nodes.
            auto_delete: it goes after its last consumer.
            arguments: `x-queue-type`, `x-max-length` and so on.
            passive: declare nothing: NotFoundError where it is not there.
            vhost: None for the client's.
        """
        request = pb.DeclareQueueRequest(
            vhost=self._where(vhost),
            name=name,
            durable=durable,
            auto_delete=auto_delete,
            arguments=encode_table(arguments or {}, "arguments"),
            passive=passive,
        )
        answer = await self._call(lambda stub: stub.DeclareQueue, request)
        return read_value(DeclaredQueue, answer)

    async def delete_queue(
        self,
        name: str,
        *,
        if_unused: bool = False,
        if_empty: bool = False,
        vhost: str | None = None,
    ) -> DeletedQueue:
        """Delete a queue; PreconditionError when it is in use, or not empty, and shall be."""
        request = pb.DeleteQueueRequest(
            vhost=self._where(vhost), name=name, if_unused=if_unused, if_empty=if_empty
        )
        answer = await self._call(lambda stub: stub.DeleteQueue, request)
        return read_value(DeletedQueue, answer)

    async def purge_queue(self, name: str, *, vhost: str | None = None) -> int:
        """Drop the messages that wait in a queue, and return how many."""
        request = pb.PurgeQueueRequest(vhost=self._where(vhost), name=name)
        return int((await self._call(lambda stub: stub.PurgeQueue, request)).messages)

    async def queue(self, name: str, *, vhost: str | None = None) -> Queue:
        """Return everything about a queue."""
        request = pb.DescribeQueueRequest(vhost=self._where(vhost), name=name)
        return read_value(Queue, await self._call(lambda stub: stub.DescribeQueue, request))

    def queues(self, *, vhost: str = "", name_prefix: str = "") -> AsyncIterator[Queue]:
        """Return queues in the order of names; of all vhosts unless one is given."""
        request = pb.ListQueuesRequest(vhost=vhost, name_prefix=name_prefix)
        return self._listed(lambda stub: stub.ListQueues, request, "queues", Queue)

    # Exchanges

    async def declare_exchange(
        self,
        name: str,
        kind: str = "direct",
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] | None = None,
        passive: bool = False,
        vhost: str | None = None,
    ) -> bool:
        """Create an exchange unless an equivalent one is there; return whether it was created."""
        request = pb.DeclareExchangeRequest(
            vhost=self._where(vhost),
            name=name,
            type=kind,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=encode_table(arguments or {}, "arguments"),
            passive=passive,
        )
        return bool((await self._call(lambda stub: stub.DeclareExchange, request)).created)

    async def delete_exchange(
        self, name: str, *, if_unused: bool = False, vhost: str | None = None
    ) -> bool:
        """Delete an exchange; return whether it was there."""
        where = self._where(vhost)
        request = pb.DeleteExchangeRequest(vhost=where, name=name, if_unused=if_unused)
        return bool((await self._call(lambda stub: stub.DeleteExchange, request)).deleted)

    async def exchange(self, name: str, *, vhost: str | None = None) -> Exchange:
        """Return everything about an exchange."""
        request = pb.DescribeExchangeRequest(vhost=self._where(vhost), name=name)
        return read_value(Exchange, await self._call(lambda stub: stub.DescribeExchange, request))

    def exchanges(self, *, vhost: str = "", name_prefix: str = "") -> AsyncIterator[Exchange]:
        """Return exchanges in the order of names; of all vhosts unless one is given."""
        request = pb.ListExchangesRequest(vhost=vhost, name_prefix=name_prefix)
        return self._listed(lambda stub: stub.ListExchanges, request, "exchanges", Exchange)

    # Bindings

    async def bind(
        self,
        source: str,
        *,
        queue: str = "",
        exchange: str = "",
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
        vhost: str | None = None,
    ) -> bool:
        """Bind a queue or an exchange to an exchange; return whether that is new."""
        binding = Binding(self._where(vhost), source, queue, exchange, routing_key, arguments or {})
        request = pb.BindRequest(binding=_binding_message(binding))
        return bool((await self._call(lambda stub: stub.Bind, request)).created)

    async def unbind(
        self,
        source: str,
        *,
        queue: str = "",
        exchange: str = "",
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
        vhost: str | None = None,
    ) -> bool:
        """Remove a binding; return whether it was there."""
        binding = Binding(self._where(vhost), source, queue, exchange, routing_key, arguments or {})
        request = pb.UnbindRequest(binding=_binding_message(binding))
        return bool((await self._call(lambda stub: stub.Unbind, request)).deleted)

    def bindings(
        self, *, vhost: str = "", source: str | None = None, queue: str = "", exchange: str = ""
    ) -> AsyncIterator[Binding]:
        """Return bindings that match all arguments, those of the default exchange as well."""
        request = pb.ListBindingsRequest(vhost=vhost, source=source)
        if queue:
            request.queue = queue
        elif exchange:
            request.exchange = exchange
        return self._listed(lambda stub: stub.ListBindings, request, "bindings", Binding)

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
        return read_value(Vhost, await self._call(lambda stub: stub.DescribeVhost, request))

    def vhosts(self) -> AsyncIterator[Vhost]:
        """Return the vhosts that one may look at."""
        request = pb.ListVhostsRequest()
        return self._listed(lambda stub: stub.ListVhosts, request, "vhosts", Vhost)

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
        return read_value(User, await self._call(lambda stub: stub.DescribeUser, request))

    def users(self) -> AsyncIterator[User]:
        """Return all users."""
        request = pb.ListUsersRequest()
        return self._listed(lambda stub: stub.ListUsers, request, "users", User)

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
        return read_value(
            Permission, await self._call(lambda stub: stub.DescribePermission, request)
        )

    def permissions(self, *, user: str = "", vhost: str = "") -> AsyncIterator[Permission]:
        """Return permissions; of all users and vhosts unless one is given."""
        request = pb.ListPermissionsRequest(user=user, vhost=vhost)
        return self._listed(lambda stub: stub.ListPermissions, request, "permissions", Permission)

    # Topic permissions

    async def declare_topic_permission(
        self, user: str, exchange: str, *, write: str = "", read: str = "", vhost: str | None = None
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
        return read_value(TopicPermission, answer)

    def topic_permissions(
        self, *, user: str = "", vhost: str = ""
    ) -> AsyncIterator[TopicPermission]:
        """Return topic permissions; of all users and vhosts unless one is given."""
        request = pb.ListTopicPermissionsRequest(user=user, vhost=vhost)
        return self._listed(
            lambda stub: stub.ListTopicPermissions, request, "permissions", TopicPermission
        )

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
        return read_value(Policy, await self._call(lambda stub: stub.DescribePolicy, request))

    def policies(self, *, vhost: str = "", operator: bool = False) -> AsyncIterator[Policy]:
        """Return policies, or operator policies; of all vhosts unless one is given."""
        request = pb.ListPoliciesRequest(vhost=vhost, operator=operator)
        return self._listed(lambda stub: stub.ListPolicies, request, "policies", Policy)


def _tags(tags: Iterable[str] | None) -> pb.Tags | None:
    return None if tags is None else pb.Tags(tags=tags)


def _binding_message(binding: Binding) -> pb.Binding:
    """Return the message of a binding.

    Raises:
        ValueError: it leads nowhere, or to two places.
    """
    if bool(binding.queue) == bool(binding.exchange):
        raise ValueError("queue, exchange: a binding leads to one of them")
    message = pb.Binding(
        vhost=binding.vhost,
        source=binding.source,
        routing_key=binding.routing_key,
        arguments=encode_table(binding.arguments, "arguments"),
    )
    if binding.queue:
        message.queue = binding.queue
    else:
        message.exchange = binding.exchange
    return message
