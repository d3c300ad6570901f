"""Requests of Terraform's provider `cyrilgdn/rabbitmq`: create, read, change, delete resources.

The calls, their bodies and what is read of the answers are those of the provider and of the client
library under it, rabbit-hole: field by field with the types that it decodes into.
"""

from __future__ import annotations

import base64
import http.client
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import pytest
from e2e.harness.cluster import Cluster

VHOST = "terra/form"
USER = "terra@form"


class Rate(msgspec.Struct):
    """RateDetails."""

    rate: float
    samples: list[dict[str, int]] | None = None


class VhostInfo(msgspec.Struct):
    """Fields that the provider reads of a vhost."""

    name: str
    description: str
    tags: str | list[str]
    default_queue_type: str
    tracing: bool
    messages: int
    messages_details: Rate
    messages_ready: int
    messages_ready_details: Rate
    messages_unacknowledged: int
    recv_oct: int
    send_oct: int
    recv_cnt: int
    send_cnt: int
    recv_oct_details: Rate
    send_oct_details: Rate
    cluster_state: dict[str, str]


class Limits(msgspec.Struct):
    """Limits of a vhost."""

    vhost: str
    value: dict[str, int]


class UserInfo(msgspec.Struct):
    """Fields that the provider reads of a user."""

    name: str
    password_hash: str
    tags: list[str] | str
    hashing_algorithm: str


class ExchangeInfo(msgspec.Struct):
    """Fields that the provider reads of an exchange."""

    name: str
    vhost: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: dict[str, Any]
    message_stats: dict[str, Any]


class QueueInfo(msgspec.Struct):
    """Fields that the provider reads of a queue; Go takes null for "", and a lacking one for 0."""

    name: str
    vhost: str
    type: str
    durable: bool
    auto_delete: bool
    exclusive: bool
    arguments: dict[str, Any]
    node: str
    state: str
    leader: str
    members: list[str]
    policy: str | None
    consumers: int = 0
    messages: int = 0
    messages_details: Rate | None = None
    message_bytes: int = 0
    online: list[str] | None = None
    memory: int = 0


