"""A publisher's sessions with queues."""

from __future__ import annotations

from headrace_broker.gateways.publishing.link import Link
from headrace_broker.gateways.publishing.output_buffer import OutputBuffer
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import CHANNEL_LINKS_MAX
from headrace_broker.runtime.contract.port import QueueClient, QueueListener
from headrace_broker.runtime.contract.traffic import ClientTraffic


class Links:
    """Opens a session with a queue when it is needed, and closes idle ones when there are many.

    At most CHANNEL_LINKS_MAX are open besides those that have something under way.
    """

    def __init__(self, output: OutputBuffer, listener: QueueListener) -> None:
        self.traffic = ClientTraffic()  # what has passed the channel
        self._output = output
        self._listener: QueueListener | None = listener  # None once the channel is gone
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
            account = self._output.admission.account
            listener = self._listener
            assert listener is not None, "a channel that is gone opens nothing"
            link = self.new_link(self._output.broker.open_queue(queue, listener, account))
            self._by_group[queue.group] = link
            self._by_client[link.client] = link
        return link

    def new_link(self, client: QueueClient) -> Link:
        """Return a link that a session with a queue has opened for."""
        return Link(client)

    def find(self, client: QueueClient) -> Link | None:
        """Return the link of a queue client, None once it is closed."""
        return self._by_client.get(client)

    def close(self) -> None:
        """Close all; publishes that were handed over still go to their queues."""
        links = self._by_group
        self._by_group = {}
        self._by_client = {}
        for link in links.values():
            link.closed = True
        self._output.end(list(links.values()))

    def retire(self) -> None:
        """Forget the channel, which is gone."""
        self._listener = None

    def forget(self, link: Link) -> None:
        """Forget a link whose session has ended by itself."""
        self._by_group.pop(link.client.queue.group, None)
        self._by_client.pop(link.client, None)
        link.closed = True

    def _prune(self) -> None:
        """Close the idle links; next time when as many have come as are left now."""
        for group, link in list(self._by_group.items()):
            if link.idle:
                del self._by_group[group]
                del self._by_client[link.client]
                link.closed = True
                link.end()
        self._prune_at = CHANNEL_LINKS_MAX + len(self._by_group)
