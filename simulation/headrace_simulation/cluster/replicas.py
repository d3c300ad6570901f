"""Invariants of replicas and consumers over seconds; looked at once a second."""

from __future__ import annotations

from typing import Any, Final, final

from headrace_raftlog.model.group import LEADER
from headrace_simulation.cluster.broker_cluster import BrokerCluster
from headrace_simulation.cluster.nemesis import Nemesis
from headrace_simulation.cluster.world import NS, SimulationError

LOOK_S: Final = 1.0
IDLE_S: Final = 12.0  # for which a consumer may get nothing beside others that get
OTHERS_GET: Final = 150  # messages that others of its queue get meanwhile
HUNG_S: Final = 11.0  # of a disk, in which its node gives up what it leads
DIGESTS_KEPT: Final = 2000


@final
class Replicas:
    """Compares the states of replicas, and looks for consumers that are left out."""

    def __init__(self, cluster: BrokerCluster, nemesis: Nemesis) -> None:
        self.compared = 0  # pairs of states
        self._cluster = cluster
        self._nemesis = nemesis
        self._world = cluster.world
        self._digests: dict[tuple[int, int, str], tuple[int, bytes]] = {}
        self._hung_ns: dict[int, int] = {}

    def start(self) -> None:
        """Look from now on."""
        self._world.at(int(LOOK_S * NS), self._look)

    def _look(self) -> None:
        self.start()
        for number, node in self._cluster.nodes.items():
            host = getattr(node.raft, "_host", None)
            if host is None or host.stopped:
                continue
            for hosted in host.groups():
                if not hosted.suspended and hosted.core.applied_index > 0:
                    self._compare(number, hosted)
            self._look_at_disk(number, host)
        self._look_at_consumers()

    def _compare(self, number: int, hosted: object) -> None:
        """Replicas that have applied the same entries have the same state."""
        group = int(hosted.group)  # type: ignore[attr-defined]
        index = int(hosted.core.applied_index)  # type: ignore[attr-defined]
        handler: Any = hosted.handler  # type: ignore[attr-defined]
        if not hasattr(handler, "digest"):  # of a release in which replicas do not compare states
            return
        version, digest = handler.digest()
        key = (group, index, version)
        known = self._digests.setdefault(key, (number, digest))
        if known[0] != number:
            self.compared += 1
        if known[1] != digest:
            raise SimulationError(
                f"group {group}: n{known[0]} and n{number} differ after entry {index}"
            )
        if len(self._digests) > DIGESTS_KEPT:
            del self._digests[next(iter(self._digests))]

    def _look_at_disk(self, number: int, host: object) -> None:
        """A node whose disk hangs leads nothing, as long as others can."""
        now = self._world.now_ns
        machine = self._cluster.machines[number]
        if not machine.disk.is_hung or machine.process is None or machine.process.is_paused:
            self._hung_ns[number] = now
            return
        well = self._nemesis.healthy(sorted(self._cluster.machines), HUNG_S)
        if 2 * len(well) <= len(self._cluster.machines):
            self._hung_ns[number] = now
        elif now - self._hung_ns.setdefault(number, now) > HUNG_S * NS:
            led = [h.group for h in host.groups() if h.core.role == LEADER]  # type: ignore[attr-defined]
            if led:
                raise SimulationError(
                    f"n{number}, whose disk hangs, leads group {led[0]}; n{well} are well"
                )

    def _look_at_consumers(self) -> None:
        """A consumer gets some of what its queue gives to others, while more and more comes."""
        if self._cluster.wanted.drains:
            return
        now, history = self._world.now_ns, self._cluster.history
        well = self._nemesis.healthy(sorted(self._cluster.machines), IDLE_S)
        if 2 * len(well) <= len(self._cluster.machines):
            return
        for name, each in list(history.attached.items()):
            site = self._cluster.sites.get(each.node)
            if each.node not in well or site is None or site.process is not each.process:
                continue
            others = history.delivered_of.get(each.queue, 0) - each.others
            if now - each.got_ns > IDLE_S * NS and others > OTHERS_GET:
                raise SimulationError(
                    f"{name} of {each.queue} got nothing for {(now - each.got_ns) / NS:.1f} s, "
                    f"while others got {others} messages; n{well} are well"
                )
