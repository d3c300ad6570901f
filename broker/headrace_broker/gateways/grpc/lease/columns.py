"""Chunks of leases as columns that Arrow can use as they are."""

from __future__ import annotations

from typing import Final

from headrace_broker.codecs.column_block import INT32, INT64, TIMESTAMP_MS, Schema, encode_columns
from headrace_broker.codecs.message_columns import INT32_MAX, MESSAGE_COLUMNS, MessageColumns
from headrace_broker.gateways.grpc.export.answer import block_message, schema_message
from headrace_broker.gateways.grpc.lease.rows import HEAD
from headrace_broker.model.limits import LEASE_DECODED_MESSAGES_MAX
from headrace_broker.runtime.export.log import Block
from headrace_broker.runtime.lease.leasing import Fetched
from headrace_protos.broker.v1 import lease_pb2 as pb

SCHEMA: Final = Schema(
    1,
    (
        ("queue_message_id", INT64),
        *MESSAGE_COLUMNS,
        ("enqueued_at", TIMESTAMP_MS),
        ("acquired_count", INT32),
        ("delivery_count", INT32),
    ),
)


class LeaseColumns:
    """Makes the blocks of one call."""

    messages_max = LEASE_DECODED_MESSAGES_MAX

    def __init__(self) -> None:
        self._messages = MessageColumns()
        self._told = False

    def add_to(self, response: pb.FetchLeaseResponse, chunk: Fetched) -> None:
        """Write the messages of a chunk, one or more, into an answer.

        Args:
            response: whose `offset` is that of the chunk; the first one is given the schema.
            chunk: likewise.
        """
        response.format = pb.LEASE_FORMAT_COLUMNS
        heads = list(HEAD.iter_unpack(chunk.heads))
        ids, enqueued, acquired, failed, byte_counts, _ = zip(*heads, strict=True)
        columns = [
            ids,
            *self._messages.of(chunk.batch, list(byte_counts), None),
            enqueued,
            [min(count, INT32_MAX) for count in acquired],
            [min(count, INT32_MAX) for count in failed],
        ]
        block = encode_columns(SCHEMA, columns)
        found = Block(response.offset, SCHEMA, block, len(block.body))
        response.block.CopyFrom(block_message(found, compressed=False))
        if not self._told:
            response.schema.CopyFrom(schema_message(SCHEMA))
            self._told = True
