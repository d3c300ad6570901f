"""A publisher's sessions with queues."""

from __future__ import annotations

from headrace_broker.flow.credit import Credit
from headrace_broker.flow.gate import Gate
from headrace_broker.gateways.publishing.link import Link
from headrace_broker.gateways.publishing.output_buffer import OutputBuffer
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import CHANNEL_LINKS_MAX
from headrace_broker.runtime.contract.port import QueueClient, QueueListener
from headrace_broker.runtime.contract.traffic import ClientTraffic


class Links:
    """Opens a session with a queue when it is needed, and closes idle ones when there are many.

    At most CHANNEL_LINKS_MAX are open besides those that have something under way.

    Attributes:
        credit: what the channel may be handed to publish; withheld while a link is congested.
        traffic: what has passed the channel.
    """

    def __init__(self, output: OutputBuffer, listener: QueueListener) -> None:
        self.credit = Credit(output.broker.flow)
        self.traffic = ClientTraffic()
        self._output = output
        self._listener: QueueListener | None = listener  # None once the channel is gone
        self._by_group: dict[int, Link] = {}
        self._by_client: dict[QueueClient, Link] = {}
        self._congested: dict[int, Link] = {}
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

    def closed_gate(self, queues: tuple[Queue, ...], served: bool, force: bool) -> Gate | None:
        """Return the first gate on the way to queues that is closed.

        Args:
            queues: where publishes are to go.
            served: they have waited at a gate for their turn, and it has come.
            force: they cannot wait.
        """
        for queue in queues:
            gate = self.open(queue).client.gate
            if gate.is_open or (served and gate.room) or (force and not gate.overdrawn):
                continue
            return gate
        return None

    def congest(self, link: Link) -> None:
        """Give the channel no credit until `relieve` was called for this link."""
        if not link.congested:
            link.congested = True
            self._congested[link.client.queue.group] = link
            self.credit.withhold(True)

    def relieve(self, link: Link) -> None:
        """Take back `congest`; a link that is not congested is ignored."""
        if link.congested:
            link.congested = False
            del self._congested[link.client.queue.group]
            if not self._congested:
                self.credit.withhold(False)
                self._output.admission.wake()

    @property
    def congested_group(self) -> int:
        """The queue that has been congested longest, 0 for none."""
        for group in self._congested:
            return group
        return 0

    def close(self) -> None:
        """Close all; publishes that were handed over still go to their queues."""
        links = self._by_group
        self._by_group = {}
        self._by_client = {}
        for link in links.values():
            self.relieve(link)
            link.closed = True
        self._output.end(list(links.values()))

    def retire(self) -> None:
        """Forget the channel, which is gone."""
        self._listener = None

    def forget(self, link: Link) -> None:
        """Forget a link whose session has ended by itself."""
        self._by_group.pop(link.client.queue.group, None)
        self._by_client.pop(link.client, None)
        self.relieve(link)
        link.closed = True

    def _prune(self) -> None:
        """Close the idle links; next time when as many have come as are left now."""
        for group, link in list(self._by_group.items()):
            if link.idle:
                del self._by_group[group]
                del self._by_client[link.client]
                self._close(link)
        self._prune_at = CHANNEL_LINKS_MAX + len(self._by_group)

    def _close(self, link: Link) -> None:
        self.relieve(link)
        link.closed = True
        link.end()
