"""After everything healed, every group must serve again within bounded time, and more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from headrace_raftlog.model.membership import member_node
from headrace_raftlog.simulator.catalog import GroupRecord
from headrace_raftlog.simulator.invariants import InvariantError
from headrace_raftlog.simulator.parameters import TICK
from headrace_raftlog.simulator.replica import Replica

if TYPE_CHECKING:
    from headrace_raftlog.simulator.cluster import Simulation

RECOVERY_ELECTIONS: Final = 30  # base election timeouts within which a healed group must serve
RECOVERY_TICKS_PER_NODE: Final = 100  # for a change of membership and a snapshot


@final
class RecoveryPhase:
    """Checks liveness (invariant 17) of a run that was just healed."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.loop = simulation.loop
        self.parameters = simulation.parameters
        self.records = simulation.catalog.alive()

    def run(self) -> None:
        """Demand one leader, equal logs, writes, reads, silence, and another leader."""
        self._expect("members as wanted, one leader and equal logs", self._have_converged)
        self._drop_outsiders()
        self._expect_writes()
        self._expect_reads()
        for record in self.records:
            for replica in self.simulation.replicas(record):
                record.checker.check_bodies(replica)
        if self.parameters.quiesce_ticks == 0:
            return
        self._expect("silence", self._are_quiesced)
        if self.loop.rng.random() < 0.7:
            self._lose_quiesced_leader(self.loop.rng.choice(self.records))
        self._expect_writes()

    def _drop_outsiders(self) -> None:
        """Stop members that were removed, as their hosts do when the catalog says so."""
        for record in self.records:
            for node in self.simulation.nodes:
                if node.number not in record.desired and node.number not in record.observers:
                    record.hosts.pop(node.number, None)
                    node.drop(record.group)

    def _lose_quiesced_leader(self, record: GroupRecord) -> None:
        simulation = self.simulation
        if len(record.desired) < 3:
            return
        leader = self._leader(record)
        assert leader is not None
        node = leader.node
        others = [one for one in simulation.replicas(record) if one is not leader]
        way = self.loop.rng.randrange(4)
        if self.loop.tracing:
            self.loop.trace(f"lose     leader {leader.member} of {record.group}, way {way}")
        if way == 0:
            node.crash()
        elif way == 1:
            node.pause()
        else:
            for other in simulation.nodes:
                simulation.network.cut(node.number, other.number)
                if way == 2:
                    simulation.network.cut(other.number, node.number)
        self._expect("another leader", lambda: any(map(serves, others)))
        simulation.network.heal()
        node.resume()
        if not node.up:
            node.start()
        self._expect("one leader and equal logs again", self._have_converged)

    def _expect_writes(self) -> None:
        for record in self.records:
            self._expect_write(record)

    def _expect_write(self, record: GroupRecord) -> None:
        """A write must succeed; one whose leader was deposed meanwhile is tried again."""
        payload = b""
        term = 0

        def succeeds() -> bool:
            nonlocal payload, term
            if payload and self._is_applied_everywhere(record, payload):
                return True
            leader = self._leader(record)
            if leader is not None and leader.core.term != term:
                payload = self.simulation.clients.write(leader)
                term = leader.core.term if payload else 0
            return False

        self._expect(f"a write everywhere in group {record.group}", succeeds)

    def _expect_reads(self) -> None:
        """A read must succeed on every member; one that was lost is tried again."""
        for record in self.records:
            for replica in self._members(record):
                self._expect_read(replica)

    def _expect_read(self, replica: Replica) -> None:
        before = replica.answered
        again = 0

        def succeeds() -> bool:
            nonlocal again
            if replica.answered > before:
                return True
            told_lost = not replica.reads and not replica.confirmed
            if told_lost or self.loop.now >= again:
                again = self.loop.now + 4 * self.parameters.election_ticks * TICK
                replica.read(0)
            return False

        self._expect(f"a read of member {replica.member}", succeeds)

    def _expect(self, what: str, condition: Callable[[], bool]) -> None:
        """Run until `condition`, which must come true in bounded time."""
        parameters = self.parameters
        entries = max(len(record.checker.committed) for record in self.records)
        ticks = RECOVERY_ELECTIONS * parameters.election_ticks + parameters.quiesce_ticks
        ticks += RECOVERY_TICKS_PER_NODE * parameters.nodes + 20 * entries
        deadline = self.loop.now + ticks * TICK
        while not condition():
            if self.loop.now > deadline:
                raise InvariantError(17, f"{what}: not within {deadline} units")
            until = self.loop.now + TICK
            while self.loop.now < until:
                self.loop.step()

    def _members(self, record: GroupRecord) -> list[Replica]:
        wanted = record.desired + record.observers
        found = self.simulation.replicas(record)
        return [replica for replica in found if replica.node.number in wanted]

    def _leader(self, record: GroupRecord) -> Replica | None:
        return next(filter(serves, self.simulation.replicas(record)), None)

    def _have_converged(self) -> bool:
        return all(self._has_converged(record) for record in self.records)

    def _has_converged(self, record: GroupRecord) -> bool:
        replicas = self.simulation.replicas(record)
        leaders = [replica for replica in replicas if replica.is_leader]
        if len(leaders) != 1 or not serves(leaders[0]):
            return False
        leader = leaders[0]
        core = leader.core
        membership = core.membership
        voters = sorted(member_node(member) for member in membership.voters)
        if core.is_changing or voters != list(record.desired):
            return False
        wanted = (*record.desired, *record.observers)
        members = self._members(record)
        if sorted(replica.node.number for replica in members) != sorted(wanted):
            return False
        for replica in members:
            other = replica.core
            if (
                not membership.contains(replica.member)
                or other.leader != leader.member
                or replica.log.last_index() != leader.log.last_index()
                or other.applied_index != leader.log.last_index()
                or replica.machine.digest != leader.machine.digest
                or other.membership != membership
            ):
                return False
        return True

    def _are_quiesced(self) -> bool:
        for record in self.records:
            for replica in self.simulation.replicas(record):
                if not replica.core.quiesced:
                    return False
        return True

    def _is_applied_everywhere(self, record: GroupRecord, payload: bytes) -> bool:
        index = record.checker.seen.get(payload, 0)
        return index > 0 and all(
            replica.core.applied_index >= index for replica in self._members(record)
        )


def serves(replica: Replica) -> bool:
    """Return whether a member runs and leads with all that was ever committed."""
    return not replica.stopped and not replica.node.paused and replica.core.ready_to_serve
