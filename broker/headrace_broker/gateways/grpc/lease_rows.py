"""Chunks of leases as messages, one by one."""

from __future__ import annotations

import struct
from typing import Final

from headrace_broker.codecs.batch import message_body, message_properties, message_route
from headrace_broker.gateways.grpc.pb.lease_pb2 import LeasedMessage
from headrace_broker.gateways.grpc.pb.message_pb2 import Properties
from headrace_broker.gateways.grpc.properties import PropertyMemory
from headrace_broker.runtime.leasing import Fetched

_HEAD: Final = struct.Struct(">QQIIII")  # as in `runtime.lease_chunk`


class LeaseRows:
    """Makes the rows of one call."""

    def __init__(self) -> None:
        self._properties = PropertyMemory()
        self._routes: tuple[bytes, str, str] = (b"", "", "")

    def of(self, chunk: Fetched) -> list[LeasedMessage]:
        """Return the messages of a chunk."""
        batch = chunk.batch
        rows = []
        for position, head in enumerate(_HEAD.iter_unpack(chunk.heads)):
            message_id, enqueued_ms, acquired, failed, _, _ = head
            exchange, key = self._route(message_route(batch, 0, position))
            rows.append(
                LeasedMessage(
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
        return rows

    def _decoded(self, block: bytes) -> Properties | None:
        return self._properties.decode(block) if len(block) > 2 else None

    def _route(self, route: bytes) -> tuple[str, str]:
        """Return exchange and routing key; octets that are not UTF-8 are replaced."""
        known, exchange, key = self._routes
        if route != known:
            length = route[0]
            exchange = route[1 : 1 + length].decode("utf-8", "replace")
            key = route[2 + length :].decode("utf-8", "replace")
            self._routes = (route, exchange, key)
        return exchange, key
