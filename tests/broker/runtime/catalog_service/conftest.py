"""Three catalog services that share one log without Raft.

The test says who leads, what is committed and which links are up. Time is simulated, so waits of
seconds take none.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import encode_request
from headrace_broker.catalog.request import Request
from headrace_broker.catalog.version import CATALOG_VERSION
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.model.definition import Node, User
from headrace_broker.runtime.cluster import default_user
from headrace_broker.runtime.cluster.catalog_service import CatalogService, CatalogTiming
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry
from headrace_raftlog.model.errors import ReadTimeoutError
from headrace_raftlog.model.group import BUSY, NOT_LEADER, QUEUED
from headrace_raftlog.model.membership import Membership

NODES = [Node(number, f"n{number}", f"h:{number}") for number in (1, 2, 3)]
GUEST = User("guest", b"salt", b"hash", loopback_only=True)
DECLARE = commands.DeclareQueue("/", "q", "quorum", replicas=3)


class SimulatedTime(selectors.SelectSelector):
    """Instead of waiting for the next timer, it is that time already."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("nothing is left to happen, and somebody waits")
        self.now += max(timeout, 0.0)
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.selector = SimulatedTime()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.now


class Raft:
    """One node's view of the shared log."""

    def __init__(self, cluster: Cluster, node: int) -> None:
        self.boot = 1
        self.cluster = cluster
        self.node = node
        self.created: tuple[Any, ...] = ()
        self.wanted: tuple[int, tuple[int, ...], tuple[int, ...]] = (0, (), ())
        self.membership = Membership((1, 2, 3))
        self.applied = 0

    def create_group(
        self,
        group: int,
        voters: tuple[int, ...],
        learners: tuple[int, ...],
        handler: Any,
        campaign: bool = False,
    ) -> None:
        self.created = (group, voters, learners, campaign)

    def members(self, group: int) -> Membership:
        return self.membership

    def set_members(self, group: int, nodes: tuple[int, ...], voting: tuple[int, ...]) -> None:
        self.wanted = (group, nodes, voting)

    async def raise_boot(self, boot: int) -> None:
        self.boot = boot

    async def read_barrier(self, group: int, seconds: float) -> None:
        """Wait for a reachable leader, and its current commits."""
        for _ in range(int(seconds * 10)):
            in_touch = self.cluster.leader and self.node not in self.cluster.deaf
            if in_touch and self.applied == self.cluster.committed:
                return
            await asyncio.sleep(0.1)
        raise ReadTimeoutError(group, seconds)

    def propose(self, group: int, data: bytes) -> int:
        if self.cluster.leader != self.node:
            return NOT_LEADER
        if self.cluster.busy:
            return BUSY
        self.cluster.log.append(data)
        self.cluster.soon(self.cluster.commit)
        return QUEUED if self.cluster.queued else len(self.cluster.log)

    def leader(self, group: int) -> int:
        return self.cluster.known_leader(self.node)

    def serving(self, group: int) -> bool:
        return self.cluster.leader == self.node


class Cluster:
    """The log, the links and the services."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.log: list[bytes] = []
        self.begun = 0  # entries before a scenario
        self.committed = 0
        self.leader = 0
        self.term = 0
        self.busy = False
        self.queued = False
        self.holding = False
        self.deaf: set[int] = set()
        self.sent: list[tuple[int, int]] = []
        self.rafts = {node.id: Raft(self, node.id) for node in NODES}
        self.services = {node.id: self.service(node.id) for node in NODES}

    def service(self, node: int, seconds: float = 10.0) -> CatalogService:
        def send(peer: int, payload: bytes) -> bool:
            self.sent.append((node, peer))
            if {node, peer} & self.deaf:
                return False
            self.soon(lambda: self.services[peer].handle_forward(node, payload))
            return True

        timing = CatalogTiming(answer_seconds=seconds)
        return CatalogService(self.rafts[node], node, NODES, send, timing)

    async def claim_boots(self) -> None:
        """Make every node own its boot, and reset what scenarios look at."""
        self.elect(1)
        for service in self.services.values():
            await service.barrier()
        self.elect(0)
        self.term = 0
        self.sent.clear()
        self.begun = len(self.log)

    def soon(self, call: Callable[[], None]) -> None:
        self.loop.call_soon(call)

    def known_leader(self, node: int) -> int:
        return 0 if node in self.deaf and node != self.leader else self.leader

    def elect(self, node: int, lose_uncommitted: bool = False) -> None:
        """Make a node lead; 0 for none."""
        self.leader = node
        if lose_uncommitted:
            del self.log[self.committed :]
        self.term += 1
        for each, service in self.services.items():
            service.leadership(self.known_leader(each), self.term, each == node)

    def commit(self) -> None:
        if not self.holding:
            self.committed = len(self.log)
            self.deliver()

    def deliver(self) -> None:
        for node, raft in self.rafts.items():
            if node not in self.deaf:
                entries = [
                    Entry(index + 1, 1, ENTRY_NORMAL, self.log[index])
                    for index in range(raft.applied, self.committed)
                ]
                raft.applied = self.committed
                self.services[node].apply(entries)

    def install(self, node: int) -> None:
        """Give a node the state of another instead of the entries that it lacks."""
        state, _ = self.services[2 if node == 1 else 1].snapshot()
        self.services[node].restore(state)
        self.rafts[node].applied = self.committed

    def announce(self, *nodes: int) -> None:
        """Write down that nodes, by default all, run this release."""
        for node in nodes or self.rafts:
            told = commands.AnnounceNode(node, MACHINE_VERSION, catalog_version=CATALOG_VERSION)
            self.log.append(encode_request(Request(1022, 1, node), told))
        self.commit()

    async def settle(self) -> None:
        """Let everything happen that needs no time to pass."""
        for _ in range(20):
            await asyncio.sleep(0)

    def digests(self) -> set[str]:
        return {service.catalog.digest() for service in self.services.values()}


Scenario = Callable[[Cluster], Awaitable[None]]
Run = Callable[[Scenario], None]


@pytest.fixture
def run() -> Run:
    """Run a scenario on simulated time, in a cluster that has its first contents."""

    def play(scenario: Scenario) -> None:
        async def main() -> None:
            cluster = Cluster(asyncio.get_running_loop())
            first = commands.Bootstrap(tuple(NODES), "/", GUEST)
            cluster.log.append(encode_request(Request(1023, 1, 1), first))
            cluster.commit()
            await cluster.claim_boots()
            try:
                await scenario(cluster)
            finally:
                for service in cluster.services.values():
                    await service.stop()

        with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
            runner.run(main())

    return play


@pytest.fixture
def make_cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Cluster]:
    """Return a maker of clusters with an empty catalog, for a loop on real time."""
    monkeypatch.setattr(default_user, "new_user", cheap_user)
    return lambda: Cluster(asyncio.get_running_loop())


def cheap_user(name: str, password: str, tags: tuple[str, ...], loopback_only: bool) -> User:
    return User(name, b"salt", password.encode(), tags, loopback_only)
