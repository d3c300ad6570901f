"""A run after its faults: checks that must hold in bounded time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from headrace_raftlog.model.membership import member_node
from headrace_raftlog.simulator.catalog import GroupRecord
from headrace_raftlog.simulator.invariant_error import InvariantError
from headrace_raftlog.simulator.parameters import TICK
from headrace_raftlog.simulator.replica import Replica
from headrace_raftlog.simulator.world import World

RECOVERY_ELECTIONS: Final = 30  # base election timeouts within which a healed group must serve
RECOVERY_TICKS_PER_NODE: Final = 100  # for a change of membership and a snapshot


@final
class HealedRun:
    """Expects things of a run that was just healed.

    Attributes:
        world: that everything healed in.
        records: its groups that are not deleted.
        healed_at: when that was.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = world.loop
        self.healed_at = world.loop.now
        self.parameters = world.parameters
        self.records = world.catalog.alive()

    def expect(self, what: str, condition: Callable[[], bool], invariant: int = 17) -> None:
        """Run until `condition`, which must come true in bounded time."""
        parameters = self.parameters
        entries = max(len(record.checker.committed) for record in self.records)
        ticks = RECOVERY_ELECTIONS * parameters.election_ticks + parameters.quiesce_ticks
        ticks += RECOVERY_TICKS_PER_NODE * parameters.nodes + 20 * entries
        deadline = self.loop.now + ticks * TICK
        while not condition():
            if self.loop.now > deadline:
                raise InvariantError(invariant, f"{what}: not within {deadline} units")
            until = self.loop.now + TICK
            while self.loop.now < until:
                self.loop.step()

    def expect_recovery(self) -> None:
        """Demand one leader and equal logs, as after the faults."""
        self.expect("one leader and equal logs again", self.have_converged)

    def leader(self, record: GroupRecord) -> Replica | None:
        """Return the leader that serves, None without one."""
        return next(filter(serves, self.world.replicas(record)), None)

    def members(self, record: GroupRecord) -> list[Replica]:
        """Return the running members of a group that are wanted."""
        wanted = record.desired + record.observers
        found = self.world.replicas(record)
        return [replica for replica in found if replica.node.number in wanted]

    def have_converged(self) -> bool:
        """Return whether every group has the members that are wanted, one leader, equal logs."""
        return all(self._has_converged(record) for record in self.records)

    def _has_converged(self, record: GroupRecord) -> bool:
        replicas = self.world.replicas(record)
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
        members = self.members(record)
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


def serves(replica: Replica) -> bool:
    """Return whether a member runs and leads with all that was ever committed."""
    return not replica.stopped and not replica.node.paused and replica.core.ready_to_serve
