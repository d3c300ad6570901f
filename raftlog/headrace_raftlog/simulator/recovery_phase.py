"""After everything healed, every group must serve again within bounded time, and more."""

from __future__ import annotations

from typing import final

from headrace_raftlog.simulator.catalog import GroupRecord
from headrace_raftlog.simulator.healed_run import HealedRun, serves
from headrace_raftlog.simulator.parameters import TICK
from headrace_raftlog.simulator.replica import Replica
from headrace_raftlog.simulator.silence_phase import SilencePhase


@final
class RecoveryPhase:
    """Checks liveness (invariant 17) of a run that was just healed."""

    def __init__(self, healed: HealedRun) -> None:
        self.healed = healed
        self.world = healed.world
        self.loop = healed.loop
        self.parameters = healed.parameters
        self.records = healed.records

    def run(self) -> None:
        """Demand one leader, equal logs, writes, reads, silence, another leader, silence again."""
        self.healed.expect(
            "members as wanted, one leader and equal logs", self.healed.have_converged
        )
        self._drop_outsiders()
        self._expect_writes()
        self._expect_reads()
        for record in self.records:
            for replica in self.world.replicas(record):
                record.checker.check_bodies(replica)
        if self.parameters.quiesce_ticks == 0:
            return
        self.healed.expect("silence", self._are_quiesced)
        if self.loop.rng.random() < 0.7:
            self._lose_quiesced_leader(self.loop.rng.choice(self.records))
        self._expect_writes()
        SilencePhase(self.healed).run()

    def _drop_outsiders(self) -> None:
        """Stop members that were removed, as their hosts do when the catalog says so."""
        for record in self.records:
            for node in self.world.nodes:
                if node.number not in record.desired and node.number not in record.observers:
                    record.hosts.pop(node.number, None)
                    node.drop(record.group)

    def _lose_quiesced_leader(self, record: GroupRecord) -> None:
        world = self.world
        if len(record.desired) < 3:
            return
        leader = self.healed.leader(record)
        assert leader is not None
        node = leader.node
        others = [one for one in world.replicas(record) if one is not leader]
        way = self.loop.rng.randrange(4)
        if self.loop.tracing:
            self.loop.trace(f"lose     leader {leader.member} of {record.group}, way {way}")
        if way == 0:
            node.crash()
        elif way == 1:
            node.pause()
        else:
            for other in world.nodes:
                world.network.cut(node.number, other.number)
                if way == 2:
                    world.network.cut(other.number, node.number)
        self.healed.expect("another leader", lambda: any(map(serves, others)))
        world.network.heal()
        node.resume()
        if not node.up:
            node.start()
        self.healed.expect_recovery()

    def _expect_writes(self) -> None:
        for record in self.records:
            self._expect_write(record)

    def _expect_write(self, record: GroupRecord) -> None:
        """Check that a write succeeds; repeat it if its leader was deposed meanwhile."""
        payload = b""
        term = 0

        def succeeds() -> bool:
            nonlocal payload, term
            if payload and self._is_applied_everywhere(record, payload):
                return True
            leader = self.healed.leader(record)
            if leader is not None and leader.core.term != term:
                payload = self.world.clients.write(leader)
                term = leader.core.term if payload else 0
            return False

        self.healed.expect(f"a write everywhere in group {record.group}", succeeds)

    def _expect_reads(self) -> None:
        """A read must succeed on every member; one that was lost is tried again."""
        for record in self.records:
            for replica in self.healed.members(record):
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

        self.healed.expect(f"a read of member {replica.member}", succeeds)

    def _are_quiesced(self) -> bool:
        for record in self.records:
            for replica in self.world.replicas(record):
                if not replica.core.quiesced:
                    return False
        return True

    def _is_applied_everywhere(self, record: GroupRecord, payload: bytes) -> bool:
        index = record.checker.seen.get(payload, 0)
        return index > 0 and all(
            replica.core.applied_index >= index for replica in self.healed.members(record)
        )
