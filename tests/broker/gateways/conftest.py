"""A broker in memory.

The broker answers at once and on the same call stack, which is harder on the gateway than the real
one; gates and switches hold it back where a test wants it slow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import pytest

from headrace_broker.catalog.event import (
    BindingAdded,
    BindingRemoved,
    ExchangeAdded,
    ExchangeRemoved,
    QueueAdded,
    QueueRemoved,
    VhostAdded,
)
from headrace_broker.catalog.permission import Permissions
from headrace_broker.catalog.store import CatalogStore
from headrace_broker.codecs.batch import body_bytes, encode_batch
from headrace_broker.model.client_limits import ClientLimits
from headrace_broker.model.definition import QUEUE_CLASSIC, Binding, Exchange, Queue, Vhost
from headrace_broker.model.message import DeliveryRun, Publish
from headrace_broker.model.reply_code import (
    ACCESS_REFUSED,
    INTERNAL_ERROR,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    AmqpError,
)
from headrace_broker.runtime.port import (
    GET_CONSUMER,
    RELEASE,
    Attachment,
    Broker,
    ConnectionInfo,
    QueueClient,
    QueueListener,
    Ticket,
)
from headrace_broker.runtime.router import Route, Router

WINDOW_BYTES = 256 << 10


class Gate:
    """Something to await that a test opens; works on a loop and without one."""

    def __init__(self) -> None:
        self.opened = True

    def __await__(self) -> Generator[None, None, None]:
        while not self.opened:
            yield


class Message:
    def __init__(self, number: int, blob: bytes, position: int) -> None:
        self.number = number
        self.blob = blob
        self.position = position
        self.redelivered = False


class FakeConsumer:
    def __init__(self, client: FakeClient, number: int, credit: int, exclusive: bool) -> None:
        self.client = client
        self.number = number
        self.credit = credit
        self.exclusive = exclusive
        self.window = client.broker.window_bytes
        self.next_delivery = 1


class FakeQueue:
    """Ready messages in order, and who holds the others."""

    def __init__(self, definition: Queue) -> None:
        self.definition = definition
        self.ready: deque[Message] = deque()
        self.consumers: list[FakeConsumer] = []
        self.settled: list[tuple[int, int]] = []  # operation, message number
        self.purged: list[int] = []
        self.gone = False
        self.next_message = 1

    def enqueue(self, publishes: list[Publish]) -> None:
        blob = encode_batch(publishes)
        for position in range(len(publishes)):
            self.ready.append(Message(self.next_message, blob, position))
            self.next_message += 1

    def requeue(self, message: Message) -> None:
        message.redelivered = True
        self.ready.append(message)
        self.ready = deque(sorted(self.ready, key=lambda each: each.number))

    def dispatch(self) -> None:
        for consumer in list(self.consumers):
            while self.ready and consumer.credit > 0 and consumer.window > 0:
                consumer.client.deliver(self.take_run(consumer))

    def take_run(self, consumer: FakeConsumer) -> DeliveryRun:
        """As many messages of one batch as the consumer may have."""
        first = self.ready.popleft()
        taken = [first]
        octets = body_bytes(first.blob, 0, [first.position])
        while (
            self.ready
            and len(taken) < consumer.credit
            and octets < consumer.window
            and self.ready[0].blob is first.blob
        ):
            taken.append(self.ready.popleft())
            octets += body_bytes(first.blob, 0, [taken[-1].position])
        for at, message in enumerate(taken):
            held = consumer.client.unsettled
            held[(consumer.number, consumer.next_delivery + at)] = message
        run = DeliveryRun(
            consumer.number,
            consumer.next_delivery,
            first.blob,
            0,
            [message.position for message in taken],
            bytes(message.redelivered for message in taken),
        )
        consumer.next_delivery += len(taken)
        consumer.credit -= len(taken)
        consumer.window -= octets
        return run


class FakeClient(QueueClient):
    def __init__(self, broker: FakeBroker, fake: FakeQueue, listener: QueueListener) -> None:
        self.queue = fake.definition
        self.fake = fake
        self.broker = broker
        self.listener = listener
        self.unsettled: dict[tuple[int, int], Message] = {}
        self.consumers: dict[int, FakeConsumer] = {}
        self.getter = FakeConsumer(self, GET_CONSUMER, 1 << 30, False)
        self.closed = False
        self.published: list[tuple[list[Publish], Ticket | None]] = []
        self.settles: list[tuple[int, int, int, int]] = []
        self.settle_calls: list[tuple[int, int, int, int]] = []
        self.waiting: list[Ticket] = []
        self.attachments: list[Attachment] = []

    def publish(self, publishes: list[Publish], ticket: Ticket | None) -> bool:
        assert not self.closed
        self.published.append((list(publishes), ticket))
        return not self.broker.congested

    def settle(self, consumer: int, operation: int, first: int, last: int) -> None:
        assert not self.closed
        self.settles.append((consumer, operation, first, last))
        self.settle_calls.append(self.settles[-1])

    def flush(self) -> None:
        published, self.published = self.published, []
        for publishes, ticket in published:
            self.fake.enqueue(publishes)
            if ticket is not None:
                self.waiting.append(ticket)
        settles, self.settles = self.settles, []
        for consumer, operation, first, last in settles:
            self._settle(consumer, operation, first, last)
        if not self.broker.hold_confirms:
            self.confirm(len(self.waiting))
        self.fake.dispatch()

    def confirm(self, count: int, rejected: bool = False) -> None:
        """Answer the oldest tickets; `rejected`: the last publish of each is refused."""
        tickets, self.waiting = self.waiting[:count], self.waiting[count:]
        if tickets and rejected:
            for ticket in tickets:
                ticket.refuse(ticket.last, ticket.last)
            self.listener.on_rejected(self, tickets)
        elif tickets:
            self.listener.on_confirmed(self, tickets)

    def _settle(self, number: int, operation: int, first: int, last: int) -> None:
        for delivery in range(first, last + 1):
            message = self.unsettled.pop((number, delivery))
            self.fake.settled.append((operation, message.number))
            if operation == RELEASE:
                self.fake.requeue(message)
        if number in self.consumers:
            self.consumers[number].credit += last - first + 1

    def deliver(self, run: DeliveryRun) -> None:
        self.listener.on_delivery(self, run)

    def lose(self, consumer: FakeConsumer) -> None:
        """The queue is deleted: what the consumer holds is gone."""
        del self.consumers[consumer.number]
        for number, delivery in [each for each in self.unsettled if each[0] == consumer.number]:
            self.fake.purged.append(self.unsettled.pop((number, delivery)).number)

    async def attach(self, consumer: int, attachment: Attachment) -> None:
        await self.broker.gate
        exclusive = attachment.exclusive
        self.attachments.append(attachment)
        if self.fake.gone:
            raise AmqpError(NOT_FOUND, f"no queue '{self.queue.name}' in vhost '/'")
        others = self.fake.consumers
        if others and (exclusive or others[0].exclusive):
            raise AmqpError(ACCESS_REFUSED, f"queue '{self.queue.name}' in exclusive use")
        if self.closed:
            return
        found = FakeConsumer(self, consumer, attachment.prefetch, exclusive)
        self.consumers[consumer] = found
        others.append(found)
        self.fake.dispatch()

    async def cancel(self, consumer: int) -> None:
        await self.broker.gate
        found = self.consumers.pop(consumer, None)
        if found is not None:  # it was not lost meanwhile
            self.fake.consumers.remove(found)

    async def get(self) -> tuple[DeliveryRun, int] | None:
        await self.broker.gate
        if not self.fake.ready or self.closed:
            return None
        self.getter.credit = 1
        return self.fake.take_run(self.getter), len(self.fake.ready)

    async def purge(self) -> int:
        count = len(self.fake.ready)
        self.fake.purged += [message.number for message in self.fake.ready]
        self.fake.ready.clear()
        return count

    def consumed(self, consumer: int, octets: int) -> None:
        assert not self.closed
        found = self.getter if consumer == GET_CONSUMER else self.consumers.get(consumer)
        if found is not None:
            found.window += octets
        self.fake.dispatch()

    def close(self) -> None:
        assert not self.closed
        assert self.published == []  # flushed before
        assert self.settles == []
        self.closed = True
        for consumer in self.consumers.values():
            self.fake.consumers.remove(consumer)
        for message in self.unsettled.values():
            self.fake.requeue(message)
        self.unsettled.clear()
        self.fake.dispatch()


class FakeBroker(Broker):
    def __init__(self) -> None:
        self.window_bytes = WINDOW_BYTES
        self.node_name = "n1"
        self.cluster_name = "test"
        self.boot = 1
        self.limits = ClientLimits()
        self.rules = CatalogStore()
        self.permissions = Permissions(self.rules)
        self.gate = Gate()
        self.hold_confirms = self.congested = False
        self.blocked = ""
        self.watchers: list[Callable[[str], None]] = []
        self.clients: list[FakeClient] = []
        self.queues: dict[str, FakeQueue] = {}
        self.exchanges: dict[str, Exchange] = {}
        self.bindings: list[Binding] = []
        self.connections: dict[str, ConnectionInfo] = {}
        self.behind: list[Callable[[], object]] = []  # changes elsewhere that did not arrive yet
        self.caught_up = 0
        self.lost = False  # no quorum
        self.log: list[str] = []  # topology operations in the order in which they were applied
        self.router = Router()
        self.next_group = 1
        self.router.on_events([VhostAdded(Vhost("/"))])
        for kind in ("direct", "fanout", "topic", "headers"):
            self.add_exchange(Exchange("/", f"amq.{kind}", kind))

    def add_exchange(self, exchange: Exchange) -> None:
        self.exchanges[exchange.name] = exchange
        self.router.on_events([ExchangeAdded(exchange)])

    def add_queue(self, name: str, **more: Any) -> FakeQueue:
        definition = Queue("/", name, QUEUE_CLASSIC, self.next_group, (1,), **more)
        self.next_group += 1
        self.queues[name] = FakeQueue(definition)
        self.router.on_events([QueueAdded(definition)])
        return self.queues[name]

    def remove_queue(self, name: str) -> None:
        gone = self.queues.pop(name)
        gone.gone = True
        for binding in [each for each in self.bindings if each.destination == name]:
            self.bindings.remove(binding)
            self.router.on_events([BindingRemoved(binding)])
        self.router.on_events([QueueRemoved(gone.definition)])
        for consumer in gone.consumers:
            consumer.client.lose(consumer)
            consumer.client.listener.on_cancelled(consumer.client, consumer.number, "deleted")
        gone.consumers.clear()

    def block(self, reason: str) -> None:
        self.blocked = reason
        for watcher in list(self.watchers):
            watcher(reason)

    def end_congestion(self) -> None:
        self.congested = False
        for client in self.clients:
            if not client.closed:
                client.listener.on_writable(client)

    def blocked_reason(self) -> str:
        return self.blocked

    def watch_blocked(self, callback: Callable[[str], None]) -> None:
        self.watchers.append(callback)

    def unwatch_blocked(self, callback: Callable[[str], None]) -> None:
        if callback in self.watchers:
            self.watchers.remove(callback)

    async def authenticate(self, user: str, password: str, loopback: bool) -> bool:
        await self.gate
        return (user, password, loopback) == ("guest", "guest", True)

    def vhost_exists(self, vhost: str) -> bool:
        return vhost == "/"

    def route(self, vhost: str, raw_route: bytes) -> Route:
        return self.router.route(vhost, raw_route)

    def route_with_headers(self, vhost: str, raw_route: bytes, headers: dict[str, Any]) -> Route:
        return self.router.route_with_headers(vhost, raw_route, headers)

    def queue(self, vhost: str, name: str) -> Queue | None:
        found = self.queues.get(name)
        return found.definition if found is not None else None

    def exchange(self, vhost: str, name: str) -> Exchange | None:
        return self.exchanges.get(name)

    async def catch_up(self) -> None:
        await self.gate
        self.caught_up += 1
        if self.lost:
            raise AmqpError(INTERNAL_ERROR, "no quorum")
        behind, self.behind = self.behind, []
        for change in behind:
            change()

    def open_queue(self, queue: Queue, listener: QueueListener) -> QueueClient:
        client = FakeClient(self, self.queues[queue.name], listener)
        self.clients.append(client)
        return client

    async def declare_queue(
        self,
        vhost: str,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: dict[str, Any],
        owner: str,
    ) -> Queue:
        await self.gate
        self.log.append(f"declare {name}")
        found = self.queues.get(name)
        if found is None:
            found = self.add_queue(
                name,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=arguments,
                owner=owner if exclusive else "",
            )
        known = found.definition
        if known.exclusive and known.owner != owner:
            raise AmqpError(RESOURCE_LOCKED, f"cannot obtain exclusive access to queue '{name}'")
        if known.durable != durable:
            text = (
                f"inequivalent arg 'durable' for queue '{name}' in vhost '/': "
                f"received '{durable}' but current is '{known.durable}'"
            )
            raise AmqpError(PRECONDITION_FAILED, text)
        return known

    async def queue_counts(self, queue: Queue) -> tuple[int, int]:
        fake = self.queues.get(queue.name)
        if fake is None:
            raise AmqpError(NOT_FOUND, f"no queue '{queue.name}' in vhost '/'")
        return len(fake.ready), len(fake.consumers)

    async def delete_queue(self, queue: Queue, if_unused: bool, if_empty: bool) -> int:
        await self.gate
        fake = self.queues.get(queue.name)
        if fake is None:
            return 0
        if if_unused and fake.consumers:
            raise AmqpError(PRECONDITION_FAILED, f"queue '{queue.name}' in use")
        if if_empty and fake.ready:
            raise AmqpError(PRECONDITION_FAILED, f"queue '{queue.name}' not empty")
        self.remove_queue(queue.name)
        return len(fake.ready)

    async def declare_exchange(
        self,
        vhost: str,
        name: str,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, Any],
    ) -> None:
        await self.gate
        self.log.append(f"declare exchange {name}")
        known = self.exchanges.get(name)
        if known is None:
            self.add_exchange(
                Exchange(vhost, name, kind, durable, auto_delete, internal, arguments)
            )
        elif known.type != kind:
            raise AmqpError(PRECONDITION_FAILED, f"inequivalent arg 'type' for exchange '{name}'")

    async def delete_exchange(self, vhost: str, name: str, if_unused: bool) -> None:
        known = self.exchanges.pop(name, None)
        if known is not None:
            self.router.on_events([ExchangeRemoved(known)])

    async def bind(self, binding: Binding) -> None:
        await self.gate
        if binding.source not in self.exchanges:
            text = f"no exchange '{binding.source}' in vhost '{binding.vhost}'"
            raise AmqpError(NOT_FOUND, text)
        there = self.queues if binding.destination_type == "queue" else self.exchanges
        if binding.destination not in there:
            kind = binding.destination_type
            text = f"no {kind} '{binding.destination}' in vhost '{binding.vhost}'"
            raise AmqpError(NOT_FOUND, text)
        if binding not in self.bindings:
            self.bindings.append(binding)
            self.router.on_events([BindingAdded(binding)])

    async def unbind(self, binding: Binding) -> None:
        if binding in self.bindings:
            self.bindings.remove(binding)
            self.router.on_events([BindingRemoved(binding)])

    async def drop_owner(self, owner: str) -> None:
        await self.gate
        self.log.append(f"drop {owner}")
        for name, fake in list(self.queues.items()):
            if fake.definition.owner == owner:
                self.remove_queue(name)

    def connection_opened(self, info: ConnectionInfo) -> None:
        self.connections[info.id] = info

    def connection_closed(self, info: ConnectionInfo) -> None:
        del self.connections[info.id]


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture(scope="session")
def new_broker() -> type[FakeBroker]:
    return FakeBroker
