"""Publishers and consumers, as gateways have them: sessions of a node with queues."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter

from headrace_broker.codecs.batch import message_body
from headrace_broker.flow.account import Account
from headrace_broker.gateways.grpc.messaging.stream_confirms import StreamConfirms
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import Cause
from headrace_broker.model.message import DeliveryRun, Publish
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.contract.attachment import Attachment
from headrace_broker.runtime.contract.port import (
    ACCEPT,
    MODIFY_FAILED,
    REJECT,
    RELEASE,
    PendingConfirm,
    QueueClient,
    QueueListener,
)
from headrace_broker.runtime.session.session import QueueSession
from headrace_simulation.cluster.history import BATCH_MAX, Attached, History

if TYPE_CHECKING:
    from headrace_broker.runtime.node.node import BrokerNode
    from headrace_simulation.cluster.process import Process

WINDOW: Final = 60  # publishes of a publisher that wait for confirms
NO_PROPERTIES: Final = b"\0\0"
RETRY_S: Final = 0.2
LARGE_BYTES: Final = (30_000, 70_000, 250_000)
DELAY_MS_MAX: Final = 6000  # of a delayed message


def delay_properties(delay_ms: int) -> bytes:
    """Return properties with the header that delays a message."""
    table = b"\x07x-delayI" + delay_ms.to_bytes(4)
    return b"\x20\0" + len(table).to_bytes(4) + table


@final
class Wanted:
    """Work that clients are to do now."""

    publishes = True
    consumes = True
    drains = False
    consume_s = 10.0  # for which a consumer lives at most
    publish_s = 10.0  # for which a publisher lives at most
    large = 0.0  # share of messages that go through the large lane between nodes


@final
class Site:
    """A place where clients are connected: a process with a node that has joined the cluster."""

    def __init__(
        self, process: Process, node: BrokerNode, history: History, wanted: Wanted, rng: Random
    ) -> None:
        self.wanted = wanted
        self.process = process
        self.node = node
        self.history = history
        self.rng = rng
        self.numbers = itertools.count(1)  # of its clients
        self.tasks: set[asyncio.Task[None]] = set()
        self._accounts: dict[QueueClient, Account] = {}  # of clients that are open

    def name(self, kind: str) -> str:
        """Return a name that no other client has."""
        return f"{self.prefix}{kind}{next(self.numbers)}"

    @property
    def prefix(self) -> str:
        """Begin of all these names."""
        return f"{self.process.name}b{self.node.raft.boot}"

    def open(self, queue: Queue, listener: QueueListener, name: str) -> QueueClient:
        """Open a session for a client of that name.

        Raises:
            AmqpError: the node has not joined yet.
        """
        cause = Cause(f"sim-{name}", "connection", name, self.process.name)
        account = self.node.ledger.open(cause)
        client = self.node.broker.open_queue(queue, listener, account)
        self._accounts[client] = account
        return client

    def close(self, client: QueueClient) -> None:
        """Close a client's session and account."""
        client.close()
        self.node.ledger.close(self._accounts.pop(client))


