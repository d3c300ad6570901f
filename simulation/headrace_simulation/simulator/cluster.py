"""One simulated run: groups on nodes under faults, then proof that they recover."""

from __future__ import annotations

from typing import Final, final

from headrace_raftlog.model.errors import RaftLogError
from headrace_raftlog.model.membership import Membership, member_id
from headrace_simulation.simulator.catalog import GroupRecord
from headrace_simulation.simulator.healed_run import HealedRun
from headrace_simulation.simulator.invariant_error import InvariantError
from headrace_simulation.simulator.invariants import Checker
from headrace_simulation.simulator.nemesis import Nemesis
from headrace_simulation.simulator.node import Node
from headrace_simulation.simulator.parameters import TICK
from headrace_simulation.simulator.plan import Outcome, Plan
from headrace_simulation.simulator.recovery_phase import RecoveryPhase
from headrace_simulation.simulator.stability import Stability
from headrace_simulation.simulator.traffic import Traffic
from headrace_simulation.simulator.world import World

FIRST_GROUP: Final = 7


@final
class Simulation(World):
    """A run: faults, then healing."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.rng = self.loop.rng
        self.nemesis = Nemesis(
            self.loop,
            self.parameters,
            self.coverage,
            self.network,
            self.nodes,
            self.catalog,
            self._regroup,
        )
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
        stability = Stability(self.groups, self.nodes, self.coverage)
        traffic = Traffic()
        checker = Checker(
            self.groups, founding, stores, self.plan.contract, self.coverage, stability, traffic
        )
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
        RecoveryPhase(HealedRun(self)).run()


def simulate(plan: Plan) -> Outcome:
    """Run one seed."""
    return Simulation(plan).run()
