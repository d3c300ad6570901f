"""Permissions: users of every kind, operations, and the three protocols, as one table.

AMQP, gRPC and HTTP have to answer alike. What is allowed may still fail because something is not
there; what is not allowed is refused whether it is there or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest
from e2e.harness.cluster import Cluster
from e2e.harness.doer import AMQP, GRPC, HTTP, LIMIT, VHOST, AmqpUser, GrpcUser, HttpUser

from headrace_broker.cli.session.api_client import path_of


class User(NamedTuple):
    """A kind of user.

    Attributes:
        rights: what it may do in the vhost, with any name; None where it may not enter.
        tags: what it may look at and change beside.
        keys: routing keys at the topic exchange: a pattern, "" for no topic permission.
    """

    rights: frozenset[str] | None
    tags: tuple[str, ...] = ("management",)
    keys: str = ""


def rights(*words: str) -> frozenset[str]:
    return frozenset(words)


EVERYTHING: Final = rights("configure", "write", "read")
USERS: Final = {
    "owner": User(EVERYTHING),
    "configurer": User(rights("configure")),
    "writer": User(rights("write")),
    "reader": User(rights("read")),
    "binder": User(rights("write", "read")),
    "idle": User(rights()),
    "narrow": User(EVERYTHING, keys="^{username}\\."),
    "outsider": User(None),
    "root": User(None, ("administrator",)),
    "client": User(EVERYTHING, ()),
    "master": User(EVERYTHING, ("administrator",)),
    "watcher": User(None, ("monitoring",)),
    "lawyer": User(EVERYTHING, ("policymaker",)),
}
# What an operation takes; "key" is a routing key that a topic permission may not allow.
OPERATIONS: Final = {
    "declare_queue": rights("configure"),
    "declare_queue_with_letters": EVERYTHING,
    "purge_queue": rights("read"),
    "delete_queue": rights("configure"),
    "declare_exchange": rights("configure"),
    "declare_exchange_with_alternate": EVERYTHING,
    "delete_exchange": rights("configure"),
    "bind": rights("write", "read"),
    "unbind": rights("write", "read"),
    "bind_exchange": rights("write", "read"),
    "bind_own_key": rights("write", "read"),
    "bind_key": rights("write", "read", "key"),
    "publish": rights("write"),
    "publish_to_queue": rights("write"),
    "publish_own_key": rights("write"),
    "publish_key": rights("write", "key"),
    "publish_copy": rights("write", "key"),
    "get": rights("read"),
    "consume": rights("read"),
}
# What takes one of these tags, over gRPC and HTTP; and whether one must also be able to enter the
# vhost, or to see it.
ADMINISTRATORS: Final = frozenset({"administrator"})
EVERYBODY: Final = frozenset({"administrator", "monitoring", "policymaker", "management"})
NOWHERE, ENTERED, SEEN = "", "entered", "seen"
ADMINISTRATION: Final = {
    "list_users": (ADMINISTRATORS, NOWHERE),
    "declare_user": (ADMINISTRATORS, NOWHERE),
    "list_permissions": (ADMINISTRATORS, NOWHERE),
    "declare_permission": (ADMINISTRATORS, NOWHERE),
    "declare_topic_permission": (ADMINISTRATORS, NOWHERE),
    "declare_vhost": (ADMINISTRATORS, NOWHERE),
    "declare_policy": (ADMINISTRATORS | {"policymaker"}, ENTERED),
    "declare_operator_policy": (ADMINISTRATORS, ENTERED),
    "list_policies": (EVERYBODY, SEEN),
    "list_queues": (EVERYBODY, SEEN),
    "list_exchanges": (EVERYBODY, SEEN),
    "list_bindings": (EVERYBODY, SEEN),
    "list_limits": (ADMINISTRATORS | {"monitoring"}, NOWHERE),
    "set_limit": (ADMINISTRATORS, NOWHERE),
}


def may_administer(name: str, operation: str) -> bool:
    """Return what the table says of an operation that takes a tag."""
    user = USERS[name]
    tags, place = ADMINISTRATION[operation]
    if not tags & {*user.tags}:
        return False
    sees = place == SEEN and bool({*user.tags} & {"administrator", "monitoring"})
    return place == NOWHERE or user.rights is not None or sees


def may(name: str, operation: str, protocol: str) -> bool:
    """Return what the table says."""
    user = USERS[name]
    if user.rights is None or (protocol == HTTP and not user.tags):
        return False
    owned = user.rights | (rights() if user.keys else rights("key"))
    return OPERATIONS[operation] <= owned


@pytest.fixture(scope="module")
def node(session_cluster: Cluster) -> Iterator[Any]:
    """A node of a cluster with these users, and what they try to do things with."""
    node = session_cluster.node("n1")
    api = node.api

    def ask(method: str, path: str, body: Any = None) -> None:
        answer = api.request(method, path, body)
        assert answer.status in (201, 204), (path, answer)

    ask("PUT", path_of("vhosts", VHOST), {})
    ask("PUT", path_of("permissions", VHOST, "guest"), dict.fromkeys(EVERYTHING, ".*"))
    for name, user in USERS.items():
        ask("PUT", path_of("users", name), {"password": name, "tags": list(user.tags)})
        if user.rights is not None:
            patterns = {each: ".*" if each in user.rights else "" for each in EVERYTHING}
            ask("PUT", path_of("permissions", VHOST, name), patterns)
        if user.keys:
            body = {"exchange": "topic", "write": user.keys, "read": user.keys}
            ask("PUT", path_of("topic-permissions", VHOST, name), body)
    classic = {"arguments": {"x-queue-type": "classic"}}
    ask("PUT", path_of("queues", VHOST, "queue"), classic)
    ask("PUT", path_of("exchanges", VHOST, "direct"), {"type": "direct"})
    ask("PUT", path_of("exchanges", VHOST, "topic"), {"type": "topic"})
    yield node
    for name in (VHOST, f"{VHOST}-made"):
        ask("DELETE", path_of("vhosts", name))
    for name in (*USERS, "made"):
        ask("DELETE", path_of("users", name))
    ask("DELETE", path_of("flow", "limits", LIMIT))
    session_cluster.close_connections()


@pytest.fixture(scope="module")
def doers(node: Any) -> Iterator[dict[str, Any]]:
    """Users who do operations, by protocol."""
    found: dict[str, Any] = {
        AMQP: AmqpUser(int(node.amqp.rpartition(":")[2])),
        GRPC: GrpcUser(node.grpc),
        HTTP: HttpUser(node.http),
    }
    yield found
    for each in found.values():
        each.close()


@pytest.mark.parametrize("protocol", [AMQP, GRPC, HTTP])
def test_all_protocols_judge_alike(doers: dict[str, Any], protocol: str) -> None:
    cells = [(name, operation) for operation in OPERATIONS for name in USERS]
    found = {cell: doers[protocol].do(*cell) for cell in cells}
    wrong = {cell: answer for cell, answer in found.items() if answer is not may(*cell, protocol)}
    assert wrong == {}


@pytest.mark.parametrize("protocol", [GRPC, HTTP])
def test_tags_open_the_same_doors(doers: dict[str, Any], protocol: str) -> None:
    cells = [(name, operation) for operation in ADMINISTRATION for name in USERS]
    found = {cell: doers[protocol].do(*cell) for cell in cells}
    wrong = {cell: answer for cell, answer in found.items() if answer is not may_administer(*cell)}
    assert wrong == {}
