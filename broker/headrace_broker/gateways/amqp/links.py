"""A channel's sessions with queues."""

from __future__ import annotations

from typing import final

from headrace_broker.gateways.amqp.consumer import Link
from headrace_broker.gateways.amqp.outlet import Outlet
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import CHANNEL_LINKS_MAX
from headrace_broker.runtime.port import QueueClient, QueueListener


@final
class Links:
    """Opens a session with a queue when it is needed, and closes idle ones when there are many.

    At most CHANNEL_LINKS_MAX are open besides those that have something under way.
    """

    def __init__(self, outlet: Outlet, listener: QueueListener) -> None:
        self._outlet = outlet
        self._listener = listener
        self._by_group: dict[int, Link] = {}
        self._by_client: dict[QueueClient, Link] = {}
        self._prune_at = CHANNEL_LINKS_MAX

    def __len__(self) -> int:
        return len(self._by_group)

    def open(self, queue: Queue) -> Link:
        """Return the link to a queue."""
        link = self._by_group.get(queue.group)
        if link is None:
            if len(self._by_group) >= self._prune_at:
                self._prune()
            link = Link(self._outlet.broker.open_queue(queue, self._listener))
            self._by_group[queue.group] = link
            self._by_client[link.client] = link
        return link

    def find(self, client: QueueClient) -> Link | None:
        """Return the link of a queue client, None once it is closed."""
        return self._by_client.get(client)

    def close(self) -> None:
        """Close all; publishes that were handed over still go to their queues."""
        links = self._by_group
        self._by_group = {}
        self._by_client = {}
        for link in links.values():
            self._close(link)

    def _prune(self) -> None:
        """Close the idle links; next time when as many have come as are left now."""
        for group, link in list(self._by_group.items()):
            if link.idle:
                del self._by_group[group]
                del self._by_client[link.client]
                self._close(link)
        self._prune_at = CHANNEL_LINKS_MAX + len(self._by_group)

    def _close(self, link: Link) -> None:
        if link.touched:
            link.client.flush()
        self._outlet.relieve(link)
        link.closed = True
        link.client.close()
