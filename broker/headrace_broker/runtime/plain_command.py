"""Catalog commands whose arguments can be stored."""

from __future__ import annotations

import msgspec

from headrace_broker.catalog import command as commands
from headrace_broker.model.definition import Binding, Exchange
from headrace_broker.runtime.plain_table import plain_table


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
