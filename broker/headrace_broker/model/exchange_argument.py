"""Arguments of exchanges: those of the types that AMQP 0-9-1 does not have, and the alternate."""

from __future__ import annotations

from typing import Final

HASH_HEADER: Final = "hash-header"
HASH_PROPERTY: Final = "hash-property"
HASH_PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")

DELAYED_TYPE: Final = "x-delayed-type"

ALTERNATE_EXCHANGE: Final = "alternate-exchange"