class Provider:
    """Asks as rabbit-hole does: one connection for each request, a refusal is an error."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.location = ""

    def ask(self, method: str, *parts: str, body: Any = None) -> Any:
        """Make a request that succeeds, and return the answer.

        Args:
            method: of HTTP.
            parts: of the path, not quoted.
            body: becomes JSON.
        """
        status, answer = self.try_to(method, *parts, body=body)
        assert status < 400, (method, parts, answer)
        if method == "GET":
            assert status == 200
        else:
            assert status in (201, 204), (method, parts)
            assert answer is None
        return answer

    def try_to(self, method: str, *parts: str, body: Any = None) -> tuple[int, Any]:
        """Make a request and return status and body."""
        login = base64.b64encode(b"guest:guest").decode()
        headers = {"Authorization": f"Basic {login}", "Connection": "close"}
        data = None
        if method != "GET":
            headers["Content-Type"] = "application/json"
            data = msgspec.json.encode(body) if body is not None else b""
        connection = http.client.HTTPConnection(self._address, timeout=30)
        try:
            path = "/api/" + "/".join(quote(part, safe="") for part in parts)
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read()
            self.location = answer.getheader("Location", "")
            return answer.status, msgspec.json.decode(text) if text else None
        finally:
            connection.close()

    def is_gone(self, *parts: str) -> None:
        """Check that a deleted object is not found, with words, and can be deleted again."""
        status, answer = self.try_to("GET", *parts)
        assert (status, answer["error"]) == (404, "not_found")
        assert answer["reason"]
        assert self.try_to("DELETE", *parts)[0] in (204, 404)


@pytest.fixture(scope="module")
def provider(session_cluster: Cluster) -> Iterator[Provider]:
    """With a vhost, which goes in the end; all requests go to one node."""
    found = Provider(session_cluster.node("n2").http)
    settings = {"description": "", "tags": "", "tracing": False}
    found.ask("PUT", "vhosts", VHOST, body=settings)
    yield found
    found.ask("DELETE", "vhosts", VHOST)
    found.is_gone("vhosts", VHOST)


def read_vhost(provider: Provider) -> tuple[VhostInfo, dict[str, int]]:
    info = msgspec.convert(provider.ask("GET", "vhosts", VHOST), VhostInfo)
    limits = msgspec.convert(provider.ask("GET", "vhost-limits", VHOST), list[Limits])
    return info, limits[0].value if limits else {}


def test_a_vhost_and_its_limits(provider: Provider) -> None:
    info, limits = read_vhost(provider)
    assert (info.name, info.description, info.tracing, limits) == (VHOST, "", False, {})
    assert info.cluster_state == dict.fromkeys(("n1", "n2", "n3"), "running")
    settings = {
        "description": "changed",
        "tags": "",
        "default_queue_type": "quorum",
        "tracing": False,
    }
    provider.ask("PUT", "vhosts", VHOST, body=settings)
    for limit in ("max-connections", "max-queues"):  # whether they are set or not
        provider.ask("DELETE", "vhost-limits", VHOST, limit)
    provider.ask("PUT", "vhost-limits", VHOST, "max-queues", body={"value": 50})
    info, limits = read_vhost(provider)
    assert (info.description, info.default_queue_type) == ("changed", "quorum")
    assert limits == {"max-queues": 50}
    provider.ask("DELETE", "vhost-limits", VHOST, "max-queues")
    assert read_vhost(provider)[1] == {}


def test_a_user_and_what_it_may(provider: Provider) -> None:
    settings = {"name": "", "tags": "management,monitoring", "password": "secret"}
    provider.ask("PUT", "users", USER, body=settings)
    info = msgspec.convert(provider.ask("GET", "users", USER), UserInfo)
    assert (info.name, info.tags) == (USER, ["management", "monitoring"])
    provider.ask("PUT", "users", USER, body={**settings, "tags": "", "password": "other"})
    assert msgspec.convert(provider.ask("GET", "users", USER), UserInfo).tags == []

    path = ("permissions", VHOST, USER)
    for write in (".*", "^a"):
        rights = {"configure": "", "write": write, "read": ".*"}
        provider.ask("PUT", *path, body=rights)
        assert provider.ask("GET", *path) == {"user": USER, "vhost": VHOST, **rights}
    provider.ask("DELETE", *path)
    provider.is_gone(*path)

    path = ("topic-permissions", VHOST, USER)
    for exchange in ("amq.topic", "other"):
        rights = {"exchange": exchange, "write": "^a", "read": ".*"}
        provider.ask("PUT", *path, body=rights)
        assert {"user": USER, "vhost": VHOST, **rights} in provider.ask("GET", *path)
    provider.ask("DELETE", *path)
    assert provider.try_to("GET", *path)[0] in (200, 404)
    provider.ask("DELETE", "users", USER)
    provider.is_gone("users", USER)


def test_an_exchange(provider: Provider) -> None:
    path = ("exchanges", VHOST, "ex/change")
    settings = {"type": "fanout", "durable": True, "arguments": {"alternate-exchange": "a"}}
    provider.ask("PUT", *path, body=settings)
    info = msgspec.convert(provider.ask("GET", *path), ExchangeInfo)
    assert (info.name, info.vhost, info.type) == ("ex/change", VHOST, "fanout")
    assert (info.durable, info.auto_delete) == (True, False)
    assert info.arguments == {"alternate-exchange": "a"}
    provider.ask("DELETE", *path)
    provider.is_gone(*path)


@pytest.mark.parametrize(
    ("durable", "kind", "arguments"),
    [
        (True, "quorum", {"x-queue-type": "quorum", "x-max-length": 9}),
        (True, "classic", {"x-queue-type": "classic"}),
        (False, "classic", {}),
    ],
)
def test_a_queue(provider: Provider, durable: bool, kind: str, arguments: dict[str, Any]) -> None:
    path = ("queues", VHOST, "a queue")
    settings = {"type": "", "durable": durable, "arguments": arguments}
    provider.ask("PUT", *path, body=settings)
    provider.ask("PUT", *path, body=settings)  # as it is already
    info = msgspec.convert(provider.ask("GET", *path), QueueInfo)
    assert (info.name, info.vhost, info.type) == ("a queue", VHOST, kind)
    assert (info.durable, info.auto_delete, info.arguments) == (durable, False, arguments)
    provider.ask("DELETE", *path)
    provider.is_gone(*path)


@pytest.mark.parametrize(
    ("kind", "key", "arguments"),
    [
        ("queue", "a.#/b", {}),
        ("queue", "", {}),
        ("queue", "k", {"x-match": "any", "n": 1}),
        ("exchange", "*.k", {}),
    ],
)
def test_a_binding(provider: Provider, kind: str, key: str, arguments: dict[str, Any]) -> None:
    provider.ask("PUT", "exchanges", VHOST, "from", body={"type": "topic", "durable": True})
    provider.ask("PUT", f"{kind}s", VHOST, "to", body={"type": "topic", "durable": True})
    path = ("bindings", VHOST, "e", "from", kind[0], "to")
    wanted = {
        "source": "from",
        "vhost": VHOST,
        "destination": "to",
        "destination_type": kind,
        "routing_key": key,
        "arguments": arguments,
    }
    provider.ask("POST", *path, body=wanted)
    properties_key = unquote(provider.location.split("/")[-1])
    assert provider.ask("GET", *path) == [{**wanted, "properties_key": properties_key}]
    provider.ask("DELETE", *path, properties_key)
    assert provider.ask("GET", *path) == []
    assert provider.try_to("DELETE", *path, properties_key)[0] == 404
    provider.ask("DELETE", f"{kind}s", VHOST, "to")
    provider.ask("DELETE", "exchanges", VHOST, "from")


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
def test_a_policy(provider: Provider, kind: str) -> None:
    path = (kind, VHOST, "a policy")
    for priority, definition in ((0, {"max-length": 10}), (7, {"expires": 60_000})):
        wanted = {
            "vhost": VHOST,
            "pattern": "^a",
            "apply-to": "queues",
            "name": "a policy",
            "priority": priority,
            "definition": definition,
        }
        provider.ask("PUT", *path, body=wanted)
        assert provider.ask("GET", *path) == wanted
    provider.ask("DELETE", *path)
    provider.is_gone(*path)


def test_lists_that_are_asked_for_with_a_slash_at_the_end(provider: Provider) -> None:
    for what in ("users", "bindings", "permissions", "topic-permissions"):
        assert isinstance(provider.ask("GET", what, ""), list)
