"""Batches of a publish stream, as publishes that are grouped by their route."""

from __future__ import annotations

from typing import Any, Final, final

from mypy_extensions import i64

from headrace_broker.gateways.grpc.values.properties import NO_PROPERTIES, encode_properties
from headrace_broker.gateways.grpc.values.values import SHORT_BYTES_MAX, ValueProblemError
from headrace_broker.model.limits import PROPERTIES_REMEMBERED_BYTES, PROPERTIES_REMEMBERED_MAX
from headrace_broker.model.message import Publish

_ROUTES_MAX: Final = PROPERTIES_REMEMBERED_MAX


@final
class Fault:
    """A message that cannot be published."""

    def __init__(self, sequence: i64, text: str, too_large: bool = False) -> None:
        self.sequence = sequence  # its number
        self.text = text  # field and rule
        self.too_large = too_large  # its body is


@final
class BatchReader:
    """Reads the batches of one stream.

    Raises:
        ValueProblemError: exchange or routing key are too long.
    """

    def __init__(
        self, exchange: str, routing_key: str, mandatory: bool, body_bytes_max: int
    ) -> None:
        self.faults: list[Fault] = []  # messages of the last batch that are left out
        self._exchange = exchange  # of messages that name none
        self._routing_key = routing_key  # likewise
        self._mandatory = mandatory  # of all messages
        self._body_bytes_max = body_bytes_max  # of one
        self._default = _route(exchange, routing_key)
        self._routes: dict[tuple[str, str], bytes] = {}
        self._blocks: dict[bytes, bytes] = {}

    def read(self, sequence: i64, messages: Any) -> list[list[Publish]]:
        """Return messages in order, consecutive ones with one route together.

        Args:
            sequence: number of the first; `Publish.channel` has each one's.
            messages: of a PublishBatch.
        """
        self.faults = []
        groups: list[list[Publish]] = []
        group: list[Publish] = []
        last = b""
        mandatory = self._mandatory
        for message in messages:
            body: bytes = message.body
            try:
                if len(body) > self._body_bytes_max:
                    raise ValueProblemError(".body", f"must have at most {self._body_bytes_max}")
                route = self._route_of(message)
                block = self._block_of(message)
            except ValueProblemError as problem:
                self.faults.append(Fault(sequence, str(problem), problem.place == ".body"))
                group = []
                sequence += 1
                continue
            if not group or route != last:
                group = []
                groups.append(group)
                last = route
            group.append(Publish(sequence, route, mandatory, False, block, body))
            sequence += 1
        return groups

    def _route_of(self, message: Any) -> bytes:
        named = message.HasField("exchange")
        keyed = message.HasField("routing_key")
        if not named and not keyed:
            return self._default
        exchange: str = message.exchange if named else self._exchange
        key: str = message.routing_key if keyed else self._routing_key
        route = self._routes.get((exchange, key))
        if route is None:
            route = _route(exchange, key)
            if len(self._routes) >= _ROUTES_MAX:
                self._routes.clear()
            self._routes[(exchange, key)] = route
        return route

    def _block_of(self, message: Any) -> bytes:
        if not message.HasField("properties"):
            return NO_PROPERTIES
        properties = message.properties
        size: int = properties.ByteSize()
        if size > PROPERTIES_REMEMBERED_BYTES:
            return _encode_properties(properties)
        form: bytes = properties.SerializeToString()
        block = self._blocks.get(form)
        if block is None:
            block = _encode_properties(properties)
            if len(self._blocks) >= PROPERTIES_REMEMBERED_MAX:
                self._blocks.clear()
            self._blocks[form] = block
        return block


def _encode_properties(properties: Any) -> bytes:
    """Encode properties; errors name their place in the message."""
    try:
        return encode_properties(properties)
    except ValueProblemError as problem:
        raise ValueProblemError(f".properties{problem.place}", problem.rule) from None


def _route(exchange: str, routing_key: str) -> bytes:
    """Return exchange and routing key as two short strings."""
    return _short(".exchange", exchange) + _short(".routing_key", routing_key)


def _short(place: str, text: str) -> bytes:
    data = text.encode()
    if len(data) > SHORT_BYTES_MAX:
        raise ValueProblemError(place, f"must have at most {SHORT_BYTES_MAX} bytes")
    return bytes((len(data),)) + data
