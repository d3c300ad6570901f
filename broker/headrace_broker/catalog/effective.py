"""Settings of queues and exchanges as the catalog has them now, and when they change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

from headrace_broker.catalog.event import (
    Event,
    PolicyChanged,
    QueueRemoved,
    VhostLimitsChanged,
)
from headrace_broker.catalog.policy import applied, effective, effective_exchange, in_order
from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.definition import Exchange, Policy, Queue


def policy_of(view: CatalogView, target: Queue | Exchange, operator: bool = False) -> Policy | None:
    """Return the policy, or operator policy, that counts for a queue or exchange."""
    return applied(in_order(view.policies(target.vhost, operator)), target)


def queue_arguments(view: CatalogView, queue: Queue) -> dict[str, Any]:
    """Return a queue's effective settings by the names of policies (`policy.effective`)."""
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
