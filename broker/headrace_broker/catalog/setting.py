"""Settings of queues and exchanges by argument and policy: one table, read by all.

Names are those of policies; the argument of the same meaning is `argument_name(name)`.

Source: RabbitMQ 4.3, `rabbit_policies`, `rabbit_amqqueue:declare_args`, `capabilities` of the queue
types, and `args_policy_lookup` where arguments and policies meet.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace_broker.model.definition import QUEUE_CLASSIC, QUEUE_QUORUM
from headrace_broker.model.limits import (
    ARCHIVE_MESSAGES_MAX,
    DEDUPLICATION_SIZE_MAX,
    DURATION_MS_MAX,
    NAME_BYTES_MAX,
    PRIORITY_MAX,
    QUANTITY_MAX,
    REPLICAS_MAX,
    TTL_MS_MAX,
)

INT32_MAX: Final = (1 << 31) - 1
SHOWN_LETTERS_MAX: Final = 64  # of a value in a refusal


class Integer(msgspec.Struct, frozen=True):
    """An integer within bounds, both of them allowed."""

    low: int
    high: int

    def allows(self, value: object) -> bool:
        """Return whether a value fits."""
        return (
            isinstance(value, int)
            and not isinstance(value, bool)
            and self.low <= value <= self.high
        )

    @property
    def rule(self) -> str:
        """Say what fits."""
        return f"an integer from {self.low} to {self.high}"


class Choice(msgspec.Struct, frozen=True):
    """One of some strings."""

    values: tuple[str, ...]

    def allows(self, value: object) -> bool:
        """Return whether a value fits."""
        return isinstance(value, str) and value in self.values

    @property
    def rule(self) -> str:
        """Say what fits."""
        return "one of " + ", ".join(f"'{value}'" for value in self.values)


class Text(msgspec.Struct, frozen=True):
    """A string as long as a name may be; an empty one only where `low` is 0."""

    low: int = 0

    def allows(self, value: object) -> bool:
        """Return whether a value fits."""
        return isinstance(value, str) and self.low <= len(value.encode()) <= NAME_BYTES_MAX

    @property
    def rule(self) -> str:
        """Say what fits."""
        return f"a string of {self.low} to {NAME_BYTES_MAX} bytes"


class Flag(msgspec.Struct, frozen=True):
    """True or false."""

    def allows(self, value: object) -> bool:
        """Return whether a value fits."""
        return isinstance(value, bool)

    @property
    def rule(self) -> str:
        """Say what fits."""
        return "a boolean"


Check = Integer | Choice | Text | Flag

# How two values of one setting become one.
FIRST: Final = "first"  # the first of (operator policy, policy), or of (argument, policy)
SECOND: Final = "second"  # the other one
SMALLER: Final = "smaller"
LARGER: Final = "larger"
STRICTER: Final = "stricter"  # the smaller of two limits of which a negative one means none
LOWER: Final = "lower"  # the smaller of two limits of which 0 means none


def united(how: str, first: Any, second: Any) -> Any:
    """Return what two values of one setting come to."""
    if how == FIRST:
        return first
    if how == SECOND:
        return second
    if how == LARGER or (how == STRICTER and (first < 0 or second < 0)):
        return max(first, second)
    if how == LOWER and (first == 0 or second == 0):
        return max(first, second)
    return min(first, second)


_BOTH: Final = (QUEUE_QUORUM, QUEUE_CLASSIC)
_QUORUM: Final = (QUEUE_QUORUM,)
_CLASSIC: Final = (QUEUE_CLASSIC,)


class Setting(msgspec.Struct, frozen=True):
    """One thing that a queue can be told."""

    check: Check  # what values it has
    # kinds of queues that take it, by argument or policy; others refuse the argument (see
    # `argument.asked_queue` for those whose kind was left to the broker)
    kinds: tuple[str, ...] = _BOTH
    fits: tuple[str, ...] = _BOTH  # a policy that has it applies to queues of these kinds only
    argument: bool = True  # an argument sets it; its name is `argument_name` of this one
    policy: bool = True  # a policy sets it
    operator: bool = False  # an operator policy sets it
    merged: str = FIRST  # of operator policy and policy
    weighed: str = FIRST  # of argument and policy (operator policy included)


_DURATION: Final = Integer(0, DURATION_MS_MAX)
_DURATION_SOME: Final = Integer(1, DURATION_MS_MAX)
_QUANTITY: Final = Integer(0, QUANTITY_MAX)

OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
ARCHIVES: Final = ("none", "headers", "full")
RETRY_TYPES: Final = ("disabled", "all", "failed", "returned")
# Two old names stand for "balanced".
LOCATORS: Final = ("client-local", "balanced", "random", "least-leaders")
MASTER_LOCATORS: Final = ("client-local", "min-masters", "random")

QUEUE_SETTINGS: Final[dict[str, Setting]] = {
    "expires": Setting(Integer(1, TTL_MS_MAX), operator=True, merged=SMALLER, weighed=SMALLER),
    "message-ttl": Setting(Integer(0, TTL_MS_MAX), operator=True, merged=SMALLER, weighed=SMALLER),
    "max-length": Setting(_QUANTITY, operator=True, merged=SMALLER, weighed=SMALLER),
    "max-length-bytes": Setting(_QUANTITY, operator=True, merged=SMALLER, weighed=SMALLER),
    # Of a quorum queue's the policy counts, of a classic queue's the argument: `policy.effective`.
    "overflow": Setting(Choice(OVERFLOWS), operator=True),
    "delivery-limit": Setting(
        Integer(-INT32_MAX, INT32_MAX),
        kinds=_QUORUM,
        fits=_QUORUM,
        operator=True,
        merged=STRICTER,
        weighed=STRICTER,
    ),
    "dead-letter-exchange": Setting(Text()),
    "dead-letter-routing-key": Setting(Text()),
    "dead-letter-strategy": Setting(
        Choice(("at-most-once", "at-least-once")), kinds=_QUORUM, fits=_QUORUM
    ),
    "single-active-consumer": Setting(Flag(), policy=False),
    "max-priority": Setting(Integer(0, PRIORITY_MAX), kinds=_CLASSIC, policy=False),
    "consumer-timeout": Setting(_DURATION, weighed=SMALLER),
    "delayed-retry-type": Setting(
        Choice(RETRY_TYPES), kinds=_QUORUM, operator=True, weighed=SECOND
    ),
    "delayed-retry-min": Setting(
        _DURATION_SOME, kinds=_QUORUM, operator=True, merged=LARGER, weighed=SMALLER
    ),
    "delayed-retry-max": Setting(
        _DURATION_SOME, kinds=_QUORUM, operator=True, merged=SMALLER, weighed=SMALLER
    ),
    "queue-leader-locator": Setting(Choice(LOCATORS)),
    "queue-master-locator": Setting(Choice(MASTER_LOCATORS), kinds=_CLASSIC, policy=False),
    "quorum-initial-group-size": Setting(Integer(1, REPLICAS_MAX), kinds=_QUORUM, policy=False),
    "target-group-size": Setting(
        Integer(1, REPLICAS_MAX), kinds=_QUORUM, fits=_QUORUM, operator=True, merged=LARGER
    ),
    # Accepted and without effect, as in RabbitMQ 4.
    "queue-mode": Setting(Choice(("default", "lazy")), kinds=_CLASSIC, fits=_CLASSIC),
    "queue-version": Setting(Integer(1, 2), kinds=_CLASSIC, operator=True),
    "max-in-memory-length": Setting(
        _QUANTITY, kinds=_QUORUM, fits=_QUORUM, operator=True, merged=SMALLER, weighed=SMALLER
    ),
    "max-in-memory-bytes": Setting(
        _QUANTITY, kinds=_QUORUM, fits=_QUORUM, operator=True, merged=SMALLER, weighed=SMALLER
    ),
    # Not in RabbitMQ.
    "last-value-key": Setting(Text(1), policy=False),
    "group-key": Setting(Text(1), policy=False),
    "fairness-key": Setting(Text(1)),
    "message-deduplication": Setting(Flag()),
    "deduplication-size": Setting(
        Integer(1, DEDUPLICATION_SIZE_MAX), operator=True, merged=SMALLER, weighed=SMALLER
    ),
    "deduplication-ttl": Setting(_DURATION_SOME, operator=True, merged=SMALLER, weighed=SMALLER),
    "publisher-retention": Setting(_DURATION, operator=True, merged=SMALLER, weighed=SMALLER),
    "archive": Setting(Choice(ARCHIVES), kinds=_QUORUM, fits=_QUORUM),
    "archive-max-messages": Setting(
        Integer(0, ARCHIVE_MESSAGES_MAX),
        kinds=_QUORUM,
        operator=True,
        merged=SMALLER,
        weighed=SMALLER,
    ),
    "archive-max-bytes": Setting(
        _QUANTITY, kinds=_QUORUM, operator=True, merged=SMALLER, weighed=SMALLER
    ),
    "archive-max-age": Setting(
        _DURATION, kinds=_QUORUM, operator=True, merged=SMALLER, weighed=SMALLER
    ),
    "high-watermark-bytes": Setting(_QUANTITY, operator=True, merged=LOWER, weighed=LOWER),
    "low-watermark-bytes": Setting(_QUANTITY, operator=True, merged=SMALLER, weighed=SMALLER),
    "high-watermark": Setting(_QUANTITY, operator=True, merged=LOWER, weighed=LOWER),
    "low-watermark": Setting(_QUANTITY, operator=True, merged=SMALLER, weighed=SMALLER),
    "allow-immediate": Setting(Flag(), argument=False),
}

ALTERNATE_EXCHANGE: Final = "alternate-exchange"

# What policies set for exchanges.
EXCHANGE_SETTINGS: Final[dict[str, Setting]] = {ALTERNATE_EXCHANGE: Setting(Text())}

LIMIT_CHECK: Final = Integer(-QUANTITY_MAX, QUANTITY_MAX)

CHANNEL_FLOW: Final = "channel-flow"  # 1: clients are sent channel.flow
BLOCKED_AFTER_MS: Final = "blocked-after-ms"  # a client is told when it was held for so long
PUBLISH_WEIGHT: Final = "publish-weight"  # share among publishers that compete for a queue
PUBLISH_WEIGHT_MAX: Final = 100

# A negative value removes a limit.
_FLOW_LIMITS: Final[dict[str, Integer]] = {
    CHANNEL_FLOW: Integer(-QUANTITY_MAX, 1),
    BLOCKED_AFTER_MS: Integer(-QUANTITY_MAX, DURATION_MS_MAX),
}
VHOST_LIMITS: Final[dict[str, Integer]] = {
    "max-connections": LIMIT_CHECK,
    "max-queues": LIMIT_CHECK,
    "default-queue-max-length": LIMIT_CHECK,
    "default-queue-max-length-bytes": LIMIT_CHECK,
    "default-queue-high-watermark": LIMIT_CHECK,
    "default-queue-high-watermark-bytes": LIMIT_CHECK,
    "default-queue-low-watermark": LIMIT_CHECK,
    "default-queue-low-watermark-bytes": LIMIT_CHECK,
    "publish-rate-messages": LIMIT_CHECK,
    "publish-rate-bytes": LIMIT_CHECK,
    **_FLOW_LIMITS,
}
USER_LIMITS: Final[dict[str, Integer]] = {
    "max-connections": LIMIT_CHECK,
    "max-channels": LIMIT_CHECK,
    "publish-rate-messages": LIMIT_CHECK,
    "publish-rate-bytes": LIMIT_CHECK,
    **_FLOW_LIMITS,
    PUBLISH_WEIGHT: Integer(-QUANTITY_MAX, PUBLISH_WEIGHT_MAX),
}

_ODD_ARGUMENT_NAMES: Final = {"target-group-size": "x-quorum-target-group-size"}


def argument_name(setting: str) -> str:
    """Return the name of the queue argument that sets what a policy's key sets."""
    return _ODD_ARGUMENT_NAMES.get(setting, f"x-{setting}")


