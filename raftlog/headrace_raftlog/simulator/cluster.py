"""One simulated run: groups on nodes under faults, then proof that they recover."""

from __future__ import annotations

from typing import Final

from headrace_raftlog.model.errors import RaftLogError
from headrace_raftlog.model.membership import Membership, member_id
from headrace_raftlog.simulator.byte_store import ByteStore
from headrace_raftlog.simulator.catalog import Catalog, GroupRecord
from headrace_raftlog.simulator.clients import Clients
from headrace_raftlog.simulator.coverage import Coverage
from headrace_raftlog.simulator.disk import Disk
from headrace_raftlog.simulator.invariants import Checker, InvariantError
from headrace_raftlog.simulator.loop import Loop
from headrace_raftlog.simulator.nemesis import Nemesis
from headrace_raftlog.simulator.network import Network
from headrace_raftlog.simulator.node import Node
from headrace_raftlog.simulator.parameters import TICK, draw
from headrace_raftlog.simulator.plan import Outcome, Plan
from headrace_raftlog.simulator.profiles import PROFILES
from headrace_raftlog.simulator.recovery_phase import RecoveryPhase
from headrace_raftlog.simulator.replica import Replica
from headrace_raftlog.simulator.store import Store

FIRST_GROUP: Final = 7


class Simulation:
    """Nodes with their disks and network, groups on them, and clients."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = Loop(plan.seed, plan.tracing)
        profile = PROFILES[plan.profile] if plan.profile is not None else None
        self.parameters = draw(self.loop.rng, profile)
        self.rng = self.loop.rng
        self.coverage = Coverage()
        self.catalog = Catalog()
        self.network = Network(self.loop, self.parameters, self._deliver, self._session_lost)
        self.nodes = [self._new_node(number) for number in range(1, self.parameters.nodes + 1)]
        for node in self.nodes:
            node.network = self.network
            node.peers = [peer for peer in self.nodes if peer is not node]
        self.nemesis = Nemesis(
            self.loop,
            self.parameters,
            self.coverage,
            self.network,
            self.nodes,
            self.catalog,
            self._regroup,
        )
        self.clients = Clients(self.loop, self.parameters, self.nodes, self.catalog)
        self.groups = FIRST_GROUP
        for _ in range(self.parameters.groups):
            self._create_group()

    def run(self) -> Outcome:
        """Run to the end or to the first violation."""
        violation: str | None = None
        invariant = 0
        try:
            self._run_under_faults()
            self._run_healed()
            for record in self.catalog.records:
                record.checker.finish()
        except InvariantError as error:
            violation, invariant = str(error), error.invariant
        except (AssertionError, LookupError, ValueError, OSError, RaftLogError) as error:
            violation = f"{type(error).__name__} in the core: {error}"
        return Outcome(
            seed=self.plan.seed,
            violation=violation,
            invariant=invariant,
            events=self.loop.events,
            coverage=self.coverage.counts,
            trace=self.loop.lines,
        )

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

    def _create_group(self) -> GroupRecord:
        """Found a group on the first nodes, or on random ones later; tell them at once."""
        parameters = self.parameters
        numbers = [node.number for node in self.nodes]
        if self.catalog.records:
            self.rng.shuffle(numbers)
        desired = tuple(sorted(numbers[: parameters.voters]))
        rest = numbers[parameters.voters :]
        observers = tuple(sorted(rest[: parameters.learners]))
        founding = Membership(
            tuple(member_id(one, self.nodes[one - 1].generation) for one in desired),
            tuple(member_id(one, self.nodes[one - 1].generation) for one in observers),
        )
        stores = [node.store for node in self.nodes]
        checker = Checker(self.groups, founding, stores, self.plan.contract, self.coverage)
        checker.new_leader = self.nemesis.new_leader
        checker.new_change = self.nemesis.new_change
        self.groups += 1
        record = GroupRecord(founding, desired, observers, checker)
        for number in desired + observers:
            record.hosts[number] = True
        self.catalog.add(record)
        return record

    def _regroup(self) -> None:
        """Delete a group and create another; nodes learn of it one after the other."""
        self.coverage.note("groups deleted")
        record = self.rng.choice(self.catalog.alive())
        record.deleted = True
        record.checker.deleted = True
        for node in self.nodes:
            self.loop.after(self.rng.randint(0, 10) * TICK, self._forget, (node, record))
        created = self._create_group()
        hosts = list(created.hosts)
        created.hosts.clear()
        for number in hosts:
            self.loop.after(self.rng.randint(0, 10) * TICK, self._tell, (number, created))

    def _forget(self, what: tuple[Node, GroupRecord]) -> None:
        node, record = what
        node.forget(record)

    def _tell(self, what: tuple[int, GroupRecord]) -> None:
        number, record = what
        record.hosts[number] = True

    def _run_under_faults(self) -> None:
        if self.loop.tracing:
            self.loop.trace(f"begin    {self.parameters!r}")
        for node in self.nodes:
            node.start()
        if self.parameters.first_campaign:
            for replica in list(self.nodes[0].replicas.values()):
                if not replica.stopped:
                    replica.campaign()
        self.nemesis.start()
        self.clients.start()
        while self.loop.events < self.plan.events:
            self.loop.step()

    def _run_healed(self) -> None:
        """Heal everything; the groups must serve again, and survive what quiescence may hide."""
        self.parameters = self.parameters.healed()
        self.network.parameters = self.parameters
        self.clients.parameters = self.parameters
        for node in self.nodes:
            node.parameters = self.parameters
            node.store.set_parameters(self.parameters)
        if self.loop.tracing:
            self.loop.trace("heal     everything")
        self.nemesis.revive()
        RecoveryPhase(self).run()

    def _deliver(self, source: int, target: int, content: object) -> None:
        self.nodes[target - 1].receive(source, content)

    def _session_lost(self, one: int, other: int) -> None:
        self.nodes[one - 1].session_lost(other)
        self.nodes[other - 1].session_lost(one)


def simulate(plan: Plan) -> Outcome:
    """Run one seed."""
    return Simulation(plan).run()
