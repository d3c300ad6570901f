"""Arguments of exchanges, queues and bindings: which are valid and when two are equivalent.

Source: RabbitMQ 4.3, `rabbit_amqqueue:check_declare_arguments` and what it calls. Arguments that
nobody knows are taken as they are there, up to a size, and named to people.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace_broker.catalog.setting import (
    QUEUE_ARGUMENTS,
    SHOWN_LETTERS_MAX,
    shown,
    watermark_problem,
)
from headrace_broker.model.binding_key import table_key
from headrace_broker.model.definition import QUEUE_CLASSIC, QUEUE_QUORUM
from headrace_broker.model.limits import (
    REPLICAS_DEFAULT,
    TABLE_DEPTH_MAX,
    UNKNOWN_ARGUMENTS_BYTES_MAX,
)

QUEUE_TYPE: Final = "x-queue-type"
ALTERNATE_EXCHANGE: Final = "alternate-exchange"
X_MATCH: Final = "x-match"
X_MATCH_VALUES: Final = ("all", "any", "all-with-x", "any-with-x")
GROUP_SIZE: Final = "x-quorum-initial-group-size"
SERVER_NAME_PREFIX: Final = "amq.gen-"  # of the names that the broker gives

# What cannot stand beside what, each with the reason.
_CONFLICTS: Final = (
    ("x-last-value-key", "x-max-priority", "a replaced message keeps its place"),
    ("x-last-value-key", "x-group-key", "the two keys cannot be told apart"),
    ("x-fairness-key", "x-last-value-key", "a replaced message keeps its place"),
    ("x-fairness-key", "x-group-key", "a group goes to one consumer in the order of arrival"),
)
# Of RabbitMQ's streams, which refuses them for other queues too.
_OF_STREAMS: Final = ("x-max-age", "x-stream-filter-size-bytes", "x-stream-max-segment-size-bytes")
_UNSAID: Final = ("", "undefined")  # queue types that some clients send for none

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


def unknown_problem(arguments: dict[str, Any], unknown: list[str]) -> str:
    """Return why a table's unknown arguments cannot be kept, "" when they can."""
    kept = {name: arguments[name] for name in unknown}
    problem = table_problem(kept)
    if problem or not kept:
        return problem
    try:
        byte_count = len(msgspec.msgpack.encode(kept))
    except (OverflowError, UnicodeEncodeError) as error:
        return f"an argument cannot be kept: {error}"
    if byte_count > UNKNOWN_ARGUMENTS_BYTES_MAX:
        names = ", ".join(f"'{name[:SHOWN_LETTERS_MAX]}'" for name in unknown[:4])
        text = f"arguments that mean nothing here ({names}) have {byte_count} bytes"
        return f"{text}, more than {UNKNOWN_ARGUMENTS_BYTES_MAX}"
    return ""


def unknown_queue_arguments(arguments: dict[str, Any]) -> list[str]:
    """Return the names of a queue's arguments that mean nothing here, in order."""
    return [
        name for name in sorted(arguments) if name != QUEUE_TYPE and name not in QUEUE_ARGUMENTS
    ]


def is_kind_asked(arguments: dict[str, Any]) -> bool:
    """Return whether a declaration says of which type its queue is to be."""
    return arguments.get(QUEUE_TYPE) not in (None, *_UNSAID)


class ArgumentError(ValueError):
    """A declaration asks for what cannot be; the text names the argument and the rule."""

    def __init__(self, text: str, field: str = "arguments") -> None:
        super().__init__(text)
        self.field = field  # `arguments.NAME`, or a property; "arguments" where several are


def asked_queue(
    vhost: str,
    name: str,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: dict[str, Any],
    default_kind: str = "",  # of the vhost, "" for none; of a queue that is there already, its own
) -> tuple[str, int]:
    """Return kind and number of replicas that a declaration asks for.

    Without `x-queue-type` the kind is up to the broker: classic for a queue that is exclusive,
    auto-delete, not durable or named by the server; for others the vhost's default, and quorum
    without one. Since in RabbitMQ the default is classic, a queue that becomes a quorum queue by
    default may have the arguments of a classic one.

    Raises ArgumentError: an argument has a wrong type or value, is not for this kind of queue, or
    is in conflict with another; unknown ones are too large.
    """
    where = f"queue '{name}' in vhost '{vhost}'"
    asked = arguments.get(QUEUE_TYPE)
    if asked in _UNSAID:
        asked = None
    if QUEUE_TYPE in arguments and arguments[QUEUE_TYPE] is None:
        raise _invalid(QUEUE_TYPE, where, f"must be '{QUEUE_QUORUM}' or '{QUEUE_CLASSIC}'")
    if asked is None:
        transient = exclusive or auto_delete or not durable
        small = transient or name.startswith(SERVER_NAME_PREFIX)
        kind = QUEUE_CLASSIC if small else default_kind or QUEUE_QUORUM
    else:
        kind = _asked_kind(asked, where, name, durable, exclusive, auto_delete)
    _check_arguments(arguments, where, kind, by_default=asked is None)
    size = arguments.get(GROUP_SIZE, REPLICAS_DEFAULT) if kind == QUEUE_QUORUM else 1
    assert isinstance(size, int)
    return kind, size


