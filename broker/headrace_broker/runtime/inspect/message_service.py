"""Single messages of a queue, for people: browse, fetch, remove, move."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple, final

from typing_extensions import override

from headrace_broker.catalog.permission import WRITE
from headrace_broker.codecs.batch import (
    message_body,
    message_body_bytes,
    message_properties,
    message_route,
)
from headrace_broker.core.routing.distribution import DistributionError, distribution_keys
from headrace_broker.flow.account import Account
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import REPUBLISH, Cause
from headrace_broker.model.limits import (
    FETCHED_BYTES_MAX,
    MESSAGE_BYTES_WHOLE,
    MOVED_BYTES_MAX,
    REQUEST_SECONDS_MAX,
)
from headrace_broker.model.message import DeliveryRun, Publish
from headrace_broker.model.reply_code import (
    ACCESS_REFUSED,
    INTERNAL_ERROR,
    NOT_FOUND,
    PRECONDITION_FAILED,
    AmqpError,
)
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.contract.port import (
    ACCEPT,
    GET_CONSUMER,
    RELEASE,
    PendingConfirm,
    QueueClient,
    QueueListener,
)
from headrace_broker.runtime.inspect.browsing import BrowsingClient, Page
from headrace_broker.runtime.lease.group_commands import amqp_errors

_ANY_CHANNEL: Final = 1


class FetchedMessage(NamedTuple):
    """A message that was fetched."""

    redelivered: bool  # whether it was delivered before
    ready_left: int  # how many messages waited behind it
    route: bytes  # exchange and routing key as in `Publish.route`
    properties: bytes  # property flags and list
    body: bytes  # all of it


@final
class Moved:
    """Result of moving messages."""

    def __init__(self) -> None:
        self.moved: list[int] = []  # ids of those that are at their target only
        self.missing: list[int] = []  # ids of which none waited
        self.unrouted: list[int] = []  # ids of those that no queue takes; they wait where they were
        # ids of those that a queue refused or did not confirm, or that were not taken for that or
        # for an alarm; they wait where they were, and in other queues perhaps
        self.refused: list[int] = []


@final
class Confirms(QueueListener):
    """Waits for queues to confirm messages, each with a pending confirm of its own."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[bool]] = {}  # by the number of a pending confirm

    def pending_confirm(self, queues: int) -> tuple[PendingConfirm, asyncio.Future[bool]]:
        """Return a pending confirm for so many queues, and whether all of them took the message."""
        number = len(self._waiting) + 1
        pending_confirm = PendingConfirm(number, number)
        pending_confirm.pending = queues
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        return pending_confirm, future

    @override
    def on_confirmed(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        for pending_confirm in pending_confirms:
            pending_confirm.pending -= 1
            future = self._waiting[int(pending_confirm.first)]
            if pending_confirm.pending == 0 and not future.done():
                future.set_result(pending_confirm.refused is None)

    @override
    def on_rejected(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        self.on_confirmed(client, pending_confirms)

    @override
    def on_timed_out(self, client: QueueClient, consumer: int) -> None:
        """Ignore it: what was taken and not settled in time waits in its queue again."""

    @override
    def on_writable(self, client: QueueClient) -> None:
        """Ignore it: the batch size bounds the messages under way."""


@final
class MessageService:
    """Does it over sessions of this node, wherever the queue is led."""

    def __init__(self, broker: Broker, browsing: BrowsingClient) -> None:
        self._broker = broker  # opens sessions
        self._browsing = browsing  # looks without taking
        self._moves = 0

    async def browse(self, queue: Queue, after: int, limit: int, body_bytes: int) -> Page:
        """Return messages with ids above `after`, not taken; AmqpError without queue or leader."""
        with amqp_errors():
            return await self._browsing.ask(queue, after, limit, body_bytes)

    async def fetch(self, queue: Queue, count: int, operation: int) -> list[FetchedMessage]:
        """Take up to `count` of the first messages, as basic.get, and settle them by an operation.

        Fewer come when they are large. AmqpError without queue or answer: what was taken goes back.
        """
        client = self._broker.open_queue(queue, Confirms(), self._broker.republish_account)
        try:
            return await _fetch(client, count, operation)
        finally:
            client.close()

    async def remove(self, queue: Queue, message_ids: list[int]) -> int:
        """Remove waiting messages by id; return how many. AmqpError without queue or leader."""
        client = self._broker.open_queue(queue, Confirms(), self._broker.republish_account)
        try:
            return await client.remove(message_ids)
        finally:
            client.close()

    async def move(
        self, queue: Queue, message_ids: list[int], route: bytes, user: str = ""
    ) -> Moved:
        """Move waiting messages to where a route leads.

        Each is taken, published with its properties and body as they are, and settled once every
        queue has confirmed it. When this node or the queue's leader fails in between, a message
        may be in both places; it is never in none.

        Args:
            queue: where from.
            message_ids: which ones; they are published in this order.
            route: exchange and routing key as in `Publish.route`.
            user: who asked for it.

        Returns:
            What became of each. When an alarm comes meanwhile, or a queue does not confirm, those
            that were not taken by then are `refused`.

        Raises AmqpError: NOT_FOUND the queue or the exchange is not there, ACCESS_REFUSED the
        exchange is internal, INTERNAL_ERROR the queue does not answer, or publishers are blocked.
        """
        await self._check_route(queue.vhost, route)
        reason = self._broker.blocked.now.reason
        if reason:
            raise AmqpError(INTERNAL_ERROR, f"publishers are blocked: {reason}")
        account = self._broker.ledger.open(self._cause(queue, user))
        move = _Move(self._broker, queue, route, account)
        try:
            while message_ids and not account.in_debt and not self._broker.blocked.now.reason:
                message_ids = await move.some(message_ids)
            move.outcome.refused += message_ids
            await move.source.applied()
        finally:
            move.close()
            self._broker.ledger.close(account)
        return move.outcome

    def _cause(self, queue: Queue, user: str) -> Cause:
        """Return the account of a move; each has its own, because it has a user."""
        self._moves += 1
        node = self._broker.node_name
        account = f"{node}/{REPUBLISH}/{self._broker.boot}.{self._moves}"
        cause = Cause(account, REPUBLISH, f"move out of queue '{queue.name}'", node)
        cause.user, cause.vhost = user, queue.vhost
        return cause

    async def _check_route(self, vhost: str, route: bytes) -> None:
        if not self._broker.router.route(vhost, route).known:
            await self._broker.catch_up()
        target = self._broker.router.route(vhost, route)
        if not target.known:
            raise AmqpError(NOT_FOUND, f"no exchange '{target.exchange}' in vhost '{vhost}'")
        if target.internal:
            text = f"cannot publish to internal exchange '{target.exchange}' in vhost '{vhost}'"
            raise AmqpError(ACCESS_REFUSED, text)


@final
class _Move:
    """Messages on their way from one queue to others."""

    def __init__(self, broker: Broker, queue: Queue, route: bytes, account: Account) -> None:
        self.outcome = Moved()
        self.source = broker.open_queue(queue, Confirms(), account)
        self._account = account
        self._broker = broker
        self._queue = queue
        self._route = route
        self._confirms = Confirms()
        self._targets: dict[int, QueueClient] = {}

    async def some(self, message_ids: list[int]) -> list[int]:
        """Move the first of these messages; return the others."""
        under_way: list[tuple[int, int, list[Queue], asyncio.Future[bool]]] = []
        byte_count = done = 0
        for message_id in message_ids:
            if byte_count >= MOVED_BYTES_MAX:
                break
            done += 1
            got = await self.source.get(message_id)
            if got is None:
                self.outcome.missing.append(message_id)
                continue
            publish = self._publish_of(got[0])
            byte_count += len(publish.body)
            queues = self._queues_of(publish)
            if not queues:
                self.outcome.unrouted.append(message_id)
                self.source.settle(GET_CONSUMER, RELEASE, got[0].first, got[0].first)
                continue
            under_way.append((message_id, got[0].first, queues, self._send(publish, queues)))
        await self._finish(under_way)
        return message_ids[done:]

    def close(self) -> None:
        """End all sessions; unsettled messages return to their queues."""
        self.source.close()
        for client in self._targets.values():
            client.close()

    def _publish_of(self, run: DeliveryRun) -> Publish:
        position = run.positions[0]
        properties = message_properties(run.blob, run.base, position)
        body = message_body(run.blob, run.base, position)
        return Publish(_ANY_CHANNEL, self._route, False, False, properties, body)

    def _queues_of(self, publish: Publish) -> list[Queue]:
        route = self._broker.router.route(self._queue.vhost, publish.route)
        if route.needs_message:
            if not self._may_copy(route.exchange, publish.properties):
                return []
            route = self._broker.router.route_stored(
                self._queue.vhost, publish.route, publish.properties
            )
        return list(route.queues)

    def _may_copy(self, exchange: str, properties: bytes) -> bool:
        """Return whether who moves a message may use the routing keys that it brings along."""
        user, vhost = self._account.cause.user, self._queue.vhost
        permissions = self._broker.permissions
        if not permissions.narrows(user, vhost, exchange):
            return True
        try:
            keys = distribution_keys(properties)
        except DistributionError:
            return True  # they count as absent
        return all(permissions.may_route(user, vhost, WRITE, exchange, key) for key in keys)

    def _send(self, publish: Publish, queues: list[Queue]) -> asyncio.Future[bool]:
        pending_confirm, future = self._confirms.pending_confirm(len(queues))
        for queue in queues:
            client = self._targets.get(queue.group)
            if client is None:
                client = self._broker.open_queue(queue, self._confirms, self._account)
                self._targets[queue.group] = client
            client.publish([publish], pending_confirm)
        return future

    async def _finish(
        self, under_way: list[tuple[int, int, list[Queue], asyncio.Future[bool]]]
    ) -> None:
        """Wait for confirms and settle; messages that some target refused return."""
        for client in self._targets.values():
            client.flush()
        if under_way:
            await asyncio.wait([each[3] for each in under_way], timeout=REQUEST_SECONDS_MAX)
        for message_id, delivery, queues, future in under_way:
            taken = future.done() and future.result() and self._exists(queues)
            into = self.outcome.moved if taken else self.outcome.refused
            into.append(message_id)
            operation = ACCEPT if taken else RELEASE
            self.source.settle(GET_CONSUMER, operation, delivery, delivery)
        self.source.flush()

    def _exists(self, queues: list[Queue]) -> bool:
        """Return whether a queue of these is left: one that is deleted counts as confirming."""
        for queue in queues:
            found = self._broker.queue(queue.vhost, queue.name)
            if found is not None and found.group == queue.group:
                return True
        return False


async def _fetch(client: QueueClient, count: int, operation: int) -> list[FetchedMessage]:
    """Take waiting messages up to enough bytes; PRECONDITION_FAILED for a first one too large."""
    fetched: list[FetchedMessage] = []
    byte_count = last = large = 0
    settling = RELEASE
    try:
        while len(fetched) < count and byte_count < FETCHED_BYTES_MAX:
            got = await client.get()
            if got is None:
                break
            run, left = got
            size = int(message_body_bytes(run.blob, run.base, run.positions[0]))
            if size > MESSAGE_BYTES_WHOLE:
                large = run.first
                break
            last = run.first
            fetched.append(_fetched(run, left))
            byte_count += len(fetched[-1].body)
        settling = operation
    finally:  # not before all are here: what is released would come again
        if last:
            client.settle(GET_CONSUMER, settling, 1, last)
        if large:
            client.settle(GET_CONSUMER, RELEASE, large, large)
        client.flush()
    await client.applied()
    if large and not fetched:
        text = f"the next message has a body of {size} bytes, over HTTP at most"
        raise AmqpError(PRECONDITION_FAILED, f"{text} {MESSAGE_BYTES_WHOLE}: consume it over AMQP")
    return fetched


def _fetched(run: DeliveryRun, ready_left: int) -> FetchedMessage:
    position = run.positions[0]
    return FetchedMessage(
        run.redelivered[0] != 0,
        ready_left,
        message_route(run.blob, run.base, position),
        message_properties(run.blob, run.base, position),
        message_body(run.blob, run.base, position),
    )
