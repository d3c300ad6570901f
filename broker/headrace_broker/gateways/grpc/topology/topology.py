"""The service Topology: what a cluster defines."""

from __future__ import annotations

import grpc

from headrace_broker.gateways.grpc.server.call import Admission
from headrace_broker.gateways.grpc.server.lookup import LookupService
from headrace_broker.gateways.grpc.server.unary import unary_of
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
        self.admission = admission  # lets calls in
        kinds = (
            QueueCalls,
            ExchangeCalls,
            BindingCalls,
            VhostCalls,
            UserCalls,
            PermissionCalls,
            TopicPermissionCalls,
            PolicyCalls,
        )
        self.parts = {kind: kind(lookup) for kind in kinds}

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register with a server."""
        add_TopologyServicer_to_server(self, server)

    async def stop(self, reason: str) -> None:
        """Do nothing: nothing runs between calls."""

    # Queues

    DeclareQueue = unary_of(QueueCalls, QueueCalls.declare)
    DeleteQueue = unary_of(QueueCalls, QueueCalls.delete)
    PurgeQueue = unary_of(QueueCalls, QueueCalls.purge)
    DescribeQueue = unary_of(QueueCalls, QueueCalls.describe)
    ListQueues = unary_of(QueueCalls, QueueCalls.list)

    # Exchanges

    DeclareExchange = unary_of(ExchangeCalls, ExchangeCalls.declare)
    DeleteExchange = unary_of(ExchangeCalls, ExchangeCalls.delete)
    DescribeExchange = unary_of(ExchangeCalls, ExchangeCalls.describe)
    ListExchanges = unary_of(ExchangeCalls, ExchangeCalls.list)

    # Bindings

    Bind = unary_of(BindingCalls, BindingCalls.bind)
    Unbind = unary_of(BindingCalls, BindingCalls.unbind)
    ListBindings = unary_of(BindingCalls, BindingCalls.list)

    # Vhosts

    DeclareVhost = unary_of(VhostCalls, VhostCalls.declare)
    DeleteVhost = unary_of(VhostCalls, VhostCalls.delete)
    DescribeVhost = unary_of(VhostCalls, VhostCalls.describe)
    ListVhosts = unary_of(VhostCalls, VhostCalls.list)

    # Users

    DeclareUser = unary_of(UserCalls, UserCalls.declare)
    DeleteUser = unary_of(UserCalls, UserCalls.delete)
    DescribeUser = unary_of(UserCalls, UserCalls.describe)
    ListUsers = unary_of(UserCalls, UserCalls.list)

    # Permissions

    DeclarePermission = unary_of(PermissionCalls, PermissionCalls.declare)
    DeletePermission = unary_of(PermissionCalls, PermissionCalls.delete)
    DescribePermission = unary_of(PermissionCalls, PermissionCalls.describe)
    ListPermissions = unary_of(PermissionCalls, PermissionCalls.list)

    # Topic permissions

    DeclareTopicPermission = unary_of(TopicPermissionCalls, TopicPermissionCalls.declare)
    DeleteTopicPermission = unary_of(TopicPermissionCalls, TopicPermissionCalls.delete)
    DescribeTopicPermission = unary_of(TopicPermissionCalls, TopicPermissionCalls.describe)
    ListTopicPermissions = unary_of(TopicPermissionCalls, TopicPermissionCalls.list)

    # Policies

    DeclarePolicy = unary_of(PolicyCalls, PolicyCalls.declare)
    DeletePolicy = unary_of(PolicyCalls, PolicyCalls.delete)
    DescribePolicy = unary_of(PolicyCalls, PolicyCalls.describe)
    ListPolicies = unary_of(PolicyCalls, PolicyCalls.list)
