"""Rows of archives as columns."""

from __future__ import annotations

import json
from typing import Any

from pika.spec import BasicProperties
from tests.broker.codecs.column_reader import decode_columns

from headrace_broker.codecs.batch import encode_batch
from headrace_broker.codecs.column_block import encode_columns
from headrace_broker.model.definition import QUEUE_QUORUM, Queue
from headrace_broker.model.message import Publish
from headrace_broker.runtime.archive.chunk import HEAD, Rows
from headrace_broker.runtime.archive.columns import SCHEMA, ArchiveColumns

QUEUE = Queue("/v", "work", QUEUE_QUORUM, 9, (1,))


def block(**properties: Any) -> bytes:
    """A property block."""
    return b"".join(BasicProperties(**properties).encode())


def row(properties: bytes, route: bytes = b"\x01x\x03k.1", full: int = 1) -> dict[str, Any]:
    """The row of one message by the names of columns."""
    batch = encode_batch([Publish(1, route, False, False, properties, b"body" if full else b"")])
    head = HEAD.pack(5, 71, 1000, 1010, 1020, 2, 1, 4, 9, full)
    made = ArchiveColumns().of(QUEUE, 30, Rows(1, 0, 40, head, batch))
    columns = decode_columns(SCHEMA, encode_columns(SCHEMA, made))
    return {name: values[0] for (name, _), values in zip(SCHEMA.columns, columns, strict=True)}


def test_every_column_has_what_is_known():
    properties = block(
        content_type="text/plain",
        content_encoding="gzip",
        headers={"n": 7, "inner": {"b": [1, "two"]}},
        priority=3,
        correlation_id="c",
        message_id="m",
        timestamp=1_700_000_000,
    )
    found = row(properties)
    assert json.loads(found.pop("headers")) == {"n": 7, "inner": {"b": [1, "two"]}}
    assert found == {
        "archive_index": 30,
        "vhost": "/v",
        "queue": "work",
        "queue_incarnation": 9,
        "raft_term": None,
        "raft_index": 71,
        "queue_message_id": 5,
        "exchange": "x",
        "routing_key": "k.1",
        "message_id": "m",
        "correlation_id": "c",
        "content_type": "text/plain",
        "content_encoding": "gzip",
        "priority": 3,
        "properties": properties,
        "payload": b"body",
        "payload_bytes": 4,
        "published_at": 1_700_000_000_000,
        "enqueued_at": 1000,
        "first_delivered_at": 1010,
        "settled_at": 1020,
        "outcome": "dead-lettered",
        "reason": "rejected",
        "acquired_count": 2,
        "delivery_count": 1,
        "publisher_account": None,
        "consumer_account": None,
        "origin_account": None,
    }


def test_what_a_message_does_not_have_is_null():
    found = row(b"\x00\x00", full=0)
    absent = ("message_id", "correlation_id", "content_type", "content_encoding", "priority")
    assert [found[name] for name in (*absent, "headers", "published_at", "payload")] == [None] * 8
    assert found["payload_bytes"] == 4


def test_route_that_is_no_text_is_shown_with_replacement_characters():
    found = row(b"\x00\x00", route=b"\x01\xff\x00")
    assert (found["exchange"], found["routing_key"]) == ("\N{REPLACEMENT CHARACTER}", "")
