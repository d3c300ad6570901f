"""Browsing of ready messages at the leader, without taking them."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from headrace_broker.codecs.batch import message_body, message_properties, message_route
from headrace_broker.core.queue.command.command import ENQUEUE_BATCH_OFFSET
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import (
    BROWSED_BYTES_MAX,
    BROWSED_MESSAGES_MAX,
    BROWSED_READ_BYTES_MAX,
)
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.replica.reading.entries import Entries
from headrace_broker.runtime.rpc.leader import LeaderQuestion, Leaders
from headrace_broker.runtime.rpc.protocol import READS


class WaitingMessage(NamedTuple):
    """A message that waits."""

    id: int  # ascends in the order of arrival at the queue, from 1
    arrived_ms: int  # Unix time at which it arrived
    priority: int  # 0 and above
    byte_count: int  # of its whole body
    acquired_count: int  # how often it was delivered before
    delivery_count: int  # how many of these deliveries failed
    route: bytes  # exchange and routing key as in `Publish.route`
    properties: bytes  # property flags and list
    body: bytes  # as much of its body as was asked for


class Page(NamedTuple):
    """Messages in the order of their ids, and whether there may be more behind them."""

    messages: list[WaitingMessage]
    more: bool


def page_of(host: QueueHost, entries: Entries, after: int, limit: int, body_bytes: int) -> Page:
    """Return what a replica holds behind message `after`, within the bounds of a page.

    It ends early before an entry that is missing.
    """
    limit = max(1, min(limit, BROWSED_MESSAGES_MAX))
    waiting = host.machine.available_from(after, limit)
    messages: list[WaitingMessage] = []
    byte_count = read = 0
    index = -1
    entry: bytes | None = None
    for acquired in waiting:
        if int(acquired.entry_index) != index:
            if read >= BROWSED_READ_BYTES_MAX:
                return Page(messages, True)
            index = int(acquired.entry_index)
            entry = entries.get(index)
            read += entries.byte_count(index) if entry is None else len(entry)
        if entry is None:  # what else is missing is to be found out
            continue
        message = _cut(acquired, entry, body_bytes)
        byte_count += len(message.properties) + len(message.body)
        if messages and byte_count > BROWSED_BYTES_MAX:
            return Page(messages, True)
        messages.append(message)
    return Page(messages, len(waiting) == limit or len(messages) < len(waiting))


def _cut(acquired: Acquired, entry: bytes, body_bytes: int) -> WaitingMessage:
    position = acquired.position
    return WaitingMessage(
        int(acquired.message_id),
        int(acquired.arrived_ms),
        int(acquired.priority),
        int(acquired.byte_count),
        int(acquired.acquired_count),
        int(acquired.delivery_count),
        message_route(entry, ENQUEUE_BATCH_OFFSET, position),
        message_properties(entry, ENQUEUE_BATCH_OFFSET, position),
        message_body(entry, ENQUEUE_BATCH_OFFSET, position)[:body_bytes],
    )


class Browse(LeaderQuestion[Page], frozen=True, tag="browse"):
    """Which messages wait in the queue? See `page_of`."""

    pool: ClassVar[str] = READS
    after: int
    limit: int
    body_bytes: int


class BrowsingClient:
    """Asks leaders, here or on other nodes."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders
        leaders.serve_reading(
            Browse,
            lambda host, entries, asked: page_of(
                host, entries, asked.after, asked.limit, asked.body_bytes
            ),
        )

    async def ask(self, queue: Queue, after: int, limit: int, body_bytes: int) -> Page:
        """Return up to `limit` messages with ids above `after`, bodies cut to `body_bytes`.

        Raises LeaderUnavailableError: no answer; QueueGoneError: there never will be one.
        """
        return await self._leaders.ask(queue, Browse(queue.group, after, limit, body_bytes))
