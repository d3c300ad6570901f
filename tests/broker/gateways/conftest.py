"""A broker in memory.

The broker answers at once and on the same call stack, which is harder on the gateway than the real
one; gates and switches hold it back where a test wants it slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.gateways.fake_queue import FakeClient, FakeQueue, Gate
from tests.broker.gateways.fake_topology import FakeTopology

from headrace_broker.catalog.event import (
    BindingRemoved,
    Event,
    ExchangeAdded,
    QueueAdded,
    QueueRemoved,
    VhostAdded,
)
from headrace_broker.catalog.permission import Permissions
from headrace_broker.catalog.permission_watch import PermissionWatches
from headrace_broker.catalog.store import CatalogStore
from headrace_broker.flow.account import Account, Ledger
from headrace_broker.flow.blocked import NOT_BLOCKED, Blocked, BlockedState
from headrace_broker.flow.effort import EffortTurns
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.intake import Intake
from headrace_broker.model.client_limits import ClientLimits
from headrace_broker.model.definition import QUEUE_CLASSIC, Binding, Exchange, Queue, User, Vhost
from headrace_broker.model.flow import LIMIT_DISK, REPUBLISH, Cause
from headrace_broker.model.reply_code import INTERNAL_ERROR, NOT_FOUND, AmqpError
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.clients.client_counts import ClientCounts
from headrace_broker.runtime.clients.replies import Replies
from headrace_broker.runtime.contract.port import ConnectionInfo, QueueClient, QueueListener
from headrace_broker.runtime.intake.client_flow import ClientFlow
from headrace_broker.runtime.intake.intake_turns import IntakeTurns
from headrace_broker.runtime.intake.loop_watch import LoopWatch
from headrace_broker.runtime.intake.quotas import Quotas
from headrace_broker.runtime.routing.router import Router
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.security.authenticator import Authenticator, Verdict, is_loopback

WINDOW_BYTES = 256 << 10


class FakeAuthenticator(Authenticator):
    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker

    async def check(self, name: str, password: str, host: str) -> Verdict:
        broker = self.broker
        await broker.gate
        right = name in broker.users and password == name and is_loopback(host)
        wait_s = broker.wait_s
        return Verdict(right and not wait_s, wait_s, broker.rules.session_epoch(name))

    def admits(self, name: str, host: str) -> bool:
        return name == "guest" and is_loopback(host)


class FakeBroker(Broker):
    def __init__(self) -> None:
        self.window_bytes = WINDOW_BYTES
        self.cpu_us = 0
        self.wait_s = 0.0  # log-ins are throttled for so many seconds
        self.node_name = "n1"
        self.cluster_name = "test"
        self.boot = 1
        self.limits = ClientLimits()
        self.rules = CatalogStore()
        self.permissions = Permissions(self.rules)
        self.rules.put_user(User("guest", b"", b""))
        self.standings = PermissionWatches(self.rules, self.call_soon, lambda: self.now_us)
        self.now_us = 0
        self.quotas = Quotas(lambda: self.now_us)
        self.flow = FlowLimits()
        self.ledger = Ledger(self.flow)
        self.soon: list[Callable[[], None]] = []  # what is to be called in the next turn
        self.bell = IntakeTurns(self.call_soon, lambda: self.now_us)
        self.intake = self.bell.intake = Intake(self.flow, self.bell)
        self.effort_turns = EffortTurns(self.call_soon, self._effort_us)
        self.loop_watch = LoopWatch()
        self.republish_account = self.ledger.open(Cause("n1/republish", REPUBLISH, "", "n1"))
        self.gate = Gate()
        self.hold_confirms = self.congested = False
        self.hold_loans = False
        self.old_members = False  # a node with a replica knows no change of prefetch
        self.blocked = BlockedState()
        self.clients: list[FakeClient] = []
        self.queues: dict[str, FakeQueue] = {}
        self.exchanges: dict[str, Exchange] = {}
        self.bindings: list[Binding] = []
        self.connections: dict[str, ConnectionInfo] = {}
        self.client_flow = ClientFlow(self.rules, self.ledger)
        self.client_counts = ClientCounts(self.rules, self.connections)
        self.behind: list[Callable[[], object]] = []  # changes elsewhere that did not arrive yet
        self.deletes_declared = False  # another client deletes each queue once it is declared
        self.caught_up = 0
        self.lost = False  # no quorum
        self.log: list[str] = []  # topology operations in the order in which they were applied
        self.router = Router()
        self.replies = Replies(Rpc(1, lambda node, data: False), lambda node, payload: False)
        self.topology = FakeTopology(self)
        self.authenticator = FakeAuthenticator(self)
        self.immediate = False
        self.not_immediate: set[str] = set()
        self.tags: tuple[str, ...] = ()
        self.users = {"guest"}  # whose passwords are their names
        self.next_group = 1
        self.router.on_events([VhostAdded(Vhost("/"))])
        for kind in ("direct", "fanout", "topic", "headers"):
            self.add_exchange(Exchange("/", f"amq.{kind}", kind))

    def _effort_us(self) -> int:
        """Processor time: there is much to do in each turn, so methods have all that they may."""
        self.cpu_us += 1_000_000
        return self.cpu_us

    def change(self, *events: Event) -> None:
        """Notify this node of changes of `rules`."""
        self.permissions.on_events(events)
        self.standings.on_events(events)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call in the next turn of the loop, or where there is none, of the test's peers."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.soon.append(callback)
        else:
            loop.call_soon(callback)

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

    def block(self, reason: str, limit: int = LIMIT_DISK, node: str = "n1") -> None:
        self.blocked.change(Blocked(reason, limit, 0, 0, node) if reason else NOT_BLOCKED)

    def repay(self) -> None:
        """All that was published anywhere is applied."""
        for client in self.clients:
            client.repay()

    def end_congestion(self) -> None:
        self.congested = False
        for client in self.clients:
            if not client.closed:
                client.listener.on_writable(client)

    def vhost_exists(self, vhost: str) -> bool:
        return vhost == "/"

    def allows_immediate(self, vhost: str, queues: tuple[Queue, ...]) -> bool:
        return self.immediate and all(queue.name not in self.not_immediate for queue in queues)

    def user_tags(self, user: str) -> tuple[str, ...]:
        return self.tags

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

    def clock_us(self) -> int:
        return self.now_us

    def queue_by_group(self, group: int) -> Queue | None:
        found = [fake.definition for fake in self.queues.values()]
        return next((queue for queue in found if queue.group == group), None)

    def open_queue(self, queue: Queue, listener: QueueListener, account: Account) -> QueueClient:
        client = FakeClient(self, self.queues[queue.name], listener, account)
        self.clients.append(client)
        return client

    async def queue_counts(self, queue: Queue) -> tuple[int, int]:
        fake = self.queues.get(queue.name)
        if fake is None:
            raise AmqpError(NOT_FOUND, f"no queue '{queue.name}' in vhost '/'")
        return len(fake.ready), len(fake.consumers)

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
