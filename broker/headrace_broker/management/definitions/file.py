"""Definitions as a file holds them: what POST /api/definitions takes, in RabbitMQ's form."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace_broker.management.http.answer import bad_request
from headrace_broker.management.resources.policies import PolicyBody
from headrace_broker.model.limits import DEFINITION_CONTAINERS_MAX, DEFINITION_VALUES_MAX


class UserDefinition(msgspec.Struct):
    """A user, with the hash of its password, or the password, or neither."""

    name: str
    tags: str | list[str] = []
    password_hash: str | None = None
    hashing_algorithm: str | None = None
    password: str | None = None
    limits: dict[str, int] = {}
    loopback_only: bool | None = None


class VhostMetadataDefinition(msgspec.Struct):
    """Metadata of a vhost, as newer versions write them."""

    description: str = ""
    tags: list[str] = []
    default_queue_type: str | None = None


class VhostDefinition(msgspec.Struct):
    """A vhost."""

    name: str
    description: str | None = None
    tags: list[str] | None = None
    default_queue_type: str | None = None
    metadata: VhostMetadataDefinition = msgspec.field(default_factory=VhostMetadataDefinition)


class PermissionDefinition(msgspec.Struct):
    """Permissions of a user in a vhost."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermissionDefinition(msgspec.Struct):
    """Which routing keys a user may use at a topic exchange."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class ParameterDefinition(msgspec.Struct):
    """A parameter; without a vhost that of the path."""

    component: str
    name: str
    value: Any
    vhost: str = ""


class GlobalParameterDefinition(msgspec.Struct):
    """A parameter of the cluster."""

    name: str
    value: Any


class PolicyDefinition(PolicyBody, kw_only=True):
    """A policy; without a vhost in that of the path."""

    name: str
    vhost: str = ""


class QueueDefinition(msgspec.Struct):
    """A queue, likewise."""

    name: str
    vhost: str = ""
    durable: bool = True
    auto_delete: bool = False
    arguments: dict[str, Any] = {}


class ExchangeDefinition(msgspec.Struct):
    """An exchange, likewise."""

    name: str
    type: str
    vhost: str = ""
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}


class BindingDefinition(msgspec.Struct):
    """A binding, likewise."""

    source: str
    destination: str
    destination_type: str
    vhost: str = ""
    routing_key: str = ""
    arguments: dict[str, Any] = {}


class VhostFile(msgspec.Struct):
    """Content of a vhost; unknown fields are ignored."""

    parameters: list[ParameterDefinition] = []
    policies: list[PolicyDefinition] = []
    exchanges: list[ExchangeDefinition] = []
    queues: list[QueueDefinition] = []
    bindings: list[BindingDefinition] = []


class DefinitionFile(VhostFile):
    """Content of a cluster."""

    users: list[UserDefinition] = []
    vhosts: list[VhostDefinition] = []
    permissions: list[PermissionDefinition] = []
    topic_permissions: list[TopicPermissionDefinition] = []
    global_parameters: list[GlobalParameterDefinition] = []


def check_size(text: bytes) -> None:
    """Refuse a file that would be too many values: arguments may hold any.

    Marks within strings count too, of which names have few.

    Raises:
        ApiError: 400.
    """
    containers = text.count(b"{") + text.count(b"[")
    if containers > DEFINITION_CONTAINERS_MAX:
        rule = f"must have at most {DEFINITION_CONTAINERS_MAX} objects and arrays"
        raise bad_request(f"body: {rule}, it has some {containers}")
    values = containers + text.count(b",")
    if values > DEFINITION_VALUES_MAX:
        raise bad_request(f"body: must have at most {DEFINITION_VALUES_MAX} values")