def _asked_kind(
    asked: object, where: str, name: str, durable: bool, exclusive: bool, auto_delete: bool
) -> str:
    if asked not in (QUEUE_CLASSIC, QUEUE_QUORUM):
        rule = f"must be '{QUEUE_QUORUM}' or '{QUEUE_CLASSIC}', not {shown(asked)}"
        raise _invalid(QUEUE_TYPE, where, rule)
    if asked == QUEUE_QUORUM:
        if name.startswith(SERVER_NAME_PREFIX):
            raise ArgumentError(
                f"cannot declare a server-named queue for type {QUEUE_QUORUM}", "name"
            )
        for wrong, word, field in (
            (auto_delete, "auto-delete", "auto_delete"),
            (exclusive, "exclusive-owner", "exclusive"),
            (not durable, "non-durable", "durable"),
        ):
            if wrong:
                reason = "a quorum queue is durable, not exclusive and not auto-delete"
                raise ArgumentError(f"invalid property '{word}' for {where}: {reason}", field)
    return str(asked)


def _check_arguments(arguments: dict[str, Any], where: str, kind: str, by_default: bool) -> None:
    unknown = unknown_problem(arguments, unknown_queue_arguments(arguments))
    if unknown:
        raise ArgumentError(f"invalid arguments for {where}: {unknown}")
    for key in sorted(arguments):
        if key in _OF_STREAMS:
            text = f"invalid arg '{key}' for {where} of queue type {kind}"
            raise ArgumentError(text, f"arguments.{key}")
        setting = QUEUE_ARGUMENTS.get(key)
        if setting is None:
            continue
        tolerated = by_default and kind == QUEUE_QUORUM
        if kind not in setting.kinds and not tolerated:
            text = f"invalid arg '{key}' for {where} of queue type {kind}"
            raise ArgumentError(text, f"arguments.{key}")
        if not setting.check.allows(arguments[key]):
            rule = f"must be {setting.check.rule}, not {shown(arguments[key])}"
            raise _invalid(key, where, rule)
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        raise _invalid("x-dead-letter-routing-key", where, "x-dead-letter-exchange is not given")
    for key, other, reason in _CONFLICTS:
        if key in arguments and other in arguments:
            raise _invalid(key, where, f"cannot stand beside {other}: {reason}")
    _check_retry(arguments, where)
    problem = watermark_problem(arguments, "x-")
    if problem:
        raise ArgumentError(f"invalid arguments for {where}: {problem}")


def _check_retry(arguments: dict[str, Any], where: str) -> None:
    kind = arguments.get("x-delayed-retry-type", "disabled")
    low = arguments.get("x-delayed-retry-min")
    high = arguments.get("x-delayed-retry-max")
    if kind != "disabled" and low is None:
        raise _invalid("x-delayed-retry-type", where, "x-delayed-retry-min is not given")
    if low is not None and high is not None and high < low:
        rule = f"{high} is smaller than x-delayed-retry-min, {low}"
        raise _invalid("x-delayed-retry-max", where, rule)


def _invalid(argument: str, where: str, rule: str) -> ArgumentError:
    return ArgumentError(f"invalid arg '{argument}' for {where}: {rule}", f"arguments.{argument}")


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


def phrases(received: dict[str, Any], current: dict[str, Any], name: str) -> tuple[str, str]:
    """Say what value an argument has in two tables, in the words that RabbitMQ uses."""
    if name in received and name in current:
        brief = f"'{_shown(received[name])}'", f"'{_shown(current[name])}'"
        if brief[0] != brief[1]:
            return brief
    return phrase(received, name), phrase(current, name)


def phrase(table: dict[str, Any], name: str) -> str:
    """Say what value and type an argument has, in the words that RabbitMQ uses."""
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
