"""Browsing of ready messages at the leader, without taking them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace_broker.codecs.batch import message_body, message_properties, message_route
from headrace_broker.core.queue.command.command import ENQUEUE_BATCH_OFFSET
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import (
    BROWSED_MESSAGES_MAX,
    BROWSED_OCTETS_MAX,
    BROWSED_READ_OCTETS_MAX,
)
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.replica.reading.entries import Entries
from headrace_broker.runtime.rpc.leader_client import LeaderClient
from headrace_protos.cluster.v1.cluster_pb2 import (
    BrowsedMessage,
    BrowsedPage,
    BrowseRequest,
    ClusterPayload,
)


class WaitingMessage(NamedTuple):
    """A message that waits.

    Attributes:
        id: ascends in the order of arrival at the queue, from 1.
        arrived_ms: Unix time at which it arrived.
        priority: 0 and above.
        octets: of its whole body.
        acquired_count: how often it was delivered before.
        delivery_count: how many of these deliveries failed.
        route: exchange and routing key as in `Publish.route`.
        properties: property flags and list.
        body: as much of its body as was asked for.
    """

    id: int
    arrived_ms: int
    priority: int
    octets: int
    acquired_count: int
    delivery_count: int
    route: bytes
    properties: bytes
    body: bytes


class Page(NamedTuple):
    """Messages in the order of their ids, and whether there may be more behind them."""

    messages: list[WaitingMessage]
    more: bool


def page_of(host: QueueHost, entries: Entries, after: int, limit: int, body_octets: int) -> Page:
    """Return what a replica holds behind message `after`, within the bounds of a page.

    It ends early before an entry that is missing.
    """
    limit = max(1, min(limit, BROWSED_MESSAGES_MAX))
    waiting = host.machine.available_from(after, limit)
    messages: list[WaitingMessage] = []
    octets = read = 0
    index = -1
    entry: bytes | None = None
    for acquired in waiting:
        if int(acquired.entry_index) != index:
            if read >= BROWSED_READ_OCTETS_MAX:
                return Page(messages, True)
            index = int(acquired.entry_index)
            entry = entries.get(index)
            read += entries.octets(index) if entry is None else len(entry)
        if entry is None:  # what else is missing is to be found out
            continue
        message = _cut(acquired, entry, body_octets)
        octets += len(message.properties) + len(message.body)
        if messages and octets > BROWSED_OCTETS_MAX:
            return Page(messages, True)
        messages.append(message)
    return Page(messages, len(waiting) == limit or len(messages) < len(waiting))


def _cut(acquired: Acquired, entry: bytes, body_octets: int) -> WaitingMessage:
    position = acquired.position
    return WaitingMessage(
        int(acquired.message_id),
        int(acquired.arrived_ms),
        int(acquired.priority),
        int(acquired.octets),
        int(acquired.acquired_count),
        int(acquired.delivery_count),
        message_route(entry, ENQUEUE_BATCH_OFFSET, position),
        message_properties(entry, ENQUEUE_BATCH_OFFSET, position),
        message_body(entry, ENQUEUE_BATCH_OFFSET, position)[:body_octets],
    )


class BrowsingClient:
    """Asks leaders, here or on other nodes; see `LeaderClient`."""

    def __init__(
        self,
        node: int,
        hosts: dict[int, QueueHost],
        locate: Callable[[Queue], int],
        send: Callable[[int, bytes], bool],
        exists: Callable[[Queue], bool],
    ) -> None:
        self._leaders: LeaderClient[Page] = LeaderClient(node, hosts, locate, send, exists)

    async def ask(self, queue: Queue, after: int, limit: int, body_octets: int) -> Page:
        """Return up to `limit` messages with ids above `after`, bodies cut to `body_octets`.

        Raises:
            LeaderUnavailableError: no leader of the queue answered.
            QueueGoneError: the queue was deleted.
        """

        def here(host: QueueHost, entries: Entries) -> Page:
            return page_of(host, entries, after, limit, body_octets)

        def question(number: int) -> ClusterPayload:
            request = BrowseRequest(
                group=queue.group,
                request=number,
                after=after,
                limit=limit,
                body_octets=body_octets,
            )
            return ClusterPayload(browse_request=request)

        return await self._leaders.ask_reading(queue, here, question)

    def receive_request(self, source: int, request: BrowseRequest) -> None:
        """Answer another node."""

        def here(host: QueueHost, entries: Entries) -> Page:
            return page_of(host, entries, request.after, request.limit, request.body_octets)

        def payload(page: Page | None) -> ClusterPayload:
            answer = BrowsedPage(request=request.request)
            if page is not None:
                answer.serving = True
                answer.more = page.more
                answer.messages.extend(BrowsedMessage(**each._asdict()) for each in page.messages)
            return ClusterPayload(browsed_page=answer)

        self._leaders.answer_reading(source, request.group, here, payload)

    def receive_answer(self, answer: BrowsedPage) -> None:
        """Take another node's answer."""
        page = None
        if answer.serving:
            messages = [
                WaitingMessage(*(getattr(each, name) for name in WaitingMessage._fields))
                for each in answer.messages
            ]
            page = Page(messages, answer.more)
        self._leaders.receive(answer.request, page)
