"""Events that lead from one state of the catalog to another, for followers of its events."""

from __future__ import annotations

from headrace_broker.catalog import event
from headrace_broker.catalog.view import DESTINATION_QUEUE, CatalogView
from headrace_broker.model.binding_key import binding_key
from headrace_broker.model.definition import Binding, Exchange, Queue

_Name = tuple[str, str, str]  # "queue" or "exchange", vhost, name


def difference(before: CatalogView, after: CatalogView) -> list[event.Event]:
    """Return events that lead from one catalog to a later one of the same cluster.

    What was deleted and declared anew in between (a queue of the same name is another one, an
    exchange may have got other properties) is removed and added, and its bindings with it. The
    order is that of `catalog.event`: bindings go before their ends and come after them.
    """
    queues = [queue for queue in before.queues() if after.queue_by_group(queue.group) is None]
    exchanges = [x for x in before.exchanges() if after.exchange(x.vhost, x.name) != x]
    torn = {_queue_name(queue) for queue in queues} | {_exchange_name(x) for x in exchanges}
    gone: list[event.Event] = [
        *(event.BindingRemoved(b) for b in before.bindings() if _is_news(b, after, torn)),
        *(event.QueueRemoved(queue) for queue in queues),
        *(event.ExchangeRemoved(exchange) for exchange in exchanges),
        *_told_no_more(before, after),
        *(
            event.VhostRemoved(vhost)
            for vhost in before.vhosts()
            if after.vhost(vhost.name) is None
        ),
        *(
            event.UserChanged(user.name, None)
            for user in before.users()
            if after.user(user.name) is None
        ),
        *(event.NodeRemoved(node) for node in before.nodes() if after.node(node.id) is None),
    ]
    raised = after.cluster_version != before.cluster_version
    come: list[event.Event] = [
        *([event.ClusterVersionRaised(after.cluster_version)] if raised else []),
        *(event.NodeAdded(node) for node in after.nodes() if before.node(node.id) != node),
        *(event.VhostAdded(vhost) for vhost in after.vhosts() if before.vhost(vhost.name) is None),
        *(
            event.UserChanged(u.name, u)
            for u in after.users()
            if before.user(u.name) != u
            or before.session_epoch(u.name) != after.session_epoch(u.name)
        ),
        *_told_now(before, after),
        *(
            event.ExchangeAdded(x)
            for x in after.exchanges()
            if before.exchange(x.vhost, x.name) != x
        ),
        *(event.QueueAdded(q) for q in after.queues() if before.queue_by_group(q.group) is None),
        *(
            event.QueueChanged(q)
            for q in after.queues()
            if before.queue_by_group(q.group) not in (None, q)
        ),
        *(event.BindingAdded(b) for b in after.bindings() if _is_news(b, before, torn)),
    ]
    return gone + come


def _told_no_more(before: CatalogView, after: CatalogView) -> list[event.Event]:
    """Return what takes away policies, permissions, limits and parameters that are gone."""
    return [
        *(
            event.PolicyChanged(policy.vhost, policy.name, operator, None)
            for operator in (False, True)
            for policy in before.policies(operator=operator)
            if after.policy(policy.vhost, policy.name, operator) is None
        ),
        *(
            event.PermissionChanged(each.user, each.vhost, None)
            for each in before.permissions()
            if after.permission(each.user, each.vhost) is None
        ),
        *(
            event.TopicPermissionChanged(each.user, each.vhost, each.exchange, None)
            for each in before.topic_permissions()
            if after.topic_permission(each.user, each.vhost, each.exchange) is None
        ),
        *(
            event.VhostLimitsChanged(vhost.name, {})
            for vhost in before.vhosts()
            if before.vhost_limits(vhost.name) and not after.vhost_limits(vhost.name)
        ),
        *(
            event.UserLimitsChanged(user.name, {})
            for user in before.users()
            if before.user_limits(user.name) and not after.user_limits(user.name)
        ),
        *(
            event.ParameterChanged(name, None)
            for name in before.parameters()
            if name not in after.parameters()
        ),
    ]


def _told_now(before: CatalogView, after: CatalogView) -> list[event.Event]:
    """Return what brings vhost properties, limits, permissions and so on that are other ones."""
    return [
        *(
            event.VhostChanged(vhost)
            for vhost in after.vhosts()
            if before.vhost(vhost.name) not in (None, vhost)
        ),
        *(
            event.VhostLimitsChanged(vhost.name, limits)
            for vhost in after.vhosts()
            if (limits := after.vhost_limits(vhost.name))
            and limits != before.vhost_limits(vhost.name)
        ),
        *(
            event.UserLimitsChanged(user.name, limits)
            for user in after.users()
            if (limits := after.user_limits(user.name)) and limits != before.user_limits(user.name)
        ),
        *(
            event.PermissionChanged(each.user, each.vhost, each)
            for each in after.permissions()
            if before.permission(each.user, each.vhost) != each
        ),
        *(
            event.TopicPermissionChanged(each.user, each.vhost, each.exchange, each)
            for each in after.topic_permissions()
            if before.topic_permission(each.user, each.vhost, each.exchange) != each
        ),
        *(
            event.PolicyChanged(policy.vhost, policy.name, operator, policy)
            for operator in (False, True)
            for policy in after.policies(operator=operator)
            if before.policy(policy.vhost, policy.name, operator) != policy
        ),
        *(
            event.ParameterChanged(name, value)
            for name, value in after.parameters().items()
            if before.parameters().get(name) != value
        ),
    ]


def _is_news(binding: Binding, other: CatalogView, torn: set[_Name]) -> bool:
    """Return whether a binding is not in the other catalog, or lost one of its ends."""
    source = ("exchange", binding.vhost, binding.source)
    kind = "queue" if binding.destination_type == DESTINATION_QUEUE else "exchange"
    destination = (kind, binding.vhost, binding.destination)
    return source in torn or destination in torn or not other.binding_exists(binding_key(binding))


def _queue_name(queue: Queue) -> _Name:
    return "queue", queue.vhost, queue.name


def _exchange_name(exchange: Exchange) -> _Name:
    return "exchange", exchange.vhost, exchange.name
