"""Messages as JSON, with the names that RabbitMQ's API gives their parts."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Iterable
from typing import Any, Final

from headrace_broker.codecs.method import decode_properties
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.contract.json_value import plain, printable
from headrace_broker.runtime.inspect.browsing import Page, WaitingMessage
from headrace_broker.runtime.inspect.message_service import FetchedMessage, Moved
from headrace_broker.runtime.routing.router import split_route

ENCODING_AUTO: Final = "auto"  # text where it is UTF-8
ENCODING_BASE64: Final = "base64"

_PROPERTIES: Final = {
    "content_type": "content_type",
    "content_encoding": "content_encoding",
    "headers": "headers",
    "delivery_mode": "delivery_mode",
    "priority": "priority",
    "correlation_id": "correlation_id",
    "reply_to": "reply_to",
    "expiration": "expiration",
    "message_id": "message_id",
    "timestamp": "timestamp",
    "message_type": "type",
    "user_id": "user_id",
    "app_id": "app_id",
    "cluster_id": "cluster_id",
}


def render_fetched(
    messages: Iterable[FetchedMessage], encoding: str, truncate: int | None
) -> list[dict[str, Any]]:
    """Return the body of POST /api/queues/V/Q/get."""
    return [
        {
            "payload_bytes": len(message.body),
            "redelivered": message.redelivered,
            "message_count": message.ready_left,
            **_render_content(message.route, message.properties),
            **_render_body(message.body[:truncate], len(message.body), encoding),
        }
        for message in messages
    ]


def render_page(page: Page, encoding: str, now_ms: int) -> dict[str, Any]:
    """Return the body of GET /api/queues/V/Q/messages at a Unix time; `encoding` is ENCODING_*."""
    return {
        "messages": [_render_waiting(message, encoding, now_ms) for message in page.messages],
        "next_after": page.messages[-1].id if page.more and page.messages else None,
    }


def render_moved(moved: Moved) -> dict[str, Any]:
    """Return the body of POST /api/queues/V/Q/messages/move."""
    return {
        "moved": moved.moved,
        "missing": moved.missing,
        "unrouted": moved.unrouted,
        "refused": moved.refused,
    }


def _render_waiting(message: WaitingMessage, encoding: str, now_ms: int) -> dict[str, Any]:
    return {
        "id": message.id,
        "arrived_at_ms": message.arrived_ms,
        "age_ms": max(0, now_ms - message.arrived_ms),
        "priority": message.priority,
        "redelivered": message.acquired_count > 0,
        "acquired_count": message.acquired_count,
        "delivery_count": message.delivery_count,
        "payload_bytes": message.byte_count,
        **_render_content(message.route, message.properties),
        **_render_body(message.body, message.byte_count, encoding),
    }


def _render_content(route: bytes, properties: bytes) -> dict[str, Any]:
    exchange, routing_key = split_route(route)
    found: dict[str, Any] = {
        "exchange": printable(exchange),
        "routing_key": printable(routing_key),
        "properties": {},
    }
    try:
        decoded = decode_properties(properties)
    except AmqpError as error:
        return {**found, "properties_problem": error.text}
    for name, shown in _PROPERTIES.items():
        value = getattr(decoded, name)
        if value is not None and value != "":
            found["properties"][shown] = plain(value)
    return found


def _render_body(body: bytes, byte_count: int, encoding: str) -> dict[str, Any]:
    shown: dict[str, Any] = {"payload_encoding": "base64"}
    if encoding == ENCODING_AUTO:
        try:  # a character that is cut in two at the end is left out
            decoder = codecs.getincrementaldecoder("utf-8")()
            shown["payload"] = decoder.decode(body, final=len(body) == byte_count)
            shown["payload_encoding"] = "string"
        except UnicodeDecodeError:
            pass
    if "payload" not in shown:
        shown["payload"] = base64.b64encode(body).decode()
    if len(body) < byte_count:
        shown["truncated"] = True
    return shown
