"""Faults: which, when and to whom, all drawn from the run's seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from headrace_raftlog.model.membership import member_node
from headrace_simulation.simulator.catalog import Catalog, GroupRecord
from headrace_simulation.simulator.coverage import Coverage
from headrace_simulation.simulator.loop import Loop
from headrace_simulation.simulator.network import Network
from headrace_simulation.simulator.node import Node
from headrace_simulation.simulator.parameters import TICK, Parameters
from headrace_simulation.simulator.port import MemberPort, NodePort
from headrace_simulation.simulator.rot import rot

HUNT_DELAYS: Final = (1, 3, 8)  # a new leader is struck within so many usual delays
FIGURE_8_UNITS: Final = 5  # units until a new leader's first entry is on its own disk
CLOCK_STANDS: Final = (
    0.3  # share of isolated nodes whose clock stands still, so that they notice late
)
ROT_IN_USE: Final = 0.5  # share of the nodes that run while an entry rots, and read it
ROT: Final = 0.5  # share of losses of data that are entries which others have, with the real log
FLAPS_MAX: Final = 6  # cuts and heals of a flapping link


@final
class Nemesis:
    """Crashes, pauses and cuts off nodes, and worse, until it is stopped.

    Args:
        regroup: deletes a group and creates another in its place.
    """

    def __init__(
        self,
        loop: Loop,
        parameters: Parameters,
        coverage: Coverage,
        network: Network,
        nodes: list[Node],
        catalog: Catalog,
        regroup: Callable[[], None],
    ) -> None:
        self.loop = loop
        self.parameters = parameters
        self.coverage = coverage
        self.network = network
        self.nodes = nodes
        self.catalog = catalog
        self.regroup = regroup
        self.stopped = False

    def start(self) -> None:
        """Schedule the first fault."""
        self.loop.after(self._gap(), self._act, None)

    def revive(self) -> None:
        """Stop all faults and undo them: every node runs and reaches every other."""
        self.stopped = True
        self.network.heal()
        for node in self.nodes:
            node.clock_stands_until = min(node.clock_stands_until, self.loop.now)
            node.store.full = False
            node.resume()
        for node in self.nodes:
            if not node.up:
                node.start()

    def new_leader(self, replica: MemberPort, term: int) -> None:
        """Strike a new leader before it has replicated much, which random faults rarely do."""
        rng = self.loop.rng
        if self.stopped or rng.random() >= self.parameters.hunt:
            return
        if self.parameters.profile.figure_8:
            delay = rng.randint(FIGURE_8_UNITS, rng.choice((2, 10)) * FIGURE_8_UNITS)
            self.loop.after(delay, self._cut_down, (replica, term))
            return
        if self.parameters.profile.outdate:
            delay = rng.randint(2, 3 * self.parameters.election_ticks) * TICK
            self.loop.after(delay, self._outdate, (replica, term))
            return
        delays = rng.choice(HUNT_DELAYS)
        delay = rng.randint(0, delays * self.parameters.delay_max)
        self.loop.after(delay, self._strike, (replica, term))

    def new_change(self, replica: MemberPort) -> None:
        """Strike a leader that has just begun to change the membership."""
        rng = self.loop.rng
        if self.stopped or rng.random() >= self.parameters.profile.hunt_changes:
            return
        delay = rng.randint(0, 2 * self.parameters.delay_max)
        strike = self._outdate if rng.random() < 0.4 else self._strike
        self.loop.after(delay, strike, (replica, replica.core.term))

    def _gap(self) -> int:
        return 1 + int(self.loop.rng.expovariate(1.0 / self.parameters.fault_gap))

    def _leaders(self) -> list[Node]:
        return [
            node
            for node in self.nodes
            if any(replica.is_leader for replica in node.replicas.values())
        ]

    def _victim(self) -> Node:
        rng = self.loop.rng
        if rng.random() < self.parameters.leader_bias:
            leaders = self._leaders()
            if leaders:
                return rng.choice(leaders)
        return rng.choice(self.nodes)

    def _act(self, _: None) -> None:
        if self.stopped:
            return
        rng = self.loop.rng
        profile = self.parameters.profile
        kind = rng.random()
        victim = self._victim()
        self._trace(victim, kind)
        for record in self.catalog.alive():
            record.checker.stability.note_settled()
        bound = profile.data_loss
        if kind < bound:
            self._lose_data(victim)
        elif kind < (bound := bound + profile.disk_fault):
            self._fill_disk(victim)
        elif kind < (bound := bound + profile.clock_jump):
            self._jump_clock(victim)
        elif kind < (bound := bound + profile.link_fault):
            self._disturb_link(victim)
        elif kind < (bound := bound + profile.regroup):
            self.regroup()
        elif kind < bound + profile.link_cut:
            self._cut_link(victim)
        else:
            self._act_plainly(victim)
        self.loop.after(self._gap(), self._act, None)

    def _act_plainly(self, victim: Node) -> None:
        rng = self.loop.rng
        draw = rng.random()
        if draw < 0.35:
            self._crash(victim)
        elif draw < 0.40:
            self.coverage.note("power failures")
            for node in self.nodes:
                self._crash(node)
        elif draw < 0.55:
            victim.pause()
            self.loop.after(rng.randint(1, 30) * TICK, self._resume, victim)
        elif draw < 0.65:
            self._isolate(victim)
        elif draw < 0.72:
            other = rng.choice(self.nodes)
            self.network.cut(victim.number, other.number)
        elif draw < 0.78:
            self._partition()
        elif draw < 0.90:
            self.network.heal()
        elif draw < 0.95:
            self._transfer(victim)
        else:
            for node in self.nodes:
                if node.up and not node.paused:
                    for replica in list(node.replicas.values()):
                        if not replica.stopped:
                            replica.campaign()

    def _transfer(self, victim: Node) -> None:
        rng = self.loop.rng
        for replica in list(victim.replicas.values()):
            voters = replica.core.membership.voters
            if voters and not victim.paused and not replica.stopped:
                replica.transfer(rng.choice(voters))

    def _lose_data(self, victim: Node) -> None:
        """Destroy a node's data, or its data of one group, if the others can continue.

        In a real log the groups that share a batch with the damaged record suffer as well.
        """
        rng = self.loop.rng
        records = self.catalog.alive()
        if any(record.group in node.store.rotten for record in records for node in self.nodes):
            return  # who has what rotted there has to keep it
        if self.parameters.real_storage and rng.random() < ROT:
            self._rot(rng.choice(records))
            return
        wipes = rng.random() < 0.4
        damaged = rng.choice(records).group
        if not wipes and not self.parameters.real_storage:
            records = [self.catalog.by_group[damaged]]
        losses = [(record, members_of(record, victim)) for record in records]
        if not all(record.may_lose(members) for record, members in losses):
            return
        victim.crash()
        for record, _ in losses:
            had = victim.store.durable.get(record.group)
            if had is not None:
                record.checker.lost_logs[had.member] = had.copy()
        if wipes:
            self.coverage.note("wiped nodes")
            victim.store.wipe()
            if not victim.faults.wiped_keeps_id:
                victim.generation = 1 + rng.getrandbits(31)
        elif victim.store.damage(damaged):
            self.coverage.note("damaged groups")
        else:
            losses = []
        for record, members in losses:
            for member in members:
                record.lost[member] = True
        self.loop.after(rng.randint(0, 10) * TICK, self._restart, victim)

    def _rot(self, record: GroupRecord) -> None:
        """Flip bits in entries of a group, on some nodes or all of them; another node has each."""
        rng = self.loop.rng
        victims = rng.sample(self.nodes, rng.randint(1, len(self.nodes)))
        count = 0
        for victim in victims:
            if victim.up and not victim.paused and rng.random() < ROT_IN_USE:
                count += rot(victim, self.nodes, record, rng)
                continue
            victim.crash()
            count += rot(victim, self.nodes, record, rng)
            self.loop.after(rng.randint(0, 10) * TICK, self._restart, victim)
        if count > 0:
            self.coverage.note("groups with rot")
        if count > 1:
            self.coverage.note("groups with rot on several nodes")

    def _fill_disk(self, victim: Node) -> None:
        if victim.up:
            self.coverage.note("full disks")
            victim.store.full = True
            self.loop.after(self.loop.rng.randint(1, 40) * TICK, self._make_space, victim)

    def _make_space(self, node: Node) -> None:
        node.store.full = False

    def _jump_clock(self, victim: Node) -> None:
        rng = self.loop.rng
        if not victim.up or victim.paused:
            return
        self.coverage.note("clock jumps")
        ticks = rng.randint(1, 4 * self.parameters.election_ticks)
        if rng.random() < 0.6:
            victim.burst(ticks)
        else:
            victim.clock_stands_until = self.loop.now + ticks * TICK

    def _disturb_link(self, victim: Node) -> None:
        rng = self.loop.rng
        other = rng.choice(self.nodes)
        if other is victim:
            return
        if rng.random() < 0.6:
            self.coverage.note("broken sessions")
            self.network.break_session(victim.number, other.number)
            return
        self.coverage.note("flapping links")
        self._flap((victim, other, rng.randint(2, FLAPS_MAX)))

    def _cut_link(self, victim: Node) -> None:
        other = self.loop.rng.choice(self.nodes)
        if other is not victim:
            self.coverage.note("links cut")
            self.network.cut(victim.number, other.number)
            self.network.cut(other.number, victim.number)

    def _flap(self, link: tuple[Node, Node, int]) -> None:
        one, other, left = link
        if self.stopped:
            return
        for pair in ((one.number, other.number), (other.number, one.number)):
            if left % 2:
                self.network.cut(*pair)
            else:
                self.network.mend(*pair)
        if left > 0:
            delay = self.loop.rng.randint(1, 8) * TICK
            self.loop.after(delay, self._flap, (one, other, left - 1))

    def _strike(self, target: tuple[MemberPort, int]) -> None:
        replica, term = target
        if self.stopped or replica.stopped or replica.core.term != term:
            return
        node = replica.node
        rng = self.loop.rng
        way = rng.random()
        self._trace(node, way)
        if way < 0.5:
            node.crash()
            self.loop.after(rng.randint(0, 5) * TICK, self._restart, node)
        elif way < 0.65:
            self._forget(node)
        elif way < 0.8:
            self._isolate(node)
            self.loop.after(rng.randint(1, 20) * TICK, self._heal, None)
        else:
            node.pause()
            self.loop.after(rng.randint(1, 20) * TICK, self._resume, node)

    def _cut_down(self, target: tuple[MemberPort, int]) -> None:
        """Crash a leader with all that it sent still under way, so that few ever get it.

        Source: thesis figure 3.7 (Figure 8 of the Raft paper): leaders that come and go this way
        leave entries of several terms on minorities.
        """
        replica, term = target
        if self.stopped or replica.stopped or replica.core.term != term:
            return
        node = replica.node
        node.crash()
        for other in self.nodes:
            self.network.cut(node.number, other.number)
        rng = self.loop.rng
        ticks = rng.randint(1, 4 * self.parameters.election_ticks)
        self.loop.after(ticks * TICK, self._come_back, node)

    def _outdate(self, target: tuple[MemberPort, int]) -> None:
        """Let a leader that serves miss that another one is elected."""
        replica, term = target
        if self.stopped or replica.stopped or replica.core.term != term:
            return
        node = replica.node
        rng = self.loop.rng
        elections = rng.randint(2, 6)
        if rng.random() < 0.5:
            node.pause()
        else:
            stands = 2 * elections * self.parameters.election_ticks * TICK
            node.clock_stands_until = self.loop.now + stands
            both_ways = rng.random() < 0.5
            for other in self.nodes:
                self.network.cut(node.number, other.number)
                if both_ways:
                    self.network.cut(other.number, node.number)
            self.loop.after(elections * self.parameters.election_ticks * TICK, self._heal, None)
        self.loop.after(elections * self.parameters.election_ticks * TICK, self._resume, node)

    def _come_back(self, node: NodePort) -> None:
        if not self.stopped:
            for other in self.nodes:
                self.network.mend(node.number, other.number)
            self._restart(node)

    def _forget(self, leader: NodePort) -> None:
        """Restart some voters of `leader`: their votes must be on their disks."""
        for node in self.nodes:
            if node is not leader and self.loop.rng.random() < 0.5:
                node.crash()
                self.loop.after(0, self._restart, node)

    def _heal(self, _: None) -> None:
        if not self.stopped:
            self.network.heal()

    def _trace(self, victim: NodePort, draw: float) -> None:
        if self.loop.tracing:
            self.loop.trace(f"fault    {draw:.2f} on {victim.number}")

    def _crash(self, node: Node) -> None:
        node.crash()
        delay = self.loop.rng.randint(0, 40) * TICK
        self.loop.after(delay, self._restart, node)

    def _restart(self, node: NodePort) -> None:
        if not node.up and not self.stopped:
            node.start()

    def _resume(self, node: NodePort) -> None:
        if not self.stopped:
            node.resume()

    def _isolate(self, victim: NodePort) -> None:
        rng = self.loop.rng
        if rng.random() < CLOCK_STANDS:
            ticks = rng.randint(1, 4 * self.parameters.election_ticks)
            victim.clock_stands_until = self.loop.now + ticks * TICK
        for node in self.nodes:
            self.network.cut(victim.number, node.number)
            self.network.cut(node.number, victim.number)

    def _partition(self) -> None:
        """Split the nodes in two; sometimes one of them stays in touch with both sides."""
        rng = self.loop.rng
        nodes = list(self.nodes)
        rng.shuffle(nodes)
        split = rng.randint(1, len(nodes))
        bridge = nodes[0] if rng.random() < 0.4 else None
        for left in nodes[:split]:
            for right in nodes[split:]:
                if left is not bridge and right is not bridge:
                    self.network.cut(left.number, right.number)
                    self.network.cut(right.number, left.number)


def members_of(record: GroupRecord, node: Node) -> tuple[int, ...]:
    """Return every member id of a group that may live on a node."""
    ids = {node.store.member(record.group), *record.founding.everyone()}
    for membership in record.checker.in_use():
        ids.update(membership.everyone())
    return tuple(sorted(one for one in ids if member_node(one) == node.number))
