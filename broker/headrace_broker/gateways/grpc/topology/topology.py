# ruff: noqa: N802  (names of gRPC methods)
"""The service Topology: what a cluster defines."""

from __future__ import annotations

import grpc

from headrace_broker.gateways.grpc.server.call import Admission
from headrace_broker.gateways.grpc.server.errors import Context
from headrace_broker.gateways.grpc.server.lookup import LookupService
from headrace_broker.gateways.grpc.server.unary import serve
from headrace_broker.gateways.grpc.topology.exchange_calls import BindingCalls, ExchangeCalls
from headrace_broker.gateways.grpc.topology.permission_calls import (
    PermissionCalls,
    TopicPermissionCalls,
)
from headrace_broker.gateways.grpc.topology.policy_calls import PolicyCalls
from headrace_broker.gateways.grpc.topology.queue_calls import QueueCalls
from headrace_broker.gateways.grpc.topology.user_calls import UserCalls
from headrace_broker.gateways.grpc.topology.vhost_calls import VhostCalls
from headrace_protos.broker.v1 import topology_pb2 as messages
from headrace_protos.broker.v1.topology_pb2_grpc import (
    TopologyServicer,
    add_TopologyServicer_to_server,
)


class TopologyService(TopologyServicer):
    """Declares, deletes, describes and lists for clients.

    Args:
        lookup: looks things up.
    """

    name = messages.DESCRIPTOR.services_by_name["Topology"].full_name

    def __init__(self, lookup: LookupService, admission: Admission) -> None:
        self._admission = admission  # lets calls in
        self._queues = QueueCalls(lookup)
        self._exchanges = ExchangeCalls(lookup)
        self._bindings = BindingCalls(lookup)
        self._vhosts = VhostCalls(lookup)
        self._users = UserCalls(lookup)
        self._permissions = PermissionCalls(lookup)
        self._topic_permissions = TopicPermissionCalls(lookup)
        self._policies = PolicyCalls(lookup)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register with a server."""
        add_TopologyServicer_to_server(self, server)

    async def stop(self, reason: str) -> None:
        """Do nothing: nothing runs between calls."""

    # Queues

    async def DeclareQueue(
        self, request: messages.DeclareQueueRequest, context: Context
    ) -> messages.DeclareQueueResponse:
        """Create a queue unless it is there."""
        return await serve(self._admission, context, self._queues.declare, request)

    async def DeleteQueue(
        self, request: messages.DeleteQueueRequest, context: Context
    ) -> messages.DeleteQueueResponse:
        """Delete a queue."""
        return await serve(self._admission, context, self._queues.delete, request)

    async def PurgeQueue(
        self, request: messages.PurgeQueueRequest, context: Context
    ) -> messages.PurgeQueueResponse:
        """Empty a queue."""
        return await serve(self._admission, context, self._queues.purge, request)

    async def DescribeQueue(
        self, request: messages.DescribeQueueRequest, context: Context
    ) -> messages.QueueDescription:
        """Return everything about a queue."""
        return await serve(self._admission, context, self._queues.describe, request)

    async def ListQueues(
        self, request: messages.ListQueuesRequest, context: Context
    ) -> messages.ListQueuesResponse:
        """List queues."""
        return await serve(self._admission, context, self._queues.list, request)

    # Exchanges

    async def DeclareExchange(
        self, request: messages.DeclareExchangeRequest, context: Context
    ) -> messages.DeclareExchangeResponse:
        """Create an exchange unless it is there."""
        return await serve(self._admission, context, self._exchanges.declare, request)

    async def DeleteExchange(
        self, request: messages.DeleteExchangeRequest, context: Context
    ) -> messages.DeleteResponse:
        """Delete an exchange."""
        return await serve(self._admission, context, self._exchanges.delete, request)

    async def DescribeExchange(
        self, request: messages.DescribeExchangeRequest, context: Context
    ) -> messages.ExchangeDescription:
        """Return everything about an exchange."""
        return await serve(self._admission, context, self._exchanges.describe, request)

    async def ListExchanges(
        self, request: messages.ListExchangesRequest, context: Context
    ) -> messages.ListExchangesResponse:
        """List exchanges."""
        return await serve(self._admission, context, self._exchanges.list, request)

    # Bindings

    async def Bind(self, request: messages.BindRequest, context: Context) -> messages.BindResponse:
        """Add a binding."""
        return await serve(self._admission, context, self._bindings.bind, request)

    async def Unbind(
        self, request: messages.UnbindRequest, context: Context
    ) -> messages.DeleteResponse:
        """Remove a binding."""
        return await serve(self._admission, context, self._bindings.unbind, request)

    async def ListBindings(
        self, request: messages.ListBindingsRequest, context: Context
    ) -> messages.ListBindingsResponse:
        """List bindings."""
        return await serve(self._admission, context, self._bindings.list, request)

    # Vhosts

    async def DeclareVhost(
        self, request: messages.DeclareVhostRequest, context: Context
    ) -> messages.DeclareVhostResponse:
        """Create a vhost unless it is there."""
        return await serve(self._admission, context, self._vhosts.declare, request)

    async def DeleteVhost(
        self, request: messages.DeleteVhostRequest, context: Context
    ) -> messages.DeleteResponse:
        """Delete a vhost."""
        return await serve(self._admission, context, self._vhosts.delete, request)

    async def DescribeVhost(
        self, request: messages.DescribeVhostRequest, context: Context
    ) -> messages.VhostDescription:
        """Return everything about a vhost."""
        return await serve(self._admission, context, self._vhosts.describe, request)

    async def ListVhosts(
        self, request: messages.ListVhostsRequest, context: Context
    ) -> messages.ListVhostsResponse:
        """List vhosts."""
        return await serve(self._admission, context, self._vhosts.list, request)

    # Users

    async def DeclareUser(
        self, request: messages.DeclareUserRequest, context: Context
    ) -> messages.DeclareUserResponse:
        """Create a user unless it is there."""
        return await serve(self._admission, context, self._users.declare, request)

    async def DeleteUser(
        self, request: messages.DeleteUserRequest, context: Context
    ) -> messages.DeleteResponse:
        """Delete a user."""
        return await serve(self._admission, context, self._users.delete, request)

    async def DescribeUser(
        self, request: messages.DescribeUserRequest, context: Context
    ) -> messages.UserDescription:
        """Return everything about a user."""
        return await serve(self._admission, context, self._users.describe, request)

    async def ListUsers(
        self, request: messages.ListUsersRequest, context: Context
    ) -> messages.ListUsersResponse:
        """List users."""
        return await serve(self._admission, context, self._users.list, request)

    # Permissions

    async def DeclarePermission(
        self, request: messages.DeclarePermissionRequest, context: Context
    ) -> messages.DeclarePermissionResponse:
        """Create a permission unless it is there."""
        return await serve(self._admission, context, self._permissions.declare, request)

    async def DeletePermission(
        self, request: messages.DeletePermissionRequest, context: Context
    ) -> messages.DeleteResponse:
        """Delete a permission."""
        return await serve(self._admission, context, self._permissions.delete, request)

    async def DescribePermission(
        self, request: messages.DescribePermissionRequest, context: Context
    ) -> messages.Permission:
        """Return everything about a permission."""
        return await serve(self._admission, context, self._permissions.describe, request)

    async def ListPermissions(
        self, request: messages.ListPermissionsRequest, context: Context
    ) -> messages.ListPermissionsResponse:
        """List permissions."""
        return await serve(self._admission, context, self._permissions.list, request)

    # Topic permissions

    async def DeclareTopicPermission(
        self, request: messages.DeclareTopicPermissionRequest, context: Context
    ) -> messages.DeclareTopicPermissionResponse:
        """Create a topic permission unless it is there."""
        return await serve(self._admission, context, self._topic_permissions.declare, request)

    async def DeleteTopicPermission(
        self, request: messages.DeleteTopicPermissionRequest, context: Context
    ) -> messages.DeleteResponse:
        """Delete a topic permission, or all of a user in a vhost."""
        return await serve(self._admission, context, self._topic_permissions.delete, request)

    async def DescribeTopicPermission(
        self, request: messages.DescribeTopicPermissionRequest, context: Context
    ) -> messages.TopicPermission:
        """Return everything about a topic permission."""
        return await serve(self._admission, context, self._topic_permissions.describe, request)

    async def ListTopicPermissions(
        self, request: messages.ListTopicPermissionsRequest, context: Context
    ) -> messages.ListTopicPermissionsResponse:
        """List topic permissions."""
        return await serve(self._admission, context, self._topic_permissions.list, request)

    # Policies

    async def DeclarePolicy(
        self, request: messages.DeclarePolicyRequest, context: Context
    ) -> messages.DeclarePolicyResponse:
        """Create a policy unless it is there."""
        return await serve(self._admission, context, self._policies.declare, request)

    async def DeletePolicy(
        self, request: messages.DeletePolicyRequest, context: Context
    ) -> messages.DeleteResponse:
        """Delete a policy."""
        return await serve(self._admission, context, self._policies.delete, request)

    async def DescribePolicy(
        self, request: messages.DescribePolicyRequest, context: Context
    ) -> messages.Policy:
        """Return everything about a policy."""
        return await serve(self._admission, context, self._policies.describe, request)

    async def ListPolicies(
        self, request: messages.ListPoliciesRequest, context: Context
    ) -> messages.ListPoliciesResponse:
        """List policies."""
        return await serve(self._admission, context, self._policies.list, request)
