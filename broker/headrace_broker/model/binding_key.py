"""Identity of a binding."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace_broker.model.definition import Binding

BindingKey = tuple[str, str, str, str, str, bytes]

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")


def table_key(table: dict[str, Any]) -> bytes:
    """Return bytes that are equal for equal MessagePack tables, whatever the order of keys."""
    if not table:
        return b""
    encoded: bytes = _ENCODER.encode(table)
    return encoded


def binding_key(binding: Binding) -> BindingKey:
    """Return the identity of a binding: vhost, ends, routing key and arguments."""
    return (
        binding.vhost,
        binding.source,
        binding.destination_type,
        binding.destination,
        binding.routing_key,
        table_key(binding.arguments),
    )
