"""The call Backup.Restore: a publish stream whose messages all go to one queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import grpc

from headrace_broker.codecs.batch import (
    batch_count,
    batch_end,
    check_batch,
    message_body,
    message_properties,
    message_route,
)
from headrace_broker.codecs.field import properties_problem
from headrace_broker.core.queue.messages.publisher import SEQUENCE_MAX
from headrace_broker.core.routing.routing import Resolution
from headrace_broker.gateways.grpc.messaging.publishing import PublishCall
from headrace_broker.gateways.grpc.server.authentication import Caller
from headrace_broker.gateways.grpc.server.errors import CallError, Context, bad_field
from headrace_broker.gateways.grpc.server.request_parser import BatchParser
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import (
    NAME_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    PUBLISHER_BYTES_MAX,
    STREAM_BATCH_BYTES_MAX,
    STREAM_BATCH_MESSAGES_MAX,
)
from headrace_broker.model.message import Publish
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.contract.port import ConnectionInfo
from headrace_broker.runtime.contract.traffic import ExchangeTraffic
from headrace_broker.runtime.routing.router import Route
from headrace_protos.broker.v1.backup_pb2 import RestoreBatch, RestoreOpen, RestoreRequest
from headrace_protos.broker.v1.messaging_pb2 import PublishOpen, PublishResponse

PROTOCOL: Final = "gRPC Restore"
_PARSE_BATCH: Final = BatchParser(RestoreRequest.FromString, spine=(2,), body=2)


class RestoreCall(PublishCall):
    """Serves one call."""

    def __init__(
        self,
        broker: Broker,  # the node
        context: Context,  # of the call
        caller: Caller,  # who restores
        info: ConnectionInfo,  # for listings; `vhost` is set
        opening: RestoreOpen,  # the first request, which was checked
        queue: Queue,
        next_number: int,
    ) -> None:
        publishing = PublishOpen(
            vhost=opening.vhost, confirms=True, publisher_id=opening.restore_id, name=opening.name
        )
        super().__init__(broker, context, caller, info, publishing)
        info.protocol = PROTOCOL
        self._parse = _PARSE_BATCH
        self._queue = queue  # where messages go
        self._bytes_max = broker.limits.whole_bytes_max
        self._next_sequence = next_number  # the first that the queue has not had
        self._stream.publisher.target = Route(
            *("", queue.name, Resolution(True, False, (queue.name,)), (queue,)),
            ExchangeTraffic(),  # what is put back came through no exchange
        )
        # A queue that holds more than its watermark would keep a restored one waiting for ever.
        self._stream.confirms.patient = False

    def _take(self, request: Any) -> None:
        kind = request.WhichOneof("kind")
        if kind != "batch":
            rule = "only the first request opens the stream" if kind == "open" else "must be set"
            raise bad_field(kind or "kind", rule)
        batch = request.batch
        size = batch.ByteSize()
        publishes = self._publishes(batch, size)
        self._stream.receive(len(publishes), size)
        self._next_sequence = batch.first_number + len(publishes)
        self._stream.accept(publishes)
        self._stream.end_batch()

    def _responses(self) -> Iterator[PublishResponse]:
        """Yield outcomes of messages, as long as any are pending."""
        queue = self._queue
        found = self._broker.queue(queue.vhost, queue.name)
        if found is None or found.group != queue.group:
            text = f"queue '{queue.name}' in vhost '{queue.vhost}' was deleted"
            self._stream.confirms.confirmed = []
            self._end(CallError(grpc.StatusCode.NOT_FOUND, "NOT_FOUND", text))
        yield from super()._responses()

    def _publishes(self, batch: RestoreBatch, size: int) -> list[Publish]:
        """Return the messages of a batch.

        Raises:
            CallError: INVALID_ARGUMENT, something of it cannot be.
        """
        first, data = batch.first_number, batch.batch
        if not check_batch(data, 0) or batch_end(data, 0) != len(data):
            raise bad_field("batch.batch", "must be a batch of messages and nothing else")
        count = int(batch_count(data, 0))
        if not 1 <= count <= STREAM_BATCH_MESSAGES_MAX:
            raise bad_field("batch.batch", f"must have 1 to {STREAM_BATCH_MESSAGES_MAX} messages")
        if count > 1 and size > STREAM_BATCH_BYTES_MAX:
            rule = f"more than one message must have at most {STREAM_BATCH_BYTES_MAX} bytes"
            raise bad_field("batch", rule)
        if first < self._next_sequence:
            error = bad_field("batch.first_number", f"must be {self._next_sequence} or higher")
            error.reason = "SEQUENCE_GAP"
            error.metadata["next_sequence"] = str(self._next_sequence)
            raise error
        if first + count > SEQUENCE_MAX:
            raise bad_field("batch.first_number", f"must be {SEQUENCE_MAX} at most with all of it")
        return [self._publish(data, first, position) for position in range(count)]

    def _publish(self, data: bytes, first: int, position: int) -> Publish:
        properties = message_properties(data, 0, position)
        body = message_body(data, 0, position)
        problem = properties_problem(properties, 0, len(properties))
        if len(properties) > PROPERTIES_BYTES_MAX:
            problem = f"properties must have at most {PROPERTIES_BYTES_MAX} bytes"
        elif len(body) > self._bytes_max:
            problem = f"the body must have at most {self._bytes_max} bytes"
        if problem:
            raise bad_field(f"batch.batch[{position}]", problem)
        route = message_route(data, 0, position)
        return Publish(first + position, route, False, False, properties, body)


def check_opening(opening: RestoreOpen) -> None:
    """Refuse a first request that cannot be one.

    Raises:
        CallError: INVALID_ARGUMENT.
    """
    if not 1 <= len(opening.restore_id.encode()) <= PUBLISHER_BYTES_MAX:
        raise bad_field("open.restore_id", f"must have 1 to {PUBLISHER_BYTES_MAX} bytes")
    if len(opening.name.encode()) > NAME_BYTES_MAX:
        raise bad_field("open.name", f"must have at most {NAME_BYTES_MAX} bytes")
