"""Publishing over HTTP."""

from __future__ import annotations

import base64
import io
import tracemalloc
from typing import Any

import pytest

from headrace_broker.catalog.command import PutPermission, PutTopicPermission
from headrace_broker.codecs.method import decode_properties
from headrace_broker.model.definition import Permission, TopicPermission
from headrace_broker.model.limits import (
    PROPERTIES_BYTES_MAX,
    PUBLISHED_PROPERTIES_BYTES_MAX,
    REQUEST_BODY_BYTES_MAX,
)
from headrace_broker.runtime.contract.port import ACCEPT
from headrace_broker.runtime.inspect.message_service import FetchedMessage

PUBLISH = "/api/exchanges/%2F/amq.topic/publish"


def test_a_message_is_published_as_it_is_said(api, node):
    body = {
        "routing_key": "a.b",
        "payload": base64.b64encode(b"\0\xff").decode(),
        "payload_encoding": "base64",
        "properties": {
            "delivery_mode": 2,
            "headers": {"n": 1, "t": {"l": [True, None]}},
            "type": "order",
            "timestamp": 1_700_000_000,
            "expiration": "500",
            "user_id": "guest",
        },
    }
    assert api("POST", PUBLISH, body) == (200, {"routed": True})
    vhost, route, properties, payload, user = node.publisher.published[0]
    assert (vhost, route, payload, user) == ("/", b"\x09amq.topic\x03a.b", b"\0\xff", "guest")
    found = decode_properties(properties)
    assert (found.delivery_mode, found.message_type, found.expiration) == (2, "order", "500")
    assert found.headers == {"n": 1, "t": {"l": [True, None]}}
    assert found.timestamp is not None
    assert int(found.timestamp.timestamp()) == 1_700_000_000


def test_the_default_exchange_has_a_name(api, node):
    node.publisher.routed = False
    body = {"routing_key": "q", "payload": "hello", "properties": {}, "payload_encoding": "string"}
    assert api("POST", "/api/exchanges/%2F/amq.default/publish", body) == (200, {"routed": False})
    assert node.publisher.published[0][1:4] == (b"\0\x01q", b"\0\0", b"hello")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "payload:"),
        ({"payload": "?", "payload_encoding": "base64"}, "payload:"),
        ({"payload": "", "payload_encoding": "hex"}, "payload_encoding:"),
        ({"payload": "", "routing_key": "x" * 256}, "routing_key:"),
        ({"payload": "", "routing_key": "\u20ac" * 200}, "routing_key:"),
        ({"payload": "", "properties": {"priority": 256}}, "properties.priority:"),
        ({"payload": "", "properties": {"timestamp": "x"}}, "properties.timestamp:"),
        ({"payload": "", "properties": {"expiration": "soon"}}, "properties.expiration:"),
        ({"payload": "", "properties": {"user_id": "eve"}}, "properties.user_id:"),
        ({"payload": "", "properties": {"headers": {"x": 1 << 70}}}, "properties"),
        ({"payload": "", "properties": {"headers": {"x" * 300: 1}}}, "properties"),
        ({"payload": "", "properties": {"type": "\u20ac" * 200}}, "properties"),
        ({"payload": "", "properties": {"headers": {"x": "y" * 200_000}}}, "properties"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_name(refused, node, body, field):
    assert refused(400, "POST", PUBLISH, body).startswith(field)
    assert node.publisher.published == []


def test_publishing_takes_permission_to_write(refused, node):
    body = {"payload": ""}
    assert refused(403, "POST", PUBLISH, body, user="alice")
    assert refused(404, "POST", "/api/exchanges/%2F/none/publish", body)
    assert refused(404, "POST", "/api/exchanges/no/amq.topic/publish", body)


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({"routing_key": "b"}, "b"),
        ({"routing_key": "a", "properties": {"headers": {"CC": ["a", "c"]}}}, "c"),
        ({"routing_key": "a", "properties": {"headers": {"BCC": ["d"]}}}, "d"),
    ],
)
def test_publishing_takes_a_routing_key_that_is_allowed(api, refused, node, body, key):
    node.do(PutPermission(Permission("alice", "/", "", "^amq", "")))
    node.do(PutTopicPermission(TopicPermission("alice", "/", "amq.topic", "^a", "")))
    allowed = {"payload": "", "routing_key": "a", "properties": {"headers": {"CC": ["a.b"]}}}
    assert api("POST", PUBLISH, allowed, user="alice")[0] == 200
    reason = refused(403, "POST", PUBLISH, {"payload": "", **body}, user="alice")
    assert reason.startswith(f"write access to topic '{key}' in exchange 'amq.topic'")
    assert len(node.publisher.published) == 1


