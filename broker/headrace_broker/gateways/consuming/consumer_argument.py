"""Arguments of basic.consume: the known ones, and checks of a client's.

Source: RabbitMQ's guides on consumer priorities and on consumers ("Delivery Acknowledgement
Timeout"); the words are those of its refusals. x-prefetch-bytes and x-filter are extensions.
"""

from __future__ import annotations

from typing import Any, Final

from headrace_broker.catalog.argument import type_name, unknown_problem
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import CONSUMER_TIMEOUT_MS_MAX
from headrace_broker.model.reply_code import PRECONDITION_FAILED, AmqpError
from headrace_broker.runtime.contract.port import Attachment
from headrace_broker.runtime.replica.filter_argument import X_FILTER, encode_filter, filter_problem
from headrace_broker.runtime.routing.unknown_arguments import UNKNOWN_ARGUMENTS

PRIORITY: Final = "x-priority"
PREFETCH_BYTES: Final = "x-prefetch-bytes"
TIMEOUT: Final = "x-consumer-timeout"
HA_FAILOVER: Final = "x-cancel-on-ha-failover"  # of mirrored queues; clients still send it

# Smallest and largest value of the numbers.
_BOUNDS: Final = {
    PRIORITY: (-(1 << 31), (1 << 31) - 1),
    PREFETCH_BYTES: (0, (1 << 32) - 1),
    TIMEOUT: (0, CONSUMER_TIMEOUT_MS_MAX),
}
_KNOWN: Final = (*_BOUNDS, X_FILTER, HA_FAILOVER)


def check_arguments(queue: Queue, arguments: dict[str, Any]) -> None:
    """Refuse wrong types and values out of bounds; report unknown arguments.

    Raises:
        AmqpError: PRECONDITION_FAILED, naming the argument.
    """
    where = f"consumer of queue '{queue.name}' in vhost '{queue.vhost}'"
    unknown = [name for name in sorted(arguments) if name not in _KNOWN]
    for name, value in arguments.items():
        problem = "" if name in unknown else _problem(name, value)
        if problem:
            text = f"invalid arg '{name}' for {where}: {problem}"
            raise AmqpError(PRECONDITION_FAILED, text)
    if unknown:
        problem = unknown_problem(arguments, unknown)
        if problem:
            raise AmqpError(PRECONDITION_FAILED, f"invalid arguments for {where}: {problem}")
        UNKNOWN_ARGUMENTS.warn("consumer", where, unknown)


def attachment(
    tag: str, credit: int, exclusive: bool, no_ack: bool, arguments: dict[str, Any]
) -> Attachment:
    """Return how a consumer with these checked arguments is to be served.

    What is settled by being sent holds no bytes, so their bound means nothing then.
    """
    return Attachment(
        tag,
        credit,
        exclusive,
        arguments.get(PRIORITY, 0),
        0 if no_ack else arguments.get(PREFETCH_BYTES, 0),
        arguments.get(TIMEOUT, 0),
        encode_filter(arguments[X_FILTER]) if X_FILTER in arguments else b"",
    )


def _problem(name: str, value: object) -> str:
    """Return the error in an argument, "" for none."""
    if name == X_FILTER:
        return filter_problem(value)
    if name == HA_FAILOVER:
        return "" if isinstance(value, bool) else f"expected bool, got {type_name(value)}"
    bounds = _BOUNDS[name]
    if not isinstance(value, int) or isinstance(value, bool):
        return f"expected integer, got {type_name(value)}"
    if not bounds[0] <= value <= bounds[1]:
        return f"{value} is not within {bounds[0]} and {bounds[1]}"
    return ""
