"""Invariants of every moment of a run, whatever goes wrong; looked at ten times a second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from headrace_broker.runtime.node.node import BrokerNode
from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.limits import OUTBOX_BYTES_MAX
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_simulation.cluster.broker_cluster import BrokerCluster
from headrace_simulation.cluster.nemesis import Nemesis
from headrace_simulation.cluster.world import NS, SimulationError

LOOK_S: Final = 0.1
CALM_S: Final = 8.0  # without a fault of its own, after which a leader with a quorum keeps its term
RESUME_S: Final = 15.0  # within which a majority that is left alone serves again
ALONE_S: Final = 3.0  # after the last fault of a majority, when that begins to count for clients
CALLBACKS_S_MAX: Final = 60_000  # of a process; its loop is busy with 300,000


@dataclass
class Reign:
    """The newest leader of a group."""

    member: int
    term: int
    since_ns: int
    seen_ns: int
    voters: tuple[int, ...]  # member ids, when it was seen last


@final
class Watch:
    """Looks at all nodes that run."""

    def __init__(self, cluster: BrokerCluster, nemesis: Nemesis) -> None:
        self.looks = 0
        self.reigns: dict[int, Reign] = {}
        self._cluster = cluster
        self._nemesis = nemesis
        self._world = cluster.world
        self._leaders: dict[tuple[int, int], int] = {}
        self._served_ns: dict[int, int] = {}
        self._callbacks: dict[str, int] = {}
        self._alone_ns = self._world.now_ns

    def start(self) -> None:
        """Look from now on."""
        self._world.at(int(LOOK_S * NS), self._look)

    def _look(self) -> None:
        self.start()
        self.looks += 1
        serving: set[int] = set()
        groups: dict[int, HostedGroup] = {}
        for number, node in self._cluster.nodes.items():
            host = getattr(node.raft, "_host", None)
            if host is None or host.stopped:
                continue
            for hosted in host.groups():
                groups.setdefault(hosted.group, hosted)
                if hosted.core.role == LEADER:
                    self._look_at_leader(hosted)
                    if not self._cluster.machines[number].process.is_paused:  # type: ignore[union-attr]
                        serving.add(hosted.group)
            self._look_at_memory(number, node)
        for group, hosted in groups.items():
            self._look_at_service(group, hosted, group in serving)
        self._look_at_confirms()
        self._look_at_loops()

    def _look_at_leader(self, hosted: HostedGroup) -> None:
        """One leader a term; none is deposed while it and a quorum are well."""
        group, term, member = hosted.group, int(hosted.core.term), int(hosted.core.member)
        known = self._leaders.setdefault((group, term), member)
        if known != member:
            raise SimulationError(f"group {group} has leaders {known} and {member} in term {term}")
        now = self._world.now_ns
        reign = self.reigns.get(group)
        voters = tuple([int(voter) for voter in hosted.core.membership.voters])
        if reign is None or term > reign.term:
            if reign is not None:
                self._judge(hosted, reign, term)
            self.reigns[group] = Reign(member, term, now, now, voters)
        elif term == reign.term:
            reign.seen_ns = now
            reign.voters = voters

    def _is_here(self, group: int, voter: int) -> bool:
        """Return whether a voter is the member that its node has, and none of a disk it lost."""
        node = self._cluster.nodes.get(member_node(voter))
        host = getattr(node.raft, "_host", None) if node is not None else None  # once started
        hosted = host.find(group) if host is not None else None
        return hosted is not None and int(hosted.core.member) == voter

    def _judge(self, hosted: HostedGroup, reign: Reign, term: int) -> None:
        """Judge a new leader: the one before must have had a reason to go."""
        now, group = self._world.now_ns, hosted.group
        if now - self._cluster.moved_ns < CALM_S * NS or now - reign.since_ns < CALM_S * NS:
            return
        here = [member_node(voter) for voter in reign.voters if self._is_here(group, voter)]
        leader = member_node(reign.member)
        well = self._nemesis.healthy(here, CALM_S)
        if leader in well and len(well) > len(reign.voters) // 2:
            raise SimulationError(
                f"group {group}: n{leader} was deposed in term {reign.term} by "
                f"n{member_node(int(hosted.core.member))} in term {term}; n{well} were well"
            )

    def _look_at_service(self, group: int, hosted: HostedGroup, serving: bool) -> None:
        """A majority that is left alone has a leader within a bound."""
        now = self._world.now_ns
        if serving:
            self._served_ns[group] = now
            return
        voters = [member_node(int(voter)) for voter in hosted.core.membership.voters]
        well = self._nemesis.healthy(voters, RESUME_S)
        running = [node for node in well if node in self._cluster.sites]
        if len(running) <= len(voters) // 2:
            self._served_ns[group] = now
        elif now - self._served_ns.setdefault(group, now) > RESUME_S * NS:
            raise SimulationError(f"group {group} has no leader, and n{well} of n{voters} are well")

    def _look_at_confirms(self) -> None:
        """Clients of a majority that is left alone get confirms."""
        now = self._world.now_ns
        well = self._nemesis.healthy(sorted(self._cluster.machines), ALONE_S)
        running = [node for node in well if node in self._cluster.sites]
        if len(running) <= len(self._cluster.machines) // 2 or not self._cluster.wanted.publishes:
            self._alone_ns = now
            return
        for queue, confirmed_ns in self._cluster.history.confirmed_ns.items():
            if queue in self._cluster.history.deleted:
                continue
            if now - max(confirmed_ns, self._alone_ns) > RESUME_S * NS:
                raise SimulationError(f"nothing is confirmed of {queue}, and n{well} are well")

    def _look_at_memory(self, number: int, node: BrokerNode) -> None:
        transport = getattr(node.raft, "_transport", None)
        if transport is None:
            return
        for session in transport.sessions.values():
            outbox = session.link._outbox  # noqa: SLF001  (looked at)
            size = int(outbox.control_bytes + outbox.raft_bytes + outbox.application_bytes)
            if size > 3 * OUTBOX_BYTES_MAX:
                raise SimulationError(f"n{number} holds {size} bytes for n{session.peer}")

    def _look_at_loops(self) -> None:
        """No process is busy with nothing: its loop runs a bounded number of callbacks."""
        if self.looks % int(1 / LOOK_S):
            return
        for machine in self._cluster.machines.values():
            if machine.loop is None:
                continue
            key = f"{machine.host}.{machine.starts}"
            before = self._callbacks.get(key, 0)
            self._callbacks[key] = machine.loop.callbacks
            if machine.loop.callbacks - before > CALLBACKS_S_MAX:
                count = machine.loop.callbacks - before
                raise SimulationError(f"{machine.host} ran {count} callbacks in a second")
