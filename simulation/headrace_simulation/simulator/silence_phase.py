"""Quiescence check: messages of idle groups after healing, and with an unreachable minority."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, final

from headrace_raftlog.model.limits import ASKED_PATIENT, ASKED_SLOWER_MAX
from headrace_raftlog.model.membership import member_node
from headrace_simulation.simulator.catalog import GroupRecord
from headrace_simulation.simulator.healed_run import HealedRun
from headrace_simulation.simulator.invariant_error import InvariantError
from headrace_simulation.simulator.network import TAIL_FACTOR
from headrace_simulation.simulator.node import Node
from headrace_simulation.simulator.parameters import TICK
from headrace_simulation.simulator.port import NodePort
from headrace_simulation.simulator.stability import LATE_UNITS

LISTEN_ELECTIONS: Final = 4  # base election timeouts for which nothing may be heard
CUT: Final = 0.15  # share of the checks in which links are cut from a leader alone: they take long
SLOWEST: Final = 1 << ASKED_SLOWER_MAX  # base election timeouts between two questions at least
CUT_SETTLE: Final = 3 * (ASKED_PATIENT + 2 * SLOWEST)  # such timeouts until questions are as rare
CUT_LISTEN: Final = 4 * SLOWEST  # such timeouts for which questions are counted then


@final
class SilencePhase:
    """Checks that silence is complete (invariant 21) once a run has recovered."""

    def __init__(self, healed: HealedRun) -> None:
        self.healed = healed
        self.world = healed.world
        self.loop = healed.loop
        self.election_ticks = healed.parameters.election_ticks
        self.records = healed.records
        self.healed_at = healed.healed_at

    def run(self) -> None:
        """Listen with all nodes, then without some; leave everything healed."""
        profile = self.healed.parameters.profile
        if profile.tail:  # what was sent before everything healed may still arrive, and wake
            self._pass_until(self.healed_at + TAIL_FACTOR * max(profile.delay_max))
        self._expect_silence("all nodes", self.world.nodes)
        if self.loop.rng.random() < CUT:
            self._cut_leader(self.loop.rng.choice(self.records))
        else:
            self._lose_node(self.loop.rng.choice(self.world.nodes))
        self.world.network.heal()
        for node in self.world.nodes:
            node.resume()
            if not node.up:
                node.start()
        self.healed.expect_recovery()

    def _lose_node(self, victim: Node) -> None:
        """Take a node away, whichever way, without which every group has a quorum."""
        for record in self.records:
            kept = [node for node in record.desired if node != victim.number]
            if len(kept) <= len(record.desired) // 2:
                return
        way = self.loop.rng.randrange(3)
        self.world.coverage.note("idle groups without a node")
        if self.loop.tracing:
            self.loop.trace(f"silence  without node {victim.number}, way {way}")
        if way == 0:
            victim.crash()
        elif way == 1:
            victim.pause()
        else:
            self._cut(victim, self.world.nodes)
        others = [node for node in self.world.nodes if node is not victim]
        self._expect_silence(f"all nodes but {victim.number}", others)

    def _cut_leader(self, record: GroupRecord) -> None:
        """Cut a leader's links to a minority; cut-off members may ask, less and less often."""
        leader = self.healed.leader(record)
        if leader is None or len(self.records) > 1 or len(record.desired) < 3:
            return
        others = [node for node in record.desired if node != leader.node.number]
        count = self.loop.rng.randint(1, (len(record.desired) - 1) // 2)
        chosen = self.loop.rng.sample(others, count)
        self.world.coverage.note("idle groups with links cut")
        if self.loop.tracing:
            self.loop.trace(f"silence  leader {leader.member} cut from {chosen}")
        self._cut(leader.node, [self.world.nodes[number - 1] for number in chosen])
        self._pass(CUT_SETTLE)
        before = self._sent(record, self.world.nodes)
        self._pass(CUT_LISTEN)
        sent = self._sent(record, self.world.nodes) - before
        most = count * (CUT_LISTEN // SLOWEST + 2) * len(record.desired)
        if sent > most:
            raise InvariantError(
                21,
                f"group {record.group} sent {sent} messages, {most} at most are due while leader "
                f"{leader.member} is cut from {chosen}",
            )
        if not leader.is_leader:
            raise InvariantError(20, f"member {leader.member} leads no more, cut from {chosen}")

    def _cut(self, node: NodePort, others: Collection[NodePort]) -> None:
        for other in others:
            if other is not node:
                self.world.network.cut(node.number, other.number)
                self.world.network.cut(other.number, node.number)

    def _expect_silence(self, which: str, nodes: Collection[Node]) -> None:
        """Demand that all members on some nodes fall silent, and then say nothing at all."""
        what = f"silence of {which}"
        self.healed.expect(what, lambda: self._are_silent(nodes), invariant=21)
        until = self.loop.now + LISTEN_ELECTIONS * self.election_ticks * TICK
        under_way = self.healed.parameters.delay_max + LATE_UNITS
        self._pass_until(until - under_way)
        sent = self._all_sent(nodes)
        self._pass_until(until)  # for calls that were missed
        if sent != self._all_sent(nodes) or not self._are_silent(nodes):
            # A question for votes may leave right before its member falls silent; it is answered.
            self.healed.expect(what, lambda: self._are_silent(nodes), invariant=21)
            self._pass_until(self.loop.now + under_way)
        before = [self._sent(record, nodes) for record in self.records]
        self._pass(LISTEN_ELECTIONS)
        for record, old in zip(self.records, before, strict=True):
            sent = self._sent(record, nodes) - old
            if sent:
                raise InvariantError(
                    21, f"idle group {record.group} sent {sent} messages with {which}"
                )

    def _are_silent(self, nodes: Collection[Node]) -> bool:
        return all(
            replica.core.quiesced
            for record in self.records
            for replica in self.world.replicas(record)
            if replica.node in nodes
        )

    def _all_sent(self, nodes: Collection[Node]) -> int:
        return sum(self._sent(record, nodes) for record in self.records)

    def _sent(self, record: GroupRecord, nodes: Collection[Node]) -> int:
        numbers = [node.number for node in nodes]
        sent_by = record.checker.traffic.sent_by
        return sum(count for member, count in sent_by.items() if member_node(member) in numbers)

    def _pass(self, elections: int) -> None:
        """Let some base election timeouts pass."""
        self._pass_until(self.loop.now + elections * self.election_ticks * TICK)

    def _pass_until(self, until: int) -> None:
        while self.loop.now < until:
            self.loop.step()
