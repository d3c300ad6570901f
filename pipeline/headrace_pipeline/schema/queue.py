"""Messages of a live queue, as the source `headrace_queue` gives them."""

from __future__ import annotations

from typing import Final

from headrace_pipeline.schema.column import Column, Kind, Table

QUEUE_MESSAGES: Final = Table(
    "queue_messages",
    (
        Column("vhost", Kind.UTF8, required=True),
        Column("queue", Kind.UTF8, required=True),
        Column("lease", Kind.INT64, required=True),
        Column("lease_offset", Kind.INT64, required=True),  # within the lease
        Column("queue_message_id", Kind.INT64, required=True),
        Column("exchange", Kind.UTF8),
        Column("routing_key", Kind.UTF8),
        Column("message_id", Kind.UTF8),
        Column("correlation_id", Kind.UTF8),
        Column("content_type", Kind.UTF8),
        Column("content_encoding", Kind.UTF8),
        Column("priority", Kind.INT32),
        Column("headers", Kind.UTF8),  # JSON; with includeHeaders only
        Column("properties", Kind.BINARY),  # AMQP's property block as it was published
        Column("payload", Kind.BINARY),
        Column("payload_bytes", Kind.INT64),
        Column("published_at", Kind.TIMESTAMP),
        Column("enqueued_at", Kind.TIMESTAMP),
        Column("acquired_count", Kind.INT32),  # deliveries and leases before
        Column("delivery_count", Kind.INT32),  # those that failed
    ),
    key=("vhost", "queue", "queue_message_id"),
)