QUEUE_ARGUMENTS: Final[dict[str, Setting]] = {
    argument_name(name): setting for name, setting in QUEUE_SETTINGS.items() if setting.argument
}


def shown(value: object) -> str:
    """Say a value that was refused, briefly whatever it is."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        text = repr(value)
        return text if len(text) <= SHOWN_LETTERS_MAX else f"{text[:SHOWN_LETTERS_MAX]}..."
    return f"a {type(value).__name__}"


def definition_problem(definition: dict[str, Any], operator: bool) -> str:
    """Return why a policy, or operator policy, cannot have this definition; "" when it can."""
    if not definition:
        return "definition: must not be empty"
    for name in sorted(definition):
        setting = QUEUE_SETTINGS.get(name) or EXCHANGE_SETTINGS.get(name)
        if setting is None or not (setting.operator if operator else setting.policy):
            kind = "operator policies" if operator else "policies"
            return f"definition: '{name}' is not recognised as a setting of {kind}"
        if not setting.check.allows(definition[name]):
            return (
                f"definition: '{name}' must be {setting.check.rule}, not {shown(definition[name])}"
            )
    return _retry_problem(definition) or watermark_problem(definition, "")


def _retry_problem(definition: dict[str, Any]) -> str:
    kind = definition.get("delayed-retry-type", "disabled")
    low = definition.get("delayed-retry-min")
    high = definition.get("delayed-retry-max")
    if kind != "disabled" and low is None:
        return f"definition: 'delayed-retry-min' is required when 'delayed-retry-type' is '{kind}'"
    if low is not None and high is not None and high < low:
        return (
            f"definition: 'delayed-retry-max' ({high}) must not be smaller than "
            f"'delayed-retry-min' ({low})"
        )
    return ""


def watermark_problem(settings: dict[str, Any], prefix: str) -> str:
    """Return why two watermarks, named with a prefix, cannot stand together; "" if they can."""
    for unit in ("", "-bytes"):
        low_name = f"{prefix}low-watermark{unit}"
        high_name = f"{prefix}high-watermark{unit}"
        low = settings.get(low_name, 0)
        high = settings.get(high_name, 0)
        if 0 < high < low:
            return f"'{low_name}' ({low}) must not be larger than '{high_name}' ({high})"
    return ""


def limits_problem(limits: dict[str, int], known: dict[str, Integer]) -> str:
    """Return why a vhost or user cannot have these limits, "" when it can."""
    for name in sorted(limits):
        if name not in known:
            return f"limit '{name}' is not recognised; limits are {', '.join(known)}"
        if not known[name].allows(limits[name]):
            return f"limit '{name}' must be {known[name].rule}, not {shown(limits[name])}"
        if name == PUBLISH_WEIGHT and limits[name] == 0:
            return f"limit '{name}' must not be 0: a weight of nothing would never be served"
    return ""