def test_a_header_of_copies_that_is_none_is_refused(refused):
    body = {"payload": "", "properties": {"headers": {"CC": "x"}}}
    assert refused(400, "POST", PUBLISH, body).startswith("properties.headers: header 'CC'")


def test_a_vhost_is_alive_when_a_message_goes_through(api, refused, node):
    node.message_service.fetched = [FetchedMessage(False, 0, b"", b"", b"")]
    assert api("GET", "/api/aliveness-test/%2F") == (200, {"status": "ok"})
    assert node.publisher.published[0][1] == b"\0\x0ealiveness-test"
    assert node.message_service.asked == [("fetch", "aliveness-test", 1, ACCEPT)]
    node.message_service.fetched = []
    assert "aliveness-test" in refused(503, "GET", "/api/aliveness-test/%2F")
    refused(403, "GET", "/api/aliveness-test/%2F", user="mon")


def test_users_are_deleted_at_once_and_found_without_permission(api, refused, node):
    _, found = api("GET", "/api/users/without-permissions")
    assert [user["name"] for user in found] == ["alice", "pol", "mon", "app"]
    body = {"users": ["alice", "nobody", "pol"]}
    assert api("POST", "/api/users/bulk-delete", body)[0] == 204
    assert node.view.user("alice") is None
    assert refused(400, "POST", "/api/users/bulk-delete", {"users": []}).startswith("users:")


def test_what_needs_nothing_done_is_done(api, refused, node):
    assert api("POST", "/api/vhosts/%2F/start/n1")[0] == 204
    assert refused(404, "POST", "/api/vhosts/%2F/start/n9") == "no node 'n9'"
    assert api("PUT", "/api/queues/%2F/q", {})[0] == 201
    assert api("POST", "/api/queues/%2F/q/actions", {"action": "sync"})[0] == 204
    assert refused(400, "POST", "/api/queues/%2F/q/actions", {"action": "x"}).startswith("action:")


def peak_of(work: Any) -> int:
    """Bytes that something takes at most while it is done."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("head", "field"), [(b'{"z":[', "payload"), (b'{"payload":"","properties":[', "properties")]
)
def test_no_objects_are_made_of_values_that_nobody_asked_for(refused, head, field):
    count = 1 << 20
    body = head + b"[]," * count + b"[]]}"

    def work() -> None:
        assert refused(400, "POST", PUBLISH, data=io.BytesIO(body)).startswith(f"{field}:")

    assert peak_of(work) < 8 * len(body)  # its bytes a few times; 56 for each array


def test_large_properties_are_sent_and_larger_ones_refused_by_name(api, refused, node):
    names = [f"{number:0100}" for number in range(800)]
    headers = dict.fromkeys(names, 7)
    body = {"payload": "", "properties": {"headers": headers}}
    assert len(str(headers)) > REQUEST_BODY_BYTES_MAX
    assert api("POST", PUBLISH, body) == (200, {"routed": True})
    properties = node.publisher.published[0][2]
    assert len(properties) < PROPERTIES_BYTES_MAX
    assert decode_properties(properties).headers == headers
    body["properties"] = {"headers": {"x": "y" * PUBLISHED_PROPERTIES_BYTES_MAX}}
    said = refused(400, "POST", PUBLISH, body)
    assert said.endswith(f"bytes, at most {PUBLISHED_PROPERTIES_BYTES_MAX}")
