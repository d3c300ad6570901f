"""Messages and their properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from headrace_client.value import decode_table, encode_table, time_of, timestamp_of
from headrace_protos.broker.v1 import message_pb2

PERSISTENT: Final = 2
TRANSIENT: Final = 1

_PLAIN: Final = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "message_id",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a message: those of AMQP 0-9-1, each of which may be absent."""

    content_type: str | None = None  # MIME type of the body
    content_encoding: str | None = None  # for instance "gzip"
    # names to values; see `headrace_client.value` for their types
    headers: Mapping[str, Any] = field(default_factory=dict)
    delivery_mode: int | None = None  # PERSISTENT or TRANSIENT
    priority: int | None = None  # 0 to 255
    correlation_id: str | None = None  # for the application
    reply_to: str | None = None  # where an answer is wanted
    expiration: timedelta | None = None  # time to live
    message_id: str | None = None  # for the application
    timestamp: datetime | int | None = None  # a time, or seconds since 1970
    type: str | None = None  # for the application
    user_id: str | None = None  # must be the publisher's own
    app_id: str | None = None  # for the application
    cluster_id: str | None = None  # likewise
    # AMQP's property block of a message whose properties cannot be told otherwise (a text that is
    # not UTF-8): everything else is absent then. May be published as it is.
    encoded: bytes | None = None

    def to_pb(self) -> message_pb2.Properties:
        """Return the message.

        Raises:
            TypeError: a value cannot be sent.
            ValueError: a value is out of range.
        """
        found = message_pb2.Properties()
        for name in _PLAIN:
            value = getattr(self, name)
            if value is not None:
                try:
                    setattr(found, name, value)
                except (TypeError, ValueError) as error:
                    kind = TypeError if isinstance(error, TypeError) else ValueError
                    raise kind(f"{name}: {value!r} cannot be sent: {error}") from None
        if self.headers:
            found.headers.CopyFrom(encode_table(self.headers))
        if self.expiration is not None:
            found.expiration = str(_milliseconds(self.expiration))
        if isinstance(self.timestamp, datetime):
            found.timestamp = timestamp_of(self.timestamp, "timestamp")
        elif self.timestamp is not None:
            found.timestamp = self.timestamp
        if self.encoded is not None:
            found.encoded = self.encoded
        return found

    @staticmethod
    def from_pb(message: message_pb2.Properties) -> Properties:
        """Return the properties in a message."""
        found: dict[str, Any] = {
            name: getattr(message, name) for name in _PLAIN if message.HasField(name)
        }
        if message.HasField("headers"):
            found["headers"] = decode_table(message.headers)
        if message.HasField("expiration"):
            found["expiration"] = _expiration(message.expiration)
        if message.HasField("timestamp"):
            found["timestamp"] = time_of(message.timestamp)
        if message.HasField("encoded"):
            found["encoded"] = message.encoded
        return Properties(**found)


NO_PROPERTIES: Final = Properties()


def _milliseconds(value: timedelta) -> int:
    if not isinstance(value, timedelta):
        raise TypeError(f"expiration: must be timedelta, not {type(value).__name__}")
    found = value // timedelta(milliseconds=1)
    if found < 0:
        raise ValueError(f"expiration: {value} is negative")
    return found


def _expiration(text: str) -> timedelta | None:
    """Return a time to live, None for one that is no number or longer than Python knows."""
    try:
        return timedelta(milliseconds=int(text))
    except (ValueError, OverflowError):
        return None
