"""Single messages over HTTP: browse, fetch, remove, move."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest
from pamqp import commands

from headrace_broker.catalog.command import DeclareExchange, DeclareQueue
from headrace_broker.management.view.view import FetchedView, MovedView, WaitingPageView
from headrace_broker.model.definition import Exchange
from headrace_broker.model.limits import BROWSED_BODY_BYTES
from headrace_broker.runtime.contract.port import ACCEPT, MODIFY_FAILED, REJECT, RELEASE
from headrace_broker.runtime.inspect.browsing import Page, WaitingMessage
from headrace_broker.runtime.inspect.message_service import FetchedMessage

ROUTE = b"\x06orders\x02eu"
PLAIN = b"\x00\x00"


@pytest.fixture
def queue(node):
    """A queue "q" and an exchange "orders"."""
    node.do(DeclareQueue("/", "q", "quorum"))
    node.do(DeclareExchange(Exchange("/", "orders", "topic")))
    return node


def fetched(body: bytes, properties: bytes = PLAIN) -> FetchedMessage:
    return FetchedMessage(False, 3, ROUTE, properties, body)


def waiting(number: int, body: bytes, byte_count: int, properties: bytes = PLAIN) -> WaitingMessage:
    return WaitingMessage(number, 1000, 2, byte_count, 4, 1, ROUTE, properties, body)


@pytest.mark.parametrize(
    ("mode", "operation"),
    [
        ("ack_requeue_true", RELEASE),
        ("ack_requeue_false", ACCEPT),
        ("reject_requeue_true", MODIFY_FAILED),
        ("reject_requeue_false", REJECT),
    ],
)
def test_get_settles_as_the_mode_says(queue, api, mode, operation):
    status, body = api("POST", "/api/queues/%2F/q/get", {"count": 5, "ackmode": mode})
    assert (status, body) == (200, [])
    assert queue.message_service.asked == [("fetch", "q", 5, operation)]


def test_get_answers_with_rabbitmqs_fields(queue, api):
    properties = commands.Basic.Properties(
        content_type="text/plain",
        headers={
            "n": 1,
            "price": Decimal("1.5"),
            "raw": bytearray(b"\xff"),
            "deep": [{"t": True}, None],
            "at": datetime(1970, 1, 2, tzinfo=UTC),
        },
        timestamp=datetime(1970, 1, 2, tzinfo=UTC),
        message_type="order",
        delivery_mode=2,
    ).marshal()
    queue.message_service.fetched = [fetched(b"hello", properties), fetched(b"\xff\x00")]
    _, body = api("POST", "/api/queues/%2F/q/get", {"count": 2, "encoding": "auto"})
    msgspec.convert(body, list[FetchedView])
    assert body[0] == {
        "payload_bytes": 5,
        "redelivered": False,
        "message_count": 3,
        "exchange": "orders",
        "routing_key": "eu",
        "properties": {
            "content_type": "text/plain",
            "headers": {
                "n": 1,
                "price": 1.5,
                "raw": "/w==",
                "deep": [{"t": True}, None],
                "at": 86400,
            },
            "timestamp": 86400,
            "type": "order",
            "delivery_mode": 2,
        },
        "payload": "hello",
        "payload_encoding": "string",
    }
    assert (body[1]["payload"], body[1]["payload_encoding"]) == ("/wA=", "base64")


def test_get_cuts_bodies_and_encodes_them_as_asked(queue, api):
    queue.message_service.fetched = [fetched("grüße".encode())]
    _, body = api("POST", "/api/queues/%2F/q/get", {"count": 1, "truncate": 3})
    assert (body[0]["payload"], body[0]["truncated"]) == ("gr", True)
    assert body[0]["payload_bytes"] == 7
    _, body = api("POST", "/api/queues/%2F/q/get", {"count": 1, "encoding": "base64"})
    assert base64.b64decode(body[0]["payload"]) == "grüße".encode()
    assert "truncated" not in body[0]


def test_properties_that_cannot_be_read_are_said_to_be_so(queue, api):
    queue.message_service.fetched = [fetched(b"", b"\x80\x00\x02\xff\xfe")]
    _, body = api("POST", "/api/queues/%2F/q/get", {"count": 1})
    assert body[0]["properties"] == {}
    assert body[0]["properties_problem"].startswith("properties: ")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "count"),
        ({"count": 0}, "count"),
        ({"count": 1001}, "count"),
        ({"count": 1, "ackmode": "ack"}, "ackmode"),
        ({"count": 1, "encoding": "hex"}, "encoding"),
        ({"count": 1, "truncate": -1}, "truncate"),
    ],
)
def test_get_names_the_field_that_breaks_a_rule(queue, api, body, field):
    status, answer = api("POST", "/api/queues/%2F/q/get", body)
    assert (status, answer["error"]) == (400, "bad_request")
    assert answer["reason"].startswith(f"{field}: ")
    assert queue.message_service.asked == []


def test_browsing_goes_page_by_page(queue, api):
    queue.message_service.page = Page([waiting(4, b"ab", 5), waiting(9, b"c", 1)], True)
    status, body = api("GET", "/api/queues/%2F/q/messages?after=3&limit=2&truncate=2")
    assert status == 200
    assert body["next_after"] == 9
    msgspec.convert(body, WaitingPageView)
    first = body["messages"][0]
    assert first.pop("age_ms") > 0
    assert first == {
        "id": 4,
        "arrived_at_ms": 1000,
        "priority": 2,
        "redelivered": True,
        "acquired_count": 4,
        "delivery_count": 1,
        "payload_bytes": 5,
        "exchange": "orders",
        "routing_key": "eu",
        "properties": {},
        "payload": "ab",
        "payload_encoding": "string",
        "truncated": True,
    }
    queue.message_service.page = Page([waiting(10, b"", 0)], False)
    _, body = api("GET", "/api/queues/%2F/q/messages?encoding=base64")
    assert body["next_after"] is None
    assert queue.message_service.asked == [
        ("browse", "q", 3, 2, 2),
        ("browse", "q", 0, 50, BROWSED_BODY_BYTES),
    ]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("after=-1", "after"),
        ("after=x", "after"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("truncate=-5", "truncate"),
        ("encoding=hex", "encoding"),
    ],
)
def test_browsing_names_the_parameter_that_breaks_a_rule(queue, api, query, field):
    status, answer = api("GET", f"/api/queues/%2F/q/messages?{query}")
    assert status == 400
    assert answer["reason"].startswith(f"{field}: must be ")


def test_a_message_is_removed_by_its_id(queue, api):
    assert api("DELETE", "/api/queues/%2F/q/messages/17") == (204, None)
    assert queue.message_service.asked == [("remove", "q", [17])]
    queue.message_service.removed = 0
    status, answer = api("DELETE", "/api/queues/%2F/q/messages/18")
    assert status == 404
    assert answer["reason"] == "no message 18 waits in queue 'q' in vhost '/'"
    assert api("DELETE", "/api/queues/%2F/q/messages/0")[0] == 400
    assert api("DELETE", "/api/queues/%2F/q/messages/all")[0] == 400


def test_messages_are_moved_to_a_queue_or_an_exchange(queue, api):
    queue.message_service.moved.moved = [1]
    queue.message_service.moved.missing = [2]
    path = "/api/queues/%2F/q/messages/move"
    status, answer = api("POST", path, {"ids": [1, 2], "queue": "q"})
    msgspec.convert(answer, MovedView)
    assert (status, answer) == (200, {"moved": [1], "missing": [2], "unrouted": [], "refused": []})
    api("POST", path, {"ids": [3], "exchange": "orders", "routing_key": "eu"})
    api("POST", path, {"ids": [4], "exchange": "", "routing_key": "q"})
    assert queue.message_service.asked == [
        ("move", "q", [1, 2], b"\x00\x01q"),
        ("move", "q", [3], b"\x06orders\x02eu"),
        ("move", "q", [4], b"\x00\x01q"),
    ]


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"ids": [1]}, 400, "body: must have either queue or exchange"),
        ({"ids": [1], "queue": "q", "exchange": "e"}, 400, "body: must have either"),
        ({"ids": [1], "queue": "q", "routing_key": "k"}, 400, "routing_key: belongs to"),
        ({"ids": [], "queue": "q"}, 400, "ids: "),
        ({"ids": [0], "queue": "q"}, 400, "ids[0]: "),
        ({"ids": [1], "queue": "none"}, 404, "no queue 'none' in vhost '/'"),
        ({"ids": [1], "exchange": "none"}, 404, "no exchange 'none' in vhost '/'"),
        ({"ids": [1], "exchange": "", "routing_key": "k" * 256}, 400, "routing_key: has 256"),
    ],
)
def test_a_move_that_breaks_a_rule_is_refused(queue, api, body, status, reason):
    found, answer = api("POST", "/api/queues/%2F/q/messages/move", body)
    assert found == status
    assert answer["reason"].startswith(reason)
    assert queue.message_service.asked == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/queues/%2F/q/get", None),
        ("GET", "/api/queues/%2F/q/messages", None),
        ("DELETE", "/api/queues/%2F/q/messages/1", None),
        ("POST", "/api/queues/%2F/q/messages/move", {"ids": [1], "queue": "q"}),
    ],
)
def test_messages_are_for_who_may_read_their_queue(queue, api, method, path, body):
    status, answer = api(method, path, user="mon")
    assert (status, answer["error"]) == (403, "access_refused")
    assert api(method, path.replace("/q/", "/none/"), body)[0] == 404
    assert queue.message_service.asked == []