class _Publishes(QueueListener):
    """Takes confirms of one publisher, by what gRPC's streams keep them in."""

    def __init__(self, history: History, name: str) -> None:
        self.news = asyncio.Event()
        self.confirms = StreamConfirms(wanted=True)
        self.waiting: dict[int, bytes] = {}  # bodies by number
        self._name = name
        self._history = history

    def _answer(self) -> None:
        confirms = self.confirms
        confirms.emit(BytesWriter())
        for first, stop in zip(confirms.confirmed[::2], confirms.confirmed[1::2], strict=True):
            for body in self._answered(first, stop):
                self._history.confirmed(body)
        for first, stop in zip(confirms.refused[::2], confirms.refused[1::2], strict=True):
            for body in self._answered(first, stop):
                self._history.refused(body)
        confirms.confirmed, confirms.refused = [], []
        self.news.set()

    def _answered(self, first: int, stop: int) -> Iterator[bytes]:
        for number in range(first, stop):
            body = self.waiting.pop(number, None)
            if body is None:
                self._history.violated(f"publish {number} of {self._name} was answered twice")
            else:
                yield body

    def on_confirmed(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        """See `QueueListener`."""
        self.confirms.settle(pending_confirms)
        self._answer()

    def on_rejected(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        """See `QueueListener`."""
        self.confirms.refuse(pending_confirms)
        self._answer()

    def on_deferred(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        """See `QueueListener`."""
        self.confirms.defer(int(client.queue.group), pending_confirms)
        self._answer()

    def on_completed(
        self, client: QueueClient, pending_confirms: list[PendingConfirm], over: int
    ) -> None:
        """See `QueueListener`."""
        self.confirms.complete(int(client.queue.group), pending_confirms, over)
        self._answer()

    def on_writable(self, client: QueueClient) -> None:
        """Publishes are few: nothing waits for this."""


@final
class Publisher:
    """Publishes to one queue until its session is closed."""

    def __init__(self, site: Site, queue: Queue, pause_s: float) -> None:
        self._site = site
        self._queue = queue
        self._pause_s = pause_s
        self._name = site.name("p")
        self._number = 0
        self._listener = _Publishes(site.history, self._name)

    async def run(self, seconds: float) -> None:
        """Publish for a time, and wait for confirms."""
        site, rng = self._site, self._site.rng
        client = site.open(self._queue, self._listener, self._name)
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until and site.wanted.publishes:
            await asyncio.sleep(rng.uniform(0, 2 * self._pause_s))
            if len(self._listener.waiting) < WINDOW and self._queue.group in _groups(site):
                self._publish(client, rng.randint(1, BATCH_MAX))
        while self._listener.waiting:
            await self._listener.news.wait()
            self._listener.news.clear()
        site.close(client)

    def _publish(self, client: QueueClient, count: int) -> None:
        key = self._queue.name.encode()
        route = b"\0" + bytes((len(key),)) + key
        publishes: list[Publish] = []
        waiting = self._listener.waiting
        for _ in range(count):
            self._number += 1
            large = 0.5 if self._queue.name in self._site.history.watermarks else 0.05
            size = 2000 if self._site.rng.random() < large else self._site.rng.randint(0, 80)
            if self._site.wanted.large and self._site.rng.random() < self._site.wanted.large:
                size = self._site.rng.choice(LARGE_BYTES)
            body = f"{self._name}.{self._number} ".encode() + b"x" * size
            delay_ms = self._delay_ms()
            self._site.history.published(self._queue.name, body, delay_ms)
            properties = delay_properties(delay_ms) if delay_ms else NO_PROPERTIES
            waiting[self._number] = body
            publishes.append(Publish(1, route, False, False, properties, body))
        client.publish(publishes, self._listener.confirms.issue(count, 1))
        client.flush()

    def _delay_ms(self) -> int:
        delayed = self._queue.name in self._site.history.delayed
        return self._site.rng.randint(1, DELAY_MS_MAX) if delayed else 0


class _Deliveries(QueueListener):
    """Takes deliveries of one consumer."""

    def __init__(self, site: Site, queue: str, name: str) -> None:
        self.prefetch = 0
        # delivery number, body, and the number by which the queue knew the consumer then
        self.got: deque[tuple[int, bytes, int]] = deque()
        self.news = asyncio.Event()
        self.is_cancelled = False
        self.is_over = False
        self._site = site
        self._queue = queue
        self._name = name
        self._since_ns = site.process.world.now_ns

    def on_delivery(self, client: QueueClient, run: DeliveryRun) -> None:
        """See `QueueListener`."""
        for at, position in enumerate(run.positions):
            body = message_body(run.blob, run.base, position)
            marked = bool(run.redelivered[at])
            if self.is_over:
                continue
            self._site.history.delivered(self._queue, self._name, self._since_ns, body, marked)
            self.got.append((int(run.first) + at, body, _number_of(client)))
            client.consumed(run.consumer, len(body))
        known_by = _number_of(client)
        unsettled = sum(number == known_by for _, _, number in self.got)
        if unsettled > self.prefetch and not self.is_over:
            self._site.history.violated(
                f"{self._name} was given {unsettled} messages at once, more than {self.prefetch}"
            )
        self.news.set()

    def on_cancelled(self, client: QueueClient, consumer: int, reason: str) -> None:
        """See `QueueListener`."""
        del client, consumer, reason
        self.is_cancelled = True
        self.news.set()

    def on_timed_out(self, client: QueueClient, consumer: int) -> None:
        """See `QueueListener`."""
        self.on_cancelled(client, consumer, "")


@final
class Consumer:
    """Consumes from one queue for a time; then it dies, or closes its session in good order."""

    def __init__(self, site: Site, queue: Queue, *, drains: bool, rejects: float = 0.0) -> None:
        self._site = site
        self._queue = queue
        self._drains = drains  # accepts everything at once
        self._rejects = rejects
        self._name = site.name("c")
        self._listener = _Deliveries(site, queue.name, self._name)
        # each with the consumer's number at the queue, and what was done with it
        self._settled: list[tuple[int, bytes, int]] = []

    async def run(self, seconds: float) -> None:
        """Consume; AmqpError where the queue cannot be reached."""
        site, rng = self._site, self._site.rng
        client = site.open(self._queue, self._listener, self._name)
        try:
            prefetch = 100 if self._drains else rng.choice((1, 5, 20, 50))
            self._listener.prefetch = prefetch
            await client.attach(1, Attachment(self._name, prefetch))
            site.history.attached[self._name] = Attached(
                self._queue.name, site.process, site.history
            )
            until = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < until and not self._listener.is_cancelled:
                await self._turn(client)
                if not (site.wanted.drains if self._drains else site.wanted.consumes):
                    return
        finally:
            self._listener.is_over = True
            site.history.attached.pop(self._name, None)
            site.close(client)

    async def _turn(self, client: QueueClient) -> None:
        rng, listener = self._site.rng, self._listener
        if not listener.got:
            listener.news.clear()
            try:
                async with asyncio.timeout(1.0):
                    await listener.news.wait()
            except TimeoutError:
                return
        if not self._drains:
            await asyncio.sleep(rng.uniform(0, 0.05))
        count = 50 if self._drains else rng.randint(1, 10)
        while listener.got and count:
            count -= 1
            number, body, known_by = listener.got.popleft()
            operation = self._operation()
            client.settle(1, operation, number, number)
            if operation == ACCEPT:
                self._settled.append((known_by, body, operation))
                self._site.history.accepts(self._queue.name, body)
            elif operation == REJECT:
                self._site.history.rejected(self._queue.name, body)
            elif operation == MODIFY_FAILED:
                self._settled.append((known_by, body, operation))
        client.flush()
        if rng.random() < 0.2:
            settled, self._settled = self._settled, []
            await client.applied()
            current = _number_of(client)
            if not listener.is_cancelled:
                for known_by, body, operation in settled:
                    if known_by == current:
                        self._applied(body, operation)

    def _applied(self, body: bytes, operation: int) -> None:
        if operation == ACCEPT:
            self._site.history.accepted(self._queue.name, body)
        else:
            self._site.history.failed(self._queue.name, body)

    def _operation(self) -> int:
        if self._drains:
            return ACCEPT
        chance = self._site.rng.random()
        if chance < self._rejects:
            return MODIFY_FAILED if self._queue.name in self._site.history.tries else REJECT
        return RELEASE if chance < self._rejects + 0.1 else ACCEPT


def _number_of(client: QueueClient) -> int:
    """Return the number that the queue knows the consumer by.

    A queue gives up the consumers of a node that seems dead, and takes them back under another
    number. What was delivered under the earlier one has returned, and to settle it is void.
    """
    assert isinstance(client, QueueSession)
    found = client.consuming.subscriptions.get(1)
    return 0 if found is None else int(found.number)


def _groups(site: Site) -> set[int]:
    return {queue.group for queue in site.node.catalog.catalog.queues()}


async def publish_on(site: Site, queue: str, pause_s: float) -> None:
    """Publish to a queue while that is wanted, by one publisher after another."""
    while site.wanted.publishes:
        found = site.node.broker.queue("/", queue)
        if found is None:
            await asyncio.sleep(RETRY_S)
            continue
        try:
            live_s = site.wanted.publish_s
            await Publisher(site, found, pause_s).run(site.rng.uniform(live_s / 10, live_s))
        except AmqpError as error:
            site.process.note(f"publisher: {error.text}")
            await asyncio.sleep(RETRY_S)


async def consume_on(
    site: Site, queue: str, *, drains: bool, rejects: float = 0.0, rest_s: float = 0.0
) -> None:
    """Consume from a queue while that is wanted, by one consumer after another.

    Args:
        site: where.
        queue: its name.
        drains: accept all of it, at once.
        rejects: share of what is not accepted.
        rest_s: most time between two consumers, each of which then lives for a second.
    """
    while site.wanted.drains if drains else site.wanted.consumes:
        found = site.node.broker.queue("/", queue)
        if found is not None:
            consumer = Consumer(site, found, drains=drains, rejects=rejects)
            try:
                live_s = 1.0 if rest_s else site.wanted.consume_s
                await consumer.run(30 if drains else site.rng.uniform(0.5, live_s))
            except AmqpError as error:
                site.process.note(f"consumer: {error.text}")
        await asyncio.sleep(RETRY_S if drains or not rest_s else site.rng.uniform(0, rest_s))
