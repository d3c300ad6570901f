"""Messages to publish as the bytes that they are in a request.

A protobuf object for each would copy its body three times before it is sent. The bytes are those
that `PublishRequest(batch=PublishBatch(messages=[Message(...)]))` has.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from types import UnionType
from typing import Final

from headrace_client.message import Properties
from headrace_protos.broker.v1.message_pb2 import Message
from headrace_protos.broker.v1.messaging_pb2 import PublishBatch, PublishRequest

_BYTES: Final = 2  # wire type of what has a length


def _tag(number: int, kind: int = _BYTES) -> bytes:
    return bytes([number << 3 | kind])


_PROPERTIES: Final = _tag(Message.PROPERTIES_FIELD_NUMBER)
_BODY: Final = _tag(Message.BODY_FIELD_NUMBER)
_MESSAGE: Final = _tag(PublishBatch.MESSAGES_FIELD_NUMBER)
_SEQUENCE: Final = _tag(PublishBatch.FIRST_SEQUENCE_FIELD_NUMBER, 0)
_BATCH: Final = _tag(PublishRequest.BATCH_FIELD_NUMBER)


@lru_cache(maxsize=1024)
def varint(number: int) -> bytes:
    """Return a number from 0 on as protobuf writes it."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


class MessageEncoder:
    """Encodes the messages of a publisher; what the last one had is not encoded again."""

    def __init__(self) -> None:
        self._route: tuple[str | None, str | None] = None, None  # exchange and routing key
        self._encoded_route = b""
        self._properties: Properties | None = None
        self._encoded_properties = b""

    def encode(
        self,
        body: bytes,
        exchange: str | None,
        routing_key: str | None,
        properties: Properties | None,
    ) -> bytes:
        """Return a message to publish, as an element of a batch.

        Args:
            body: any bytes.
            exchange: None for the publisher's.
            routing_key: likewise.
            properties: None for none.

        Raises:
            TypeError: something has a wrong type.
            ValueError: a value is out of range.
        """
        if type(body) is not bytes:
            _check_type("body", body, bytes)
        route = exchange, routing_key
        if route != self._route:
            for name, value in (("exchange", exchange), ("routing_key", routing_key)):
                _check_type(name, value, str | None)
            found = Message(exchange=exchange, routing_key=routing_key)
            self._encoded_route, self._route = found.SerializeToString(), route
        extra = b"" if properties is None else self._encode_properties(properties)
        size = len(self._encoded_route) + len(extra)
        if not body:
            return b"".join((_MESSAGE, varint(size), self._encoded_route, extra))
        length = varint(len(body))
        size += 1 + len(length) + len(body)
        parts = (_MESSAGE, varint(size), self._encoded_route, extra, _BODY, length, body)
        return b"".join(parts)

    def _encode_properties(self, properties: Properties) -> bytes:
        if properties is self._properties and not properties.headers:  # these may have come since
            return self._encoded_properties
        _check_type("properties", properties, Properties)
        encoded = properties.to_pb().SerializeToString()
        encoded = b"".join((_PROPERTIES, varint(len(encoded)), encoded))
        if not properties.headers:
            self._properties, self._encoded_properties = properties, encoded
        return encoded


def _check_type(name: str, value: object, kind: type | UnionType) -> None:
    if not isinstance(value, kind):
        wanted = str(kind) if isinstance(kind, UnionType) else kind.__name__
        raise TypeError(f"{name}: must be {wanted}, not {type(value).__name__}")


def element_of(message: Message) -> bytes:
    """Return a message as an element of a batch."""
    encoded = message.SerializeToString()
    return b"".join((_MESSAGE, varint(len(encoded)), encoded))


def publish_request(first_sequence: int, elements: Iterable[bytes]) -> tuple[bytes, int]:
    """Return the request that sends elements, and how many bytes its batch has."""
    batch = b"".join((_SEQUENCE, varint(first_sequence), *elements))
    return b"".join((_BATCH, varint(len(batch)), batch)), len(batch)
