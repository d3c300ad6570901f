"""Arguments of exchanges, queues and bindings: which are valid and when two are equivalent."""

from __future__ import annotations

from typing import Any, Final

from headrace_broker.model.binding_key import table_key
from headrace_broker.model.limits import TABLE_DEPTH_MAX

QUEUE_TYPE: Final = "x-queue-type"
ALTERNATE_EXCHANGE: Final = "alternate-exchange"
X_MATCH: Final = "x-match"
X_MATCH_VALUES: Final = ("all", "any", "all-with-x", "any-with-x")

_INT32_MAX: Final = (1 << 31) - 1


def table_problem(table: dict[str, Any]) -> str:
    """Return why a table cannot be an argument table, "" when it can.

    Values are None, bool, int, float, str, bytes, and lists and tables of such, nested up to
    TABLE_DEPTH_MAX.
    """
    level: list[dict[Any, Any] | list[Any]] = [table]
    for _ in range(TABLE_DEPTH_MAX):
        below: list[dict[Any, Any] | list[Any]] = []
        for container in level:
            if isinstance(container, dict) and not all(isinstance(key, str) for key in container):
                return "an argument's name is not a string"
            for value in container.values() if isinstance(container, dict) else container:
                if isinstance(value, dict | list):
                    below.append(value)
                elif value is not None and not isinstance(value, bool | int | float | str | bytes):
                    return f"an argument has the unknown type {type(value).__name__}"
        if not below:
            return ""
        level = below
    return f"arguments nest deeper than {TABLE_DEPTH_MAX}"


def is_compared(name: str) -> bool:
    """Return whether a declaration must repeat this argument to be equivalent.

    The type of a queue is compared on its own; names that mean nothing to a broker are not.
    """
    return (name.startswith("x-") and name != QUEUE_TYPE) or name == ALTERNATE_EXCHANGE


def first_difference(received: dict[str, Any], current: dict[str, Any]) -> str | None:
    """Return the first name, in order of names, whose compared value differs, or None."""
    for name in sorted({*received, *current}):
        if not is_compared(name):
            continue
        if name not in received or name not in current:
            return name
        if table_key({name: received[name]}) != table_key({name: current[name]}):
            return name
    return None


def phrase(table: dict[str, Any], name: str) -> str:
    """Say what value an argument has, in the words that RabbitMQ uses."""
    if name not in table:
        return "none"
    value = table[name]
    return f"the value '{_shown(value)}' of type '{type_name(value)}'"


def type_name(value: object) -> str:
    """Return RabbitMQ's name of the AMQP field type that carries `value`."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -_INT32_MAX - 1 <= value <= _INT32_MAX else "long"
    for kind, name in _TYPE_NAMES:
        if isinstance(value, kind):
            return name
    return "void"


_TYPE_NAMES: Final[tuple[tuple[type, str], ...]] = (
    (float, "double"),
    (str, "longstr"),
    (bytes, "binary"),
    (list, "array"),
    (dict, "table"),
)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
