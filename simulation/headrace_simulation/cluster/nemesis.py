"""The schedule of a run's faults, and who is healthy meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from headrace_simulation.cluster.broker_cluster import BrokerCluster
from headrace_simulation.cluster.faults import Cut, Fault, Kind
from headrace_simulation.cluster.hosts import host_of
from headrace_simulation.cluster.quorums import is_whole
from headrace_simulation.cluster.world import NS

LOSS_GAP_S: Final = 15.0  # between two faults that destroy what disks hold: the first is mended
VOTERS_MIN: Final = 3  # of a group that is to outlast the loss of one


@final
class Nemesis:
    """Lets faults begin and end."""

    def __init__(
        self, cluster: BrokerCluster, kinds: Sequence[Kind], at_once: int, gap_s: float
    ) -> None:
        self.active: dict[Fault, None] = {}
        self.begun: list[str] = []  # all faults so far, for people
        self._cluster = cluster
        self._world = cluster.world
        self._kinds = kinds
        self._at_once = at_once
        self._gap_s = gap_s
        self._until_ns = 0
        self._lost_ns = -int(LOSS_GAP_S * NS)
        self._dirty_ns: dict[int, int] = {}  # by process, when a fault of it ended last
        self._cut_ns: dict[frozenset[int], int] = {}  # likewise of links between hosts

    def run(self, seconds: float) -> None:
        """Begin faults for a time; all of them end with it."""
        self._until_ns = self._world.now_ns + int(seconds * NS)
        self._world.at(int(seconds * NS), self.heal)
        if self._kinds:
            self._next()

    def _next(self) -> None:
        pause = self._world.rng.uniform(0.2, 2 * self._gap_s)
        self._world.at(int(pause * NS), self._begin)

    def _begin(self) -> None:
        world, rng = self._world, self._world.rng
        if world.now_ns >= self._until_ns:
            return
        self._next()
        if len(self.active) >= self._at_once:
            return
        node, other = rng.sample(self._cluster.hosts, 2)
        fault = rng.choice(self._kinds)(self._cluster, node, other)
        if not self._may(fault):
            return
        self.active[fault] = None
        self.begun.append(f"{world.now_ns / NS:.2f} {fault}")
        world.trace.note("", f"fault begins: {fault}")
        fault.begin()
        lasts = min(rng.expovariate(1 / fault.mean_s) + fault.least_s, 25.0)
        world.at(int(lasts * NS), lambda: self._end(fault))

    def _may(self, fault: Fault) -> bool:
        """Return whether a fault may begin: one of a kind on a host, one loss at a time."""
        for other in self.active:
            if host_of(other.node) == host_of(fault.node) and not isinstance(other, Cut):
                return False
        if not fault.destroys:
            return True
        own = self._cluster.processes(host_of(fault.node))
        if any(self._is_shaken(node) for node in self._cluster.machines if node not in own):
            return False
        if self._world.now_ns - self._lost_ns < LOSS_GAP_S * NS:
            return False
        if len(self._cluster.sites) < len(self._cluster.machines) or not self._is_mended():
            return False
        self._lost_ns = self._world.now_ns + 20 * NS
        return True

    def _is_mended(self) -> bool:
        """Return whether no group waits for a member that was lost before, or has too few to."""
        hosted = self._cluster.hosted()
        running = {(each.group, int(each.core.member)) for each in hosted}
        return all(
            is_whole(each.core.membership, {m for group, m in running if group == each.group})
            and len(each.core.membership.voters) >= VOTERS_MIN
            for each in hosted
        )

    def _is_shaken(self, node: int) -> bool:
        return any(each.destroys or node in each.nodes for each in self.active)

    def _end(self, fault: Fault) -> None:
        if fault not in self.active:
            return
        del self.active[fault]
        self._world.trace.note("", f"fault ends: {fault}")
        fault.end()
        now = self._world.now_ns
        if fault.destroys:
            self._lost_ns = now
        if isinstance(fault, Cut):
            self._cut_ns[frozenset((fault.node, fault.other))] = now
        else:
            for node in fault.nodes:
                self._dirty_ns[node] = now + int(fault.after_s * NS)

    def disturbed(self, node: int) -> None:
        """Take note of a node that was not well until now, for a reason that is no fault."""
        self._dirty_ns[node] = self._world.now_ns

    def heal(self) -> None:
        """End all faults, and start what does not run."""
        for fault in list(self.active):
            self._end(fault)
        for machine in self._cluster.machines.values():
            machine.start()

    def is_clean(self, node: int, seconds: float) -> bool:
        """Return whether nothing was wrong with a node for a time."""
        if any(node in each.nodes for each in self.active if not isinstance(each, Cut)):
            return False
        since = self._dirty_ns.get(node, -1 << 62)
        return self._world.now_ns - since >= seconds * NS

    def is_linked(self, node: int, other: int, seconds: float) -> bool:
        """Return whether two processes reached each other for a time, as far as cuts go."""
        pair = frozenset((host_of(node), host_of(other)))
        if any(isinstance(f, Cut) and {f.node, f.other} == pair for f in self.active):
            return False
        return self._world.now_ns - self._cut_ns.get(pair, -1 << 62) >= seconds * NS

    def healthy(self, nodes: Sequence[int], seconds: float) -> list[int]:
        """Return processes that were clean, and linked, for a time; a largest such set."""
        clean = [node for node in nodes if self.is_clean(node, seconds)]
        best: list[int] = []
        for bits in range(1 << len(clean)):
            some = [node for at, node in enumerate(clean) if bits >> at & 1]
            if len(some) > len(best) and all(
                self.is_linked(a, b, seconds) for a in some for b in some if a < b
            ):
                best = some
        return best
