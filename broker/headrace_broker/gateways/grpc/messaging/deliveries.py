"""Runs of deliveries as messages."""

from __future__ import annotations

import struct
from typing import Final

from headrace_broker.codecs.batch import message_body, message_properties, message_route
from headrace_broker.gateways.grpc.values.properties import PartReader
from headrace_broker.model.message import DeliveryRun
from headrace_protos.broker.v1.messaging_pb2 import Delivery

_COUNTS: Final = struct.Struct(">II")  # of one position: failed deliveries, acquisitions


class DeliveryWriter(PartReader):
    """Makes the deliveries of one stream."""

    def write(self, run: DeliveryRun, index: int, delivery_id: int) -> Delivery:
        """Return one delivery.

        Args:
            run: where it stands.
            index: of its position in the run.
            delivery_id: as the client knows it.
        """
        blob, base, position = run.blob, int(run.base), run.positions[index]
        exchange, key = self._route(message_route(blob, base, position))
        failed = acquired = 0
        if run.counts:
            failed, acquired = _COUNTS.unpack_from(run.counts, index * _COUNTS.size)
        return Delivery(
            delivery_id=delivery_id,
            redelivered=run.redelivered[index] != 0,
            delivery_count=failed,
            acquired_count=acquired,
            exchange=exchange,
            routing_key=key,
            properties=self._decoded(message_properties(blob, base, position)),
            body=message_body(blob, base, position),
        )
