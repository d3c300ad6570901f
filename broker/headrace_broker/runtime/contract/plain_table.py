"""Field tables as AMQP libraries decode them, made plain for the catalog and for routing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

from headrace_broker.catalog import command as commands
from headrace_broker.model.definition import Binding, Exchange


def plain_value(value: object) -> object:
    """Return a field's value with None, bool, int, float, str, bytes, lists and dicts only.

    A timestamp becomes its seconds since 1970 (a naive one is taken as UTC), a decimal a float, a
    byte array bytes; what a field table cannot hold stays as it is.
    """
    if value is None or isinstance(value, (str, int, float, bytes)):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return int(aware.timestamp())
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, Mapping):
        return plain_table(value)
    return value


def plain_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with plain values; the given one is not changed."""
    return {name: plain_value(value) for name, value in table.items()}


def plain_command(command: commands.AnyCommand) -> commands.AnyCommand:
    """Return the command with arguments that can be stored."""
    if isinstance(command, commands.DeclareQueue):
        return msgspec.structs.replace(command, arguments=plain_table(command.arguments))
    if isinstance(command, commands.DeclareExchange):
        exchange: Exchange = msgspec.structs.replace(
            command.exchange, arguments=plain_table(command.exchange.arguments)
        )
        return msgspec.structs.replace(command, exchange=exchange)
    if isinstance(command, commands.Bind | commands.Unbind):
        binding: Binding = msgspec.structs.replace(
            command.binding, arguments=plain_table(command.binding.arguments)
        )
        return msgspec.structs.replace(command, binding=binding)
    return command
