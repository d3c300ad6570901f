"""What changed in the catalog, in the order in which it changed."""

from __future__ import annotations

import msgspec

from headrace_broker.model.definition import Binding, Exchange, Node, Queue, User, Vhost


class NodeAdded(msgspec.Struct, frozen=True):
    """A node joined, or changed its name or address."""

    node: Node


class VhostAdded(msgspec.Struct, frozen=True):
    """A vhost was created; its exchanges follow."""

    vhost: Vhost


class VhostRemoved(msgspec.Struct, frozen=True):
    """A vhost was deleted, after everything in it."""

    vhost: Vhost


class UserChanged(msgspec.Struct, frozen=True):
    """A user was created or replaced, or deleted when `user` is None."""

    name: str
    user: User | None


class ExchangeAdded(msgspec.Struct, frozen=True):
    """An exchange was created."""

    exchange: Exchange


class ExchangeRemoved(msgspec.Struct, frozen=True):
    """An exchange was deleted, after its bindings."""

    exchange: Exchange


class QueueAdded(msgspec.Struct, frozen=True):
    """A queue was created."""

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
    | VhostAdded
    | VhostRemoved
    | UserChanged
    | ExchangeAdded
    | ExchangeRemoved
    | QueueAdded
    | QueueRemoved
    | BindingAdded
    | BindingRemoved
)
