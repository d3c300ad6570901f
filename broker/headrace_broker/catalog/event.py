"""Changes of the catalog, in their order."""

from __future__ import annotations

import msgspec

from headrace_broker.model.definition import (
    Binding,
    Exchange,
    Node,
    Permission,
    Policy,
    Queue,
    TopicPermission,
    User,
    Vhost,
)


class NodeAdded(msgspec.Struct, frozen=True):
    """A node joined, or something about it changed."""

    node: Node


class NodeRemoved(msgspec.Struct, frozen=True):
    """A node was forgotten; no queue has a replica on it."""

    node: Node


class ClusterVersionRaised(msgspec.Struct, frozen=True):
    """The cluster uses what this version stands for."""

    version: int


class VhostAdded(msgspec.Struct, frozen=True):
    """A vhost was created; its exchanges follow."""

    vhost: Vhost


class VhostChanged(msgspec.Struct, frozen=True):
    """A vhost got another description or default queue type."""

    vhost: Vhost


class VhostRemoved(msgspec.Struct, frozen=True):
    """A vhost was deleted, after everything in it."""

    vhost: Vhost


class UserChanged(msgspec.Struct, frozen=True):
    """A user was created or replaced, or deleted when `user` is None."""

    name: str
    user: User | None


class VhostLimitsChanged(msgspec.Struct, frozen=True):
    """A vhost's limits are now these; none when `limits` is empty."""

    vhost: str
    limits: dict[str, int]


class UserLimitsChanged(msgspec.Struct, frozen=True):
    """A user's limits are now these; none when `limits` is empty."""

    user: str
    limits: dict[str, int]


class PermissionChanged(msgspec.Struct, frozen=True):
    """A user's permission in a vhost was set, or taken away when `permission` is None."""

    user: str
    vhost: str
    permission: Permission | None


class TopicPermissionChanged(msgspec.Struct, frozen=True):
    """Which routing keys a user may use was set, or is open again when `permission` is None."""

    user: str
    vhost: str
    exchange: str
    permission: TopicPermission | None


class PolicyChanged(msgspec.Struct, frozen=True):
    """A policy was set, or deleted when `policy` is None."""

    vhost: str
    name: str
    operator: bool
    policy: Policy | None


class ParameterChanged(msgspec.Struct, frozen=True):
    """A limit of flow control was set, or taken back when `value` is None."""

    name: str
    value: int | str | None


class ExchangeAdded(msgspec.Struct, frozen=True):
    """An exchange was created."""

    exchange: Exchange


class ExchangeRemoved(msgspec.Struct, frozen=True):
    """An exchange was deleted, after its bindings."""

    exchange: Exchange


class QueueAdded(msgspec.Struct, frozen=True):
    """A queue was created."""

    queue: Queue


class QueueChanged(msgspec.Struct, frozen=True):
    """A queue lives on other nodes now, or no longer on those that it was leaving."""

    queue: Queue


class QueueRemoved(msgspec.Struct, frozen=True):
    """A queue was deleted, after its bindings."""

    queue: Queue


class BindingAdded(msgspec.Struct, frozen=True):
    """A binding was created; its source and destination exist."""

    binding: Binding


class BindingRemoved(msgspec.Struct, frozen=True):
    """A binding was deleted; its source and destination still exist."""

    binding: Binding


Event = (
    NodeAdded
    | NodeRemoved
    | ClusterVersionRaised
    | VhostAdded
    | VhostChanged
    | VhostRemoved
    | VhostLimitsChanged
    | UserChanged
    | UserLimitsChanged
    | PermissionChanged
    | TopicPermissionChanged
    | PolicyChanged
    | ParameterChanged
    | ExchangeAdded
    | ExchangeRemoved
    | QueueAdded
    | QueueChanged
    | QueueRemoved
    | BindingAdded
    | BindingRemoved
)
