"""Types of exchanges beyond those of AMQP 0-9-1, and the arguments that belong to them."""

from __future__ import annotations

from typing import Final

CONSISTENT_HASH: Final = "x-consistent-hash"
HASH_HEADER: Final = "hash-header"
HASH_PROPERTY: Final = "hash-property"
HASH_PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")

DELAYED_MESSAGE: Final = "x-delayed-message"
DELAYED_TYPE: Final = "x-delayed-type"

ALTERNATE_EXCHANGE: Final = "alternate-exchange"
