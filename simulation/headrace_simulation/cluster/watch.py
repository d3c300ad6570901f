"""Invariants of every moment of a run, whatever goes wrong; looked at ten times a second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from headrace_broker.runtime.node.node import BrokerNode
from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.limits import OUTBOX_BYTES_MAX
from headrace_raftlog.model.membership import Membership, member_node
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_simulation.cluster.broker_cluster import BrokerCluster
from headrace_simulation.cluster.hosts import number_of
from headrace_simulation.cluster.nemesis import Nemesis
from headrace_simulation.cluster.placing import Placing
from headrace_simulation.cluster.quorums import common_quorum, well_quorum
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
    membership: Membership  # as it knew it when it was seen
    is_drained: bool  # likewise: its process hands over what it leads


@final
class Watch:
    """Looks at all nodes that run."""

    def __init__(self, cluster: BrokerCluster, nemesis: Nemesis) -> None:
        self.looks = 0
        self.reigns: dict[int, Reign] = {}
        self._cluster = cluster
        self._nemesis = nemesis
        self._world = cluster.world
        self.placing = Placing(cluster)
        self._leaders: dict[tuple[int, int], int] = {}
        self._served_ns: dict[int, int] = {}
        self._callbacks: dict[str, int] = {}
        self._alone_ns: dict[str, int] = {}  # until when a queue had no quorum, by its name
        self._hosted: dict[int, list[HostedGroup]] = {}  # that run now, by group
        self._running: set[tuple[int, int]] = set()  # likewise: groups and members

    def start(self) -> None:
        """Look from now on."""
        self._world.at(int(LOOK_S * NS), self._look)

    def _look(self) -> None:
        self.start()
        self.looks += 1
        self._find_groups()
        serving: set[int] = set()
        for group, found in self._hosted.items():
            for hosted in found:
                if hosted.core.role == LEADER:
                    self._look_at_leader(hosted)
                    number = int(member_node(hosted.core.member))
                    if not self._cluster.machines[number].process.is_paused:  # type: ignore[union-attr]
                        serving.add(group)
        for number, node in self._cluster.nodes.items():
            self._look_at_memory(number, node)
        for group in self._hosted:
            self._look_at_service(group, group in serving)
        self.placing.look()
        self._look_at_confirms()
        self._look_at_answers()
        self._look_at_loops()

    def _find_groups(self) -> None:
        self._hosted, self._running = {}, set()
        for hosted in self._cluster.hosted():
            self._hosted.setdefault(hosted.group, []).append(hosted)
            self._running.add((hosted.group, int(hosted.core.member)))

    def _members(self, group: int) -> set[int]:
        return {member for each, member in self._running if each == group}

    def _quorum(self, group: int, seconds: float) -> list[int]:
        """Return nodes of a group that were well for a time, where these can decide, else []."""
        known = {hosted.core.membership: None for hosted in self._hosted.get(group, ())}
        sites = self._cluster.sites

        def healthy(nodes: list[int]) -> list[int]:
            return [node for node in self._nemesis.healthy(nodes, seconds) if node in sites]

        return common_quorum(known, self._members(group), healthy)

    def _look_at_leader(self, hosted: HostedGroup) -> None:
        """One leader a term; none is deposed while it and a quorum are well."""
        group, term, member = hosted.group, int(hosted.core.term), int(hosted.core.member)
        known = self._leaders.setdefault((group, term), member)
        if known != member:
            raise SimulationError(f"group {group} has leaders {known} and {member} in term {term}")
        now = self._world.now_ns
        reign = self.reigns.get(group)
        if reign is None or term > reign.term:
            if reign is not None:
                self._judge(hosted, reign, term)
            drained = self._is_drained(member)
            self.reigns[group] = Reign(member, term, now, now, hosted.core.membership, drained)
        elif term == reign.term:
            reign.seen_ns, reign.membership = now, hosted.core.membership
            reign.is_drained = self._is_drained(member)

    def _is_drained(self, member: int) -> bool:
        node = self._cluster.nodes.get(int(member_node(member)))
        return node is not None and node.maintenance.on

    def _judge(self, hosted: HostedGroup, reign: Reign, term: int) -> None:
        """Judge a new leader: the one before must have had a reason to go when it was seen last.

        What it needed is told by the membership that it knew, not by that of the new leader.
        """
        now, group = self._world.now_ns, hosted.group
        if now - self._cluster.history.moved_ns < CALM_S * NS or now - reign.since_ns < CALM_S * NS:
            return
        if reign.is_drained:
            return
        leader = member_node(reign.member)
        seconds = CALM_S + (now - reign.seen_ns) / NS
        well = well_quorum(
            reign.membership,
            self._members(group),
            lambda nodes: self._nemesis.healthy(nodes, seconds),
        )
        if leader in well:
            raise SimulationError(
                f"group {group}: n{leader} was deposed in term {reign.term} by "
                f"n{member_node(int(hosted.core.member))} in term {term}; n{well} were well"
            )

    def _look_at_service(self, group: int, serving: bool) -> None:
        """A majority that is left alone has a leader within a bound."""
        now = self._world.now_ns
        if serving:
            self._served_ns[group] = now
            return
        well = self._quorum(group, RESUME_S)
        if not well:
            self._served_ns[group] = now
        elif now - self._served_ns.setdefault(group, now) > RESUME_S * NS:
            raise SimulationError(f"group {group} has no leader, and its n{well} are well")

    def _look_at_confirms(self) -> None:
        """Clients of a majority that is left alone get confirms."""
        now, history = self._world.now_ns, self._cluster.history
        publishes = self._cluster.wanted.publishes and self._quorum(0, ALONE_S)
        for name, confirmed_ns in history.confirmed_ns.items():
            if name in history.deleted:
                continue
            well = self._quorum(self._group_of(name), ALONE_S) if publishes else []
            if not well:
                self._alone_ns[name] = now
            elif now - max(confirmed_ns, self._alone_ns.get(name, 0)) > RESUME_S * NS:
                raise SimulationError(f"nothing is confirmed of {name}, and n{well} are well")

    def _look_at_answers(self) -> None:
        """The publisher of a message that a consumer has accepted gets its confirm."""
        now, unanswered = self._world.now_ns, self._cluster.history.unanswered
        for body, since_ns in list(unanswered.items()):
            if now - since_ns <= RESUME_S * NS:
                return
            node = number_of(body.partition(b"b")[0].decode())
            site = self._cluster.sites.get(node)
            if site is None or not body.startswith(site.prefix.encode()):
                del unanswered[body]  # its publisher has ended with its process
                continue
            group = self._group_of(self._cluster.history.messages[body].queue)
            leader = self._leader_of(group)
            ends = {node, leader}  # it may be cut off from the leader alone
            linked = set(self._nemesis.healthy([*ends], RESUME_S)) == ends
            if leader and linked and self._quorum(group, RESUME_S):
                raise SimulationError(f"{body[:24]!r} was accepted, and is not confirmed")

    def _leader_of(self, group: int) -> int:
        """Return the process that serves a group, 0 for none."""
        for number, site in self._cluster.sites.items():
            host = site.node.hosting.hosts.get(group)
            if host is not None and host.serving:
                return int(number)
        return 0

    def _group_of(self, name: str) -> int:
        """Return the group of a queue; that of the catalog where no node knows the queue."""
        for site in self._cluster.sites.values():
            queue = site.node.broker.queue("/", name)
            if queue is not None:
                return int(queue.group)
        return 0

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
            key = f"{machine.name}.{machine.starts}"
            before = self._callbacks.get(key, 0)
            self._callbacks[key] = machine.loop.callbacks
            if machine.loop.callbacks - before > CALLBACKS_S_MAX:
                count = machine.loop.callbacks - before
                raise SimulationError(f"{machine.name} ran {count} callbacks in a second")
