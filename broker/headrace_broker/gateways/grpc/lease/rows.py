"""Chunks of leases as messages, one by one, and as they are."""

from __future__ import annotations

import struct
from typing import Final

from headrace_broker.codecs.batch import message_body, message_properties, message_route
from headrace_broker.gateways.grpc.values.properties import PartReader
from headrace_broker.model.limits import LEASE_CHUNK_MESSAGES_MAX, LEASE_DECODED_MESSAGES_MAX
from headrace_broker.runtime.lease.leasing import Fetched
from headrace_protos.broker.v1 import lease_pb2 as pb

HEAD: Final = struct.Struct(">QQIIII")  # as in `runtime.lease.chunk`


class LeaseBlocks:
    """Leaves chunks as they come from the queue's leader."""

    messages_max = LEASE_CHUNK_MESSAGES_MAX

    def add_to(self, response: pb.FetchLeaseResponse, chunk: Fetched) -> None:
        """Write the messages of a chunk into an answer."""
        response.format = pb.LEASE_FORMAT_BLOCKS
        response.heads, response.batch = chunk.heads, chunk.batch


class LeaseRows(PartReader):
    """Makes the rows of one call."""

    messages_max = LEASE_DECODED_MESSAGES_MAX

    def add_to(self, response: pb.FetchLeaseResponse, chunk: Fetched) -> None:
        """Write the messages of a chunk into an answer."""
        response.format = pb.LEASE_FORMAT_MESSAGES
        batch = chunk.batch
        rows = []
        for position, head in enumerate(HEAD.iter_unpack(chunk.heads)):
            message_id, enqueued_ms, acquired, failed, _, _ = head
            exchange, key = self._route(message_route(batch, 0, position))
            rows.append(
                pb.LeasedMessage(
                    message_id=message_id,
                    enqueued_ms=enqueued_ms,
                    acquired_count=acquired,
                    delivery_count=failed,
                    exchange=exchange,
                    routing_key=key,
                    properties=self._decoded(message_properties(batch, 0, position)),
                    body=message_body(batch, 0, position),
                )
            )
        response.rows.extend(rows)
