"""Limits of flow control that can be changed at run time: one table, read by all."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from headrace_broker.model import limits

Value = int | str  # a fraction is text, "0.6": what is replicated holds no floating point

FRACTION_DIGITS: Final = 9  # of a fraction behind its point; tests of clients set 0.000000001

MEMORY_HIGH: Final = "memory-high-watermark"
MEMORY_PAGING: Final = "memory-paging-watermark"
DISK_FREE: Final = "disk-free-limit"
RELATIVE: Final = frozenset({MEMORY_HIGH, MEMORY_PAGING, DISK_FREE})

_BYTES_MAX: Final = 1 << 50
_MESSAGES_MAX: Final = 1_000_000_000


class Parameter(NamedTuple):
    """One limit."""

    default: Value  # where neither the cluster nor the configuration says anything
    unit: str  # of an integer
    low: int  # smallest integer
    high: int  # largest integer
    reason: str  # what it is for, and why the default is what it is
    fraction_max: int = 0  # largest fraction of memory that it may be instead, 0 for none

    @property
    def rule(self) -> str:
        """Say what values are allowed."""
        whole = f"an integer from {self.low} to {self.high} ({self.unit})"
        if self.fraction_max:
            return f"{whole} or a fraction of the memory limit from 0.0 to {self.fraction_max}.0"
        return whole


def _messages(default: int, reason: str) -> Parameter:
    return Parameter(default, "messages", 1, _MESSAGES_MAX, reason)


def _bytes(default: int, reason: str) -> Parameter:
    return Parameter(default, "bytes", 1, _BYTES_MAX, reason)


def _ms(default: int, reason: str) -> Parameter:
    return Parameter(default, "milliseconds", 0, limits.DURATION_MS_MAX, reason)


def _relative(default: Value, reason: str, fraction_max: int) -> Parameter:
    return Parameter(default, "bytes", 0, _BYTES_MAX, reason, fraction_max)


# By name; those that are not RELATIVE are attributes of `flow.flow_limits.FlowLimits`, with "_".
PARAMETERS: Final[dict[str, Parameter]] = {
    "account-messages": _messages(
        limits.ACCOUNT_MESSAGES,
        "what a connection has caused and is not done yet; two of the largest usual prefetches",
    ),
    "account-bytes": _bytes(
        limits.ACCOUNT_BYTES,
        "the same in bytes; half of the largest message, of which one always goes",
    ),
    "credit": _messages(
        limits.CHANNEL_CREDIT, "publishes given to a channel in advance; as RabbitMQ"
    ),
    "credit-more": _messages(
        limits.CHANNEL_CREDIT_MORE,
        "publishes passed on before a channel is given as many again; as RabbitMQ",
    ),
    "queue-commands": Parameter(
        limits.QUEUE_COMMANDS,
        "commands",
        1,
        1_000_000,
        "batches of a channel that a queue has not applied; as RabbitMQ",
    ),
    "queue-pending-bytes": _bytes(
        limits.QUEUE_PENDING_BYTES, "bytes of a node's publishers that one queue has not applied"
    ),
    "connection-buffer-bytes": _bytes(
        limits.CONNECTION_BUFFER_BYTES,
        "bytes of publishes held for a connection that must wait, before its socket is not read",
    ),
    "node-buffer-bytes": Parameter(
        limits.NODE_BUFFER_BYTES,
        "bytes",
        1 << 20,
        _BYTES_MAX,
        "bytes of publishes that a node holds outside of its log, for all connections",
    ),
    "intake-messages": _messages(
        limits.INTAKE_MESSAGES,
        "publishes passed on in one turn of the loop while consumers wait; some 10 ms",
    ),
    "intake-bytes": _bytes(limits.INTAKE_BYTES, "the same in bytes"),
    "blocked-after-ms": _ms(
        0, "a client is told when it was held for so long, 0 for never; clients know of alarms only"
    ),
    "leaderless-ms": _ms(
        limits.LEADERLESS_MS,
        "publishes are refused when no leader of their queue was reachable for so long, and "
        "changes when none of the catalog was, 0 for never; several elections fit in",
    ),
    MEMORY_HIGH: _relative(
        limits.MEMORY_HIGH_WATERMARK,
        "memory of a node from which publishers are blocked in the whole cluster; as RabbitMQ",
        1,
    ),
    MEMORY_PAGING: _relative(
        limits.MEMORY_PAGING_WATERMARK,
        "memory of a node from which bodies leave it and limits shrink",
        1,
    ),
    DISK_FREE: _relative(
        limits.DISK_FREE_LIMIT,
        "free disk of a node below which publishers are blocked in the whole cluster",
        10,
    ),
}


def attribute_name(name: str) -> str:
    """Return what a parameter is called in Python and in the configuration."""
    return name.replace("-", "_")


def stored_value(value: object) -> Value | None:
    """Return a value in stored form: fractions as text. None for what is no value at all.

    Integers may come as text, as all numbers in RabbitMQ's API.
    """
    if isinstance(value, float) and 0 <= value < _BYTES_MAX:
        return fraction_text(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return value


def fraction_text(value: float) -> str:
    """Return a fraction in stored form: without exponent, with a digit behind the point."""
    whole, _, rest = f"{value:.{FRACTION_DIGITS}f}".partition(".")
    return f"{whole}.{rest.rstrip('0') or '0'}"


def shown_value(value: Value) -> int | float:
    """Return a stored value as people know it."""
    return float(value) if isinstance(value, str) else value


def in_bytes(value: Value, memory_bytes: int) -> int:
    """Return what a relative parameter comes to on a node with so much memory."""
    return int(float(value) * memory_bytes) if isinstance(value, str) else value


def parameter_problem(name: str, value: Any) -> str:
    """Return why a parameter cannot have a stored value, "" when it can."""
    parameter = PARAMETERS.get(name)
    if parameter is None:
        return f"limit '{name}' is not known; limits are {', '.join(PARAMETERS)}"
    if isinstance(value, int) and not isinstance(value, bool):
        fits = parameter.low <= value <= parameter.high
    elif isinstance(value, str) and parameter.fraction_max:
        fits = _is_fraction(value) and float(value) <= parameter.fraction_max
    else:
        fits = False
    shown = value if isinstance(value, int | float | str) else type(value).__name__
    return "" if fits else f"{name}: {shown!s:.64} is not {parameter.rule}"


def _is_fraction(text: str) -> bool:
    whole, point, rest = text.partition(".")
    digits = whole + rest
    return (
        point == "."
        and bool(whole)
        and 0 < len(rest) <= FRACTION_DIGITS
        and len(whole) <= FRACTION_DIGITS
        and digits.isascii()
        and digits.isdigit()
    )
