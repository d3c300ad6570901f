"""Policies: which one applies to a queue or exchange, and the effective settings with it.

Source: RabbitMQ 4.3, `rabbit_policy` (match, merge_operator_definitions),
`rabbit_queue_type_util:args_policy_lookup` and its callers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, final

from headrace_broker.catalog.event import Event, PolicyChanged, QueueRemoved, VhostLimitsChanged
from headrace_broker.catalog.pattern import matches
from headrace_broker.catalog.setting import (
    ALTERNATE_EXCHANGE,
    EXCHANGE_SETTINGS,
    FIRST,
    QUEUE_SETTINGS,
    SECOND,
    argument_name,
    united,
)
from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.definition import (
    APPLY_ALL,
    APPLY_CLASSIC,
    APPLY_EXCHANGES,
    APPLY_QUEUES,
    APPLY_QUORUM,
    QUEUE_CLASSIC,
    QUEUE_QUORUM,
    Exchange,
    Policy,
    Queue,
)

# A vhost's default limits of queues, and the setting that each gives.
DEFAULT_LIMITS: Final = (
    ("default-queue-max-length", "max-length"),
    ("default-queue-max-length-bytes", "max-length-bytes"),
    ("default-queue-high-watermark", "high-watermark"),
    ("default-queue-high-watermark-bytes", "high-watermark-bytes"),
    ("default-queue-low-watermark", "low-watermark"),
    ("default-queue-low-watermark-bytes", "low-watermark-bytes"),
)

_QUEUE_TARGETS: Final = {
    QUEUE_QUORUM: (APPLY_ALL, APPLY_QUEUES, APPLY_QUORUM),
    QUEUE_CLASSIC: (APPLY_ALL, APPLY_QUEUES, APPLY_CLASSIC),
}
_NAMES: Final = {
    argument_name(name): name for name, each in QUEUE_SETTINGS.items() if each.argument
}
_EXCHANGE_TARGETS: Final = (APPLY_ALL, APPLY_EXCHANGES)


def applies(policy: Policy, target: Queue | Exchange) -> bool:
    """Return whether a policy is for this queue or exchange.

    A policy that has a setting which queues of this kind do not know is not for them, as a whole.
    """
    if policy.vhost != target.vhost or not matches(policy.pattern, target.name):
        return False
    if isinstance(target, Exchange):
        return policy.apply_to in _EXCHANGE_TARGETS
    return policy.apply_to in _QUEUE_TARGETS.get(target.kind, ()) and _fits(policy, target.kind)


def _fits(policy: Policy, kind: str) -> bool:
    for name in policy.definition:
        setting = QUEUE_SETTINGS.get(name)
        if setting is not None and kind not in setting.fits:
            return False
    return True


def in_order(policies: Iterable[Policy]) -> list[Policy]:
    """Return policies so that of those that apply to something the first one counts.

    That is the one with the highest priority; of several the first by name, which RabbitMQ leaves
    open.
    """
    return sorted(policies, key=lambda policy: (-policy.priority, policy.name))


def applied(ordered: Iterable[Policy], target: Queue | Exchange) -> Policy | None:
    """Return the policy, of those `in_order`, that counts for a queue or exchange."""
    for policy in ordered:
        if applies(policy, target):
            return policy
    return None


def merged(policy: Policy | None, operator_policy: Policy | None) -> dict[str, Any]:
    """Return what a policy says under an operator policy, which bounds it."""
    definition = _meant(policy) if policy is not None else {}
    if operator_policy is None:
        return definition
    for name, value in _meant(operator_policy).items():
        setting = QUEUE_SETTINGS.get(name)
        if setting is not None and name in definition:
            value = united(setting.merged, value, definition[name])
        definition[name] = value
    return definition


def _meant(policy: Policy) -> dict[str, Any]:
    """Return a definition without what means nothing to this version."""
    meant: dict[str, Any] = {}
    for name, value in policy.definition.items():
        setting = QUEUE_SETTINGS.get(name) or EXCHANGE_SETTINGS.get(name)
        if setting is not None and setting.check.allows(value):
            meant[name] = value
    return meant


def effective(
    queue: Queue,
    policy: Policy | None,
    operator_policy: Policy | None,
    vhost_limits: Mapping[str, int],
) -> dict[str, Any]:
    """Return a queue's settings by the names of policies; unset ones are absent.

    Args:
        queue: its arguments count beside the policies.
        policy: the one that applies to it.
        operator_policy: likewise.
        vhost_limits: of the queue's vhost.
    """
    kind = queue.kind
    told = merged(policy, operator_policy)
    settings: dict[str, Any] = {}
    for name, value in told.items():
        setting = QUEUE_SETTINGS.get(name)
        if setting is not None and kind in setting.kinds:
            settings[name] = value
    for argument, value in queue.arguments.items():
        name = _NAMES.get(argument, "")
        setting = QUEUE_SETTINGS.get(name)
        if setting is None or not setting.check.allows(value):
            continue  # it says something else, or was declared before it was checked
        # A queue that is a quorum queue by default may have the arguments of a classic one.
        if kind in setting.kinds or kind == QUEUE_QUORUM:
            both = name in told
            settings[name] = united(_weighed(name, kind), value, told[name]) if both else value
    for limit, name in DEFAULT_LIMITS:
        if limit in vhost_limits:
            settings.setdefault(name, vhost_limits[limit])
    _settle_dead_letters(settings)
    _settle_retry(settings)
    _settle_watermarks(settings)
    return settings


def _weighed(name: str, kind: str) -> str:
    if name == "overflow":
        return SECOND if kind == QUEUE_QUORUM else FIRST
    return QUEUE_SETTINGS[name].weighed


def _settle_dead_letters(settings: dict[str, Any]) -> None:
    """Drop what means nothing without an exchange; at-least-once takes overflow reject-publish."""
    if "dead-letter-exchange" not in settings:
        settings.pop("dead-letter-routing-key", None)
        settings.pop("dead-letter-strategy", None)
    elif (
        settings.get("dead-letter-strategy") == "at-least-once"
        and settings.get("overflow") != "reject-publish"
    ):
        settings["dead-letter-strategy"] = "at-most-once"


def _settle_retry(settings: dict[str, Any]) -> None:
    """Drop a retry without a shortest delay; the longest one is not below that."""
    low = settings.get("delayed-retry-min")
    if low is None or settings.get("delayed-retry-type", "disabled") == "disabled":
        for name in ("delayed-retry-type", "delayed-retry-min", "delayed-retry-max"):
            settings.pop(name, None)
    else:
        settings["delayed-retry-max"] = max(low, settings.get("delayed-retry-max", low))


def _settle_watermarks(settings: dict[str, Any]) -> None:
    """Drop a low watermark that came from elsewhere than the high one and is above it."""
    for unit in ("", "-bytes"):
        high = settings.get(f"high-watermark{unit}", 0)
        low = settings.get(f"low-watermark{unit}", 0)
        if 0 < high < low:
            del settings[f"low-watermark{unit}"]


def effective_exchange(
    exchange: Exchange, policy: Policy | None, operator_policy: Policy | None
) -> dict[str, Any]:
    """Return an exchange's settings by the names of policies; its argument counts before them."""
    told = merged(policy, operator_policy)
    settings = {name: told[name] for name in EXCHANGE_SETTINGS if name in told}
    argument = exchange.arguments.get(ALTERNATE_EXCHANGE)
    if isinstance(argument, str):
        settings[ALTERNATE_EXCHANGE] = argument
    return settings


