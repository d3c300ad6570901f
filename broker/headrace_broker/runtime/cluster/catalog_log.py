"""Log lines about changes of the catalog: cluster version, nodes, queues, exchanges, vhosts.

Changes that are read again when a node starts are no news: nothing is written before it has caught
up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace_broker.catalog.event import (
    ClusterVersionRaised,
    Event,
    ExchangeAdded,
    ExchangeRemoved,
    NodeAdded,
    NodeRemoved,
    QueueAdded,
    QueueChanged,
    QueueRemoved,
    VhostAdded,
    VhostRemoved,
)
from headrace_broker.catalog.view import CatalogView
from headrace_broker.logs.log_event import (
    CATALOG,
    CLUSTER,
    CLUSTER_VERSION_RAISED,
    DEBUG,
    EXCHANGE_DECLARED,
    EXCHANGE_DELETED,
    NODE_FORGOTTEN,
    NODE_JOINED,
    QUEUE_DECLARED,
    QUEUE_DELETED,
    REPLICAS_PLACED,
    VHOST_DECLARED,
    VHOST_DELETED,
    log_event,
)


class CatalogLog:
    """Writes a line for each change once the node is caught up."""

    def __init__(self, view: CatalogView, caught_up: Callable[[], bool]) -> None:
        self._view = view  # the catalog as applied here
        self._caught_up = caught_up  # returns whether what is applied now is news
        self._nodes: set[int] = set()  # node ids that the log was told of, or need not be

    def labels(self, group: int) -> Mapping[str, str]:
        """Return what a group's log lines call it: names of its queue and vhost."""
        queue = self._view.queue_by_group(group)
        return {} if queue is None else {"queue": queue.name, "vhost": queue.vhost}

    def on_events(self, events: Sequence[Event]) -> None:
        """Follow the catalog."""
        news = self._caught_up()
        details = news and CATALOG.isEnabledFor(DEBUG)
        for event in events:
            if isinstance(event, (NodeAdded, NodeRemoved)):
                self._node(event, news)
            elif isinstance(event, QueueChanged):
                if news:
                    _queue(event)
            elif isinstance(event, ClusterVersionRaised):
                if news:
                    log_event(CLUSTER, CLUSTER_VERSION_RAISED, version=event.version)
            elif details and isinstance(event, (QueueAdded, QueueRemoved)):
                _queue(event)
            elif details:
                _other(event)

    def _node(self, event: NodeAdded | NodeRemoved, news: bool) -> None:
        node = event.node
        if isinstance(event, NodeRemoved):
            self._nodes.discard(node.id)
            if news:
                log_event(CLUSTER, NODE_FORGOTTEN, node=node.name, id=node.id)
        elif node.id not in self._nodes:  # an event comes too when one it knows has changed
            self._nodes.add(node.id)
            if news:
                more = {"node": node.name, "id": node.id, "address": node.address}
                log_event(CLUSTER, NODE_JOINED, **more)


def _queue(event: QueueAdded | QueueChanged | QueueRemoved) -> None:
    queue = event.queue
    fields: dict[str, object] = {"queue": queue.name, "vhost": queue.vhost, "group": queue.group}
    if isinstance(event, QueueRemoved):
        log_event(CATALOG, QUEUE_DELETED, **fields)
        return
    fields["members"] = list(queue.members)
    if isinstance(event, QueueAdded):
        log_event(CATALOG, QUEUE_DECLARED, **fields)
    else:
        log_event(CATALOG, REPLICAS_PLACED, leaving=list(queue.leaving), **fields)


def _other(event: Event) -> None:
    if isinstance(event, ExchangeAdded | ExchangeRemoved):
        kind = EXCHANGE_DECLARED if isinstance(event, ExchangeAdded) else EXCHANGE_DELETED
        exchange = event.exchange
        log_event(CATALOG, kind, exchange=exchange.name, vhost=exchange.vhost)
    elif isinstance(event, VhostAdded | VhostRemoved):
        kind = VHOST_DECLARED if isinstance(event, VhostAdded) else VHOST_DELETED
        log_event(CATALOG, kind, vhost=event.vhost.name)
