"""Three nodes with connections, accounts and queues, as flow control sees them; no sockets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.broker.runtime.rpc_links import Links

from headrace_broker.catalog.command import Bootstrap, DeclareQueue, PutUser, encode_request
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import Request
from headrace_broker.core.queue.state.fair_lanes import FairValue
from headrace_broker.flow.account import Account, Ledger
from headrace_broker.flow.activity import SECOND_US
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.definition import Node, Queue, User
from headrace_broker.model.flow import CONNECTION, Cause
from headrace_broker.runtime.clients.client_list import ClientList
from headrace_broker.runtime.contract.port import ConnectionInfo
from headrace_broker.runtime.explain.flow_facts import FlowFacts
from headrace_broker.runtime.explain.flow_report import FlowReport
from headrace_broker.runtime.hosting.queue_rates import QueueRates

NAMES = {1: "n1", 2: "n2", 3: "n3"}
NOW = 1_000 * SECOND_US


class FakeConsumer:
    attached = True

    def __init__(self, busy: bool) -> None:
        self.prefetch, self.unsettled_count = 5, 5 if busy else 4


class FakeMachine:
    def __init__(self) -> None:
        self.ready_count = self.ready_bytes = 0
        self.unsettled_count = self.unsettled_bytes = 0
        self.consumer_count = self.busy = 0
        self.saturated = False
        self.deferred_count = self.held_count = self.held_bytes = 0
        self.settings = self
        self.high_watermark = self.low_watermark = 0
        self.high_watermark_bytes = self.low_watermark_bytes = 0

    def fairness(self, limit: int) -> list[FairValue]:
        found = FairValue(b"Sred", shared=False)
        found.waiting, found.byte_count = 3, 30
        return [found][:limit]

    def consumers(self) -> list[FakeConsumer]:
        return [FakeConsumer(number < self.busy) for number in range(self.consumer_count)]


class FakeMoves:
    def __init__(self) -> None:
        self.now = (0, 0, 0)

    def counts(self) -> tuple[int, int, int]:
        return self.now


class FakeHost:
    """A replica that leads."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.machine = FakeMachine()
        self.moves = FakeMoves()
        self.serving = True
        self.behind = False
        telling = SimpleNamespace(is_behind=lambda _now_us: self.behind)
        self.lead = SimpleNamespace(telling=telling)


class FlowNode:
    def __init__(self, world: World, number: int) -> None:
        self.name = NAMES[number]
        self.connections: dict[str, ConnectionInfo] = {}
        self.ledger = Ledger(FlowLimits())
        self.hosts: dict[int, Any] = {}
        clock = world.clock_us
        recent: Any = SimpleNamespace(reader=lambda: self.hosts.keys)
        self.rates = QueueRates(self.hosts, recent, self.ledger, clock)
        peers = {peer: name for peer, name in NAMES.items() if peer != number}

        rpc = world.links.rpcs[number]
        self.clients = ClientList(self.name, lambda: self.connections, peers, rpc)
        view = world.catalog
        self.facts = FlowFacts(
            self.name, lambda: self.connections, self.ledger, self.hosts, view, self.rates, clock
        )
        self.report = FlowReport(self.facts, view, peers, rpc)


class World:
    """Three nodes; a payload arrives within the call that sends it."""

    def __init__(self, catalog: Catalog | None = None) -> None:
        self.now = NOW
        self.links = Links(NAMES)
        self.catalog = catalog if catalog is not None else Catalog()
        if catalog is None:
            nodes = tuple(Node(number, name, "h:1") for number, name in NAMES.items())
            self.do(Bootstrap(nodes, "/", User("guest", b"", b""), grant=True))
            self.do(PutUser(User("app", b"", b"")))
        self.nodes = {number: FlowNode(self, number) for number in NAMES}

    def do(self, command: Any) -> None:
        index = self.catalog.applied_index + 1
        self.catalog.apply(index, encode_request(Request(1, 1, index), command))

    def clock_us(self) -> int:
        return self.now

    def connect(self, node: int, number: int, user: str = "app") -> ConnectionInfo:
        name = f"10.0.0.{number}:4711 -> 10.0.1.{node}:5672"
        info = ConnectionInfo(f"n{node}/1/{number}", name, f"10.0.0.{number}", 1700)
        info.user, info.vhost = user, "/"
        cause = Cause(info.id, CONNECTION, info.name, NAMES[node])
        cause.user, cause.vhost = user, "/"
        info.account = self.nodes[node].ledger.open(cause)
        self.nodes[node].connections[info.id] = info
        return info

    def lead(self, node: int, name: str) -> FakeHost:
        self.do(DeclareQueue("/", name, "quorum", preferred_node=node, replicas=1))
        queue = self.catalog.queue("/", name)
        assert queue is not None
        host = FakeHost(queue)
        self.nodes[node].hosts[queue.group] = host
        return host

    def pass_time(self, seconds: float) -> None:
        self.now += int(seconds * SECOND_US)
        for node in self.nodes.values():
            node.rates.sample()


def account_of(info: ConnectionInfo) -> Account:
    assert info.account is not None
    return info.account


def bring(
    info: ConnectionInfo, host: FakeHost, messages: int, byte_count: int, kept: int = 0
) -> None:
    """Publish, and have all but some of it applied."""
    balance = account_of(info).balance(host.queue.group)
    balance.borrow(messages, byte_count)
    balance.repay(messages - kept, byte_count - byte_count * kept // messages)