def policy_of(view: CatalogView, target: Queue | Exchange, operator: bool = False) -> Policy | None:
    """Return the policy, or operator policy, that counts for a queue or exchange."""
    return applied(in_order(view.policies(target.vhost, operator)), target)


def queue_arguments(view: CatalogView, queue: Queue) -> dict[str, Any]:
    """Return a queue's effective settings by the names of policies (see `effective`)."""
    return effective(
        queue,
        policy_of(view, queue),
        policy_of(view, queue, operator=True),
        view.vhost_limits(queue.vhost),
    )


def exchange_arguments(view: CatalogView, exchange: Exchange) -> dict[str, Any]:
    """Return an exchange's effective settings by the names of policies."""
    return effective_exchange(
        exchange, policy_of(view, exchange), policy_of(view, exchange, operator=True)
    )


@final
class EffectiveArguments:
    """Effective settings of queues that were asked for; it tells which may change.

    It holds one entry for each such queue, until that is gone.
    """

    def __init__(self, view: CatalogView) -> None:
        self._view = view
        self._known: dict[str, dict[int, tuple[Queue, dict[str, Any] | None]]] = {}

    def of(self, queue: Queue) -> dict[str, Any]:
        """Return a queue's effective settings; not to be changed by the caller."""
        queues = self._known.setdefault(queue.vhost, {})
        known = queues.get(queue.group, (queue, None))[1]
        if known is None:
            known = queue_arguments(self._view, queue)
            queues[queue.group] = (queue, known)
        return known

    def forget(self, queue: Queue) -> None:
        """Forget a queue whose settings nobody here needs any more."""
        queues = self._known.get(queue.vhost)
        if queues is not None:
            queues.pop(queue.group, None)
            if not queues:
                del self._known[queue.vhost]

    def changed(self, events: Iterable[Event]) -> list[Queue]:
        """Follow changes of the catalog; return the queues whose settings may be others now.

        They are those of the vhosts concerned that were asked about. Their settings are worked out
        when they are asked for: searching all their names in one turn could take seconds.
        """
        vhosts: dict[str, None] = {}
        for event in events:
            if isinstance(event, QueueRemoved):
                self.forget(event.queue)
            elif isinstance(event, PolicyChanged | VhostLimitsChanged):
                vhosts[event.vhost] = None
        return [queue for vhost in vhosts for queue in self._outdate(vhost)]

    def _outdate(self, vhost: str) -> list[Queue]:
        queues = self._known.get(vhost, {})
        for group, (queue, _) in queues.items():
            queues[group] = (queue, None)
        return [queue for queue, _ in queues.values()]
