"""Arguments of exchanges, and of bindings by the type of the exchange that they leave.

Texts are RabbitMQ's where it has them.
"""

from __future__ import annotations

import re
from typing import Any, Final

from headrace_broker.catalog.argument import (
    X_MATCH,
    X_MATCH_VALUES,
    phrase,
    type_name,
    unknown_problem,
)
from headrace_broker.catalog.view import DESTINATION_QUEUE
from headrace_broker.model.definition import (
    EXCHANGE_CONSISTENT_HASH,
    EXCHANGE_DELAYED,
    EXCHANGE_LOCAL_RANDOM,
    EXCHANGE_TYPES,
    Binding,
    Exchange,
)
from headrace_broker.model.exchange_argument import (
    ALTERNATE_EXCHANGE,
    DELAYED_TYPE,
    HASH_HEADER,
    HASH_PROPERTIES,
    HASH_PROPERTY,
)
from headrace_broker.model.limits import HASH_WEIGHT_MAX, NAME_BYTES_MAX

_ARGUMENTS: Final = (ALTERNATE_EXCHANGE, DELAYED_TYPE, HASH_HEADER, HASH_PROPERTY)  # of any type
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")


def inner_type(exchange: Exchange) -> str:
    """Return the type that decides where messages go; "" where that is not known."""
    if exchange.type != EXCHANGE_DELAYED:
        return exchange.type if exchange.type in EXCHANGE_TYPES else ""
    inner = exchange.arguments.get(DELAYED_TYPE)
    return inner if inner in EXCHANGE_TYPES and inner != EXCHANGE_DELAYED else ""


def type_problem(exchange: Exchange) -> str:
    """Return why an exchange cannot be of its type with its arguments, "" when it can.

    Messages can be routed by what passes here.
    """
    if exchange.type not in EXCHANGE_TYPES:
        return f"unknown exchange type '{exchange.type}'"
    if exchange.type == EXCHANGE_DELAYED and not inner_type(exchange):
        if exchange.arguments.get(DELAYED_TYPE) == EXCHANGE_DELAYED:
            return f"Invalid argument, '{EXCHANGE_DELAYED}' can't be used for '{DELAYED_TYPE}'"
        return f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type"
    if inner_type(exchange) == EXCHANGE_CONSISTENT_HASH:
        return _hash_problem(exchange.arguments)
    return ""


def _hash_problem(arguments: dict[str, Any]) -> str:
    for name in (HASH_HEADER, HASH_PROPERTY):
        if name in arguments and not isinstance(arguments[name], str):
            return f"invalid arg '{name}': must be a string, not {phrase(arguments, name)}"
    if HASH_HEADER in arguments and HASH_PROPERTY in arguments:
        return f"{HASH_HEADER} and {HASH_PROPERTY} are mutually exclusive"
    if HASH_HEADER in arguments:
        byte_count = len(arguments[HASH_HEADER].encode())
        if not 1 <= byte_count <= NAME_BYTES_MAX:
            return f"invalid arg '{HASH_HEADER}': a name of {byte_count}, not 1 to 255 bytes"
    if HASH_PROPERTY in arguments and arguments[HASH_PROPERTY] not in HASH_PROPERTIES:
        choices = ", ".join(HASH_PROPERTIES)
        return f"Unsupported property: {arguments[HASH_PROPERTY]}, not one of {choices}"
    return ""


def arguments_problem(exchange: Exchange) -> str:
    """Return why an exchange must not be declared with its arguments, "" when it may.

    Stricter than `type_problem`: what is there already may have arguments that mean nothing.
    """
    known = {ALTERNATE_EXCHANGE, *unknown_exchange_arguments(exchange.arguments)}
    if exchange.type == EXCHANGE_DELAYED:
        known.add(DELAYED_TYPE)
    if inner_type(exchange) == EXCHANGE_CONSISTENT_HASH:
        known.update((HASH_HEADER, HASH_PROPERTY))
    where = f"exchange '{exchange.name}' in vhost '{exchange.vhost}'"
    for name in sorted(exchange.arguments):
        if name not in known:
            kind = f"an exchange of type '{exchange.type}'"
            return f"invalid arg '{name}' for {where}: {kind} has no such argument"
    unknown = unknown_problem(exchange.arguments, unknown_exchange_arguments(exchange.arguments))
    if unknown:
        return f"invalid arguments for {where}: {unknown}"
    alternate = exchange.arguments.get(ALTERNATE_EXCHANGE, "")
    if not isinstance(alternate, str):
        return f"invalid type '{type_name(alternate)}' for arg '{ALTERNATE_EXCHANGE}' in {where}"
    return type_problem(exchange)


def unknown_exchange_arguments(arguments: dict[str, Any]) -> list[str]:
    """Return the names of an exchange's arguments that mean nothing here, in order."""
    return [name for name in sorted(arguments) if name not in _ARGUMENTS]


def binding_problem(source: Exchange, binding: Binding) -> str:
    """Return why a binding cannot leave an exchange of this type, "" when it can."""
    kind = inner_type(source)
    if kind == EXCHANGE_CONSISTENT_HASH:
        return _weight_problem(binding.routing_key)
    if kind == "headers":
        return _match_problem(binding.arguments)
    if kind == EXCHANGE_LOCAL_RANDOM:
        return _local_problem(binding)
    return ""


def _weight_problem(routing_key: str) -> str:
    if not _INTEGER.fullmatch(routing_key):
        return f"The binding key must be an integer: '{routing_key}'"
    if not 0 <= int(routing_key) <= HASH_WEIGHT_MAX:
        return f"The binding key must be from 0 to {HASH_WEIGHT_MAX}: '{routing_key}'"
    return ""


def _local_problem(binding: Binding) -> str:
    if binding.routing_key:
        return f"Non empty binding '{binding.routing_key}' key not permitted"
    if binding.destination_type != DESTINATION_QUEUE:
        return f"Destination not found: an exchange of type '{EXCHANGE_LOCAL_RANDOM}' feeds queues"
    return ""


def _match_problem(arguments: dict[str, Any]) -> str:
    if X_MATCH not in arguments or arguments[X_MATCH] in X_MATCH_VALUES:
        return ""
    return f"Invalid x-match {phrase(arguments, X_MATCH)}; expected one of {list(X_MATCH_VALUES)}"
