"""Nodes with their disks and network, groups on them, and clients."""

from __future__ import annotations

from headrace_simulation.simulator.byte_store import ByteStore
from headrace_simulation.simulator.catalog import Catalog, GroupRecord
from headrace_simulation.simulator.clients import Clients
from headrace_simulation.simulator.coverage import Coverage
from headrace_simulation.simulator.disk import Disk
from headrace_simulation.simulator.loop import Loop
from headrace_simulation.simulator.network import Network
from headrace_simulation.simulator.node import Node
from headrace_simulation.simulator.parameters import draw
from headrace_simulation.simulator.plan import Plan
from headrace_simulation.simulator.profiles import PROFILES
from headrace_simulation.simulator.replica import Replica
from headrace_simulation.simulator.store import Store


class World:
    """Nodes, network and clients of a run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = Loop(plan.seed, plan.tracing)
        profile = PROFILES[plan.profile] if plan.profile is not None else None
        self.parameters = draw(self.loop.rng, profile)
        self.coverage = Coverage()
        self.catalog = Catalog()
        self.network = Network(self.loop, self.parameters, self._deliver, self._session_lost)
        self.nodes = [self._new_node(number) for number in range(1, self.parameters.nodes + 1)]
        for node in self.nodes:
            node.network = self.network
            node.peers = [peer for peer in self.nodes if peer is not node]
        self.clients = Clients(self.loop, self.parameters, self.nodes, self.catalog)

    def replicas(self, record: GroupRecord) -> list[Replica]:
        """Return the running members of a group."""
        found = [node.replicas.get(record.group) for node in self.nodes]
        return [replica for replica in found if replica is not None]

    def _new_node(self, number: int) -> Node:
        store: Store
        if self.parameters.real_storage:
            store = ByteStore(self.loop, self.parameters, self.coverage)
        else:
            store = Disk(self.loop, self.parameters, self.coverage)
        return Node(
            number,
            self.loop,
            self.parameters,
            self.coverage,
            self.catalog,
            store,
            self.plan.core_type,
            self.plan.faults,
        )

    def _deliver(self, source: int, target: int, content: object) -> None:
        self.nodes[target - 1].receive(source, content)

    def _session_lost(self, one: int, other: int) -> None:
        self.nodes[one - 1].session_lost(other)
        self.nodes[other - 1].session_lost(one)
