"""Definitions between their messages and values."""

from __future__ import annotations

from headrace_client.definition import (
    Binding,
    Exchange,
    Permission,
    Policy,
    Queue,
    QueueCounts,
    QueueFlowState,
    TopicPermission,
    User,
    Vhost,
)
from headrace_client.value import decode_table, encode_table
from headrace_protos.broker.v1 import topology_pb2 as pb


def read_counts(counts: pb.QueueCounts) -> QueueCounts:
    """Return how much is in a queue."""
    return QueueCounts(
        counts.messages_ready,
        counts.messages_unacknowledged,
        counts.consumers,
        counts.oldest_ms,
        counts.messages_delayed if counts.HasField("messages_delayed") else None,
        counts.messages_dlx if counts.HasField("messages_dlx") else None,
    )


def read_flow(flow: pb.QueueFlowState) -> QueueFlowState:
    """Return how a queue moves."""
    names = (each.name for each in pb.QueueFlowState.DESCRIPTOR.fields)
    known = set(QueueFlowState.__slots__)
    return QueueFlowState(**{name: getattr(flow, name) for name in names if name in known})


def read_queue(queue: pb.QueueDescription) -> Queue:
    """Return a queue."""
    return Queue(
        vhost=queue.vhost,
        name=queue.name,
        type=queue.type,
        durable=queue.durable,
        exclusive=queue.exclusive,
        auto_delete=queue.auto_delete,
        arguments=decode_table(queue.arguments),
        policy=queue.policy,
        operator_policy=queue.operator_policy,
        effective_definition=decode_table(queue.effective_definition),
        leader=queue.leader,
        members=tuple(queue.members),
        counts=read_counts(queue.counts) if queue.HasField("counts") else None,
        flow=read_flow(queue.flow) if queue.HasField("flow") else None,
    )


def read_exchange(exchange: pb.ExchangeDescription) -> Exchange:
    """Return an exchange."""
    return Exchange(
        vhost=exchange.vhost,
        name=exchange.name,
        type=exchange.type,
        durable=exchange.durable,
        auto_delete=exchange.auto_delete,
        internal=exchange.internal,
        arguments=decode_table(exchange.arguments),
        policy=exchange.policy,
    )


def read_binding(binding: pb.Binding) -> Binding:
    """Return a binding."""
    return Binding(
        vhost=binding.vhost,
        source=binding.source,
        queue=binding.queue,
        exchange=binding.exchange,
        routing_key=binding.routing_key,
        arguments=decode_table(binding.arguments),
    )


def binding_message(binding: Binding) -> pb.Binding:
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


def read_vhost(vhost: pb.VhostDescription) -> Vhost:
    """Return a vhost."""
    return Vhost(
        vhost.name,
        vhost.description,
        tuple(vhost.tags),
        vhost.default_queue_type,
        dict(vhost.limits),
    )


def read_user(user: pb.UserDescription) -> User:
    """Return a user."""
    return User(
        user.name, tuple(user.tags), user.has_password, user.loopback_only, dict(user.limits)
    )


def read_permission(permission: pb.Permission) -> Permission:
    """Return a permission."""
    return Permission(
        permission.user,
        permission.vhost,
        permission.configure,
        permission.write,
        permission.read,
    )


def read_topic_permission(permission: pb.TopicPermission) -> TopicPermission:
    """Return a permission for a topic exchange."""
    return TopicPermission(
        permission.user,
        permission.vhost,
        permission.exchange,
        permission.write,
        permission.read,
    )


def read_policy(policy: pb.Policy) -> Policy:
    """Return a policy."""
    return Policy(
        vhost=policy.vhost,
        name=policy.name,
        pattern=policy.pattern,
        definition=decode_table(policy.definition),
        priority=policy.priority,
        apply_to=policy.apply_to,
        operator=policy.operator,
    )
