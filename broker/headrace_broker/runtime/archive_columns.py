"""Rows of archives as columns for those who read them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace_broker.codecs.batch import message_body, message_properties, message_route
from headrace_broker.codecs.column_block import (
    BINARY,
    INT32,
    INT64,
    TIMESTAMP_MS,
    UTF8,
    Schema,
)
from headrace_broker.codecs.method import decode_properties
from headrace_broker.core.queue.archive_row import OUTCOMES
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import PROPERTIES_REMEMBERED_MAX, PROPERTIES_REMEMBERED_OCTETS
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.archive_chunk import Rows, heads_of
from headrace_broker.runtime.json_value import plain, printable
from headrace_broker.runtime.router import split_route

# `raft_term` and the accounts are not known to a queue and stay without value.
SCHEMA: Final = Schema(
    1,
    (
        ("archive_index", INT64),
        ("vhost", UTF8),
        ("queue", UTF8),
        ("queue_incarnation", INT64),
        ("raft_term", INT64),
        ("raft_index", INT64),
        ("queue_message_id", INT64),  # the queue's own
        ("exchange", UTF8),
        ("routing_key", UTF8),
        ("message_id", UTF8),
        ("correlation_id", UTF8),
        ("content_type", UTF8),
        ("content_encoding", UTF8),
        ("priority", INT32),
        ("headers", UTF8),  # JSON
        ("properties", BINARY),  # the property block as it was published
        ("payload", BINARY),
        ("payload_bytes", INT64),
        ("published_at", TIMESTAMP_MS),
        ("enqueued_at", TIMESTAMP_MS),
        ("first_delivered_at", TIMESTAMP_MS),
        ("settled_at", TIMESTAMP_MS),
        ("outcome", UTF8),
        ("reason", UTF8),
        ("acquired_count", INT32),
        ("delivery_count", INT32),
        ("publisher_account", UTF8),
        ("consumer_account", UTF8),
        ("origin_account", UTF8),
    ),
)
INT32_MAX: Final = (1 << 31) - 1

_NO_PROPERTIES: Final = b"\x00\x00"

# Message id, correlation id, content type and encoding, priority, headers, timestamp in ms.
Decoded = tuple[str | None, str | None, str | None, str | None, int | None, str | None, int | None]
_NOTHING: Final[Decoded] = (None, None, None, None, None, None, None)


class ArchiveColumns:
    """Makes the columns of one reader: blocks of consecutive messages are often the same."""

    def __init__(self) -> None:
        self._known: dict[bytes, Decoded] = {_NO_PROPERTIES: _NOTHING}

    def of(self, queue: Queue, start: int, rows: Rows) -> list[list[Any]]:
        """Return the columns of some rows.

        Args:
            queue: whose archive.
            start: index of the first row.
            rows: at least one.
        """
        batch = rows.batch
        found: list[tuple[Any, ...]] = []
        for position, head in enumerate(heads_of(rows)):
            block = message_properties(batch, 0, position)
            exchange, routing_key = split_route(message_route(batch, 0, position))
            outcome, reason = OUTCOMES[head.outcome]
            decoded = self._decode(block)
            found.append(
                (
                    start + position,
                    queue.vhost,
                    queue.name,
                    queue.group,
                    None,
                    head.log_index,
                    head.message_id,
                    printable(exchange),
                    printable(routing_key),
                    *decoded[:6],
                    block,
                    message_body(batch, 0, position) if head.full else None,
                    head.octets,
                    decoded[6],
                    head.arrived_ms,
                    head.first_ms or None,
                    head.settled_ms,
                    outcome,
                    reason or None,
                    min(head.acquired, INT32_MAX),
                    min(head.failed, INT32_MAX),
                    None,
                    None,
                    None,
                )
            )
        return [list(column) for column in zip(*found, strict=True)]

    def _decode(self, block: bytes) -> Decoded:
        found = self._known.get(block)
        if found is None:
            found = _decoded(block)
            if len(block) <= PROPERTIES_REMEMBERED_OCTETS:
                if len(self._known) >= PROPERTIES_REMEMBERED_MAX:
                    self._known.clear()
                self._known[block] = found
        return found


def _decoded(block: bytes) -> Decoded:
    """Return what of a property block has columns of its own; nothing of one that is malformed."""
    try:
        properties = decode_properties(block)
    except AmqpError:
        return _NOTHING
    headers = properties.headers
    timestamp = properties.timestamp
    return (
        _text(properties.message_id),
        _text(properties.correlation_id),
        _text(properties.content_type),
        _text(properties.content_encoding),
        properties.priority,
        None if headers is None else msgspec.json.encode(plain(headers)).decode(),
        None if timestamp is None else int(timestamp.timestamp()) * 1000,
    )


def _text(value: str | None) -> str | None:
    return None if value is None else printable(value)
