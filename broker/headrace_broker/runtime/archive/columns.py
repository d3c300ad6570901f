"""Rows of archives as columns for those who read them."""

from __future__ import annotations

from typing import Any, Final

from headrace_broker.codecs.column_block import INT32, INT64, TIMESTAMP_MS, UTF8, Schema
from headrace_broker.codecs.message_columns import INT32_MAX, MESSAGE_COLUMNS, MessageColumns
from headrace_broker.core.queue.state.archive_row import OUTCOMES
from headrace_broker.model.definition import Queue
from headrace_broker.runtime.archive.chunk import Rows, heads_of

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
        *MESSAGE_COLUMNS,
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


class ArchiveColumns:
    """Makes the columns of one reader."""

    def __init__(self) -> None:
        self._messages = MessageColumns()

    def of(self, queue: Queue, start: int, rows: Rows) -> list[list[Any]]:
        """Return the columns of one or more rows of a queue's archive from `start` on."""
        heads = heads_of(rows)
        count = len(heads)
        byte_counts = [head.byte_count for head in heads]
        full = [head.full != 0 for head in heads]
        outcomes = [OUTCOMES[head.outcome] for head in heads]
        nothing: list[Any] = [None] * count
        return [
            list(range(start, start + count)),
            [queue.vhost] * count,
            [queue.name] * count,
            [queue.group] * count,
            nothing,
            [head.log_index for head in heads],
            [head.message_id for head in heads],
            *self._messages.of(rows.batch, byte_counts, full),
            [head.arrived_ms for head in heads],
            [head.first_ms or None for head in heads],
            [head.settled_ms for head in heads],
            [outcome for outcome, _ in outcomes],
            [reason or None for _, reason in outcomes],
            [min(head.acquired, INT32_MAX) for head in heads],
            [min(head.failed, INT32_MAX) for head in heads],
            nothing,
            nothing,
            nothing,
        ]
