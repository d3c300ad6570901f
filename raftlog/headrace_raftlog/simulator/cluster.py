"""One simulated run: a group under faults, then proof that it recovers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.group import GroupConfig
from headrace_raftlog.model.message import Message
from headrace_raftlog.simulator.invariants import Checker, InvariantError
from headrace_raftlog.simulator.loop import Loop
from headrace_raftlog.simulator.nemesis import Nemesis
from headrace_raftlog.simulator.network import Network
from headrace_raftlog.simulator.parameters import PROFILES, TICK, draw
from headrace_raftlog.simulator.process import HostFaults, Process

GROUP = 7
RECOVERY_ELECTIONS = 30  # base election timeouts within which a healed group must serve


@dataclass(frozen=True)
class Plan:
    """How to run a seed.

    Attributes:
        seed: decides everything below that is left open.
        profile: name of a profile, or None for the seed to choose.
        events: events under faults, before everything heals.
        tracing: keep a trace.
        contract: check what messages promise about the disk; see `Checker`.
        faults: bugs of the host to inject.
        core_type: the core under test.
    """

    seed: int
    profile: str | None = None
    events: int = 700
    tracing: bool = False
    contract: bool = True
    faults: HostFaults = field(default_factory=HostFaults)
    core_type: type[RaftCore] = RaftCore


@dataclass(frozen=True)
class Outcome:
    """What a run showed.

    Attributes:
        seed: its seed.
        violation: text of the first violated invariant, None if all held.
        invariant: its number, 0 for none or for an exception in the core.
        events: events simulated.
        committed: entries committed.
        acknowledged: commands acknowledged to the client.
        leaderships: terms that had a leader.
        quiesced: times that a member was seen to fall silent.
        trace: lines, empty unless tracing.
    """

    seed: int
    violation: str | None
    invariant: int
    events: int
    committed: int
    acknowledged: int
    leaderships: int
    quiesced: int
    trace: list[str]


class Simulation:
    """A group of members with their disks and network, and a client."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = Loop(plan.seed, plan.tracing)
        profile = PROFILES[plan.profile] if plan.profile is not None else None
        self.parameters = draw(self.loop.rng, profile)
        self.rng: Random = self.loop.rng
        self.network = Network(self.loop, self.parameters, self._deliver)
        voters = tuple(range(1, self.parameters.voters + 1))
        first_learner = self.parameters.voters + 1
        learners = tuple(range(first_learner, first_learner + self.parameters.learners))
        self.checker = Checker(voters, plan.contract)
        self.processes = [
            Process(
                self.loop,
                self.parameters,
                self.network,
                self.checker,
                GroupConfig(GROUP, member, voters, learners),
                plan.core_type,
                plan.faults,
            )
            for member in voters + learners
        ]
        self.checker.processes = self.processes
        for process in self.processes:
            process.peers = [peer for peer in self.processes if peer is not process]
        self.nemesis = Nemesis(self.loop, self.parameters, self.network, self.processes)
        self.checker.new_leader = self.nemesis.new_leader
        self.commands = 0

    def run(self) -> Outcome:
        """Run to the end or to the first violation."""
        violation: str | None = None
        invariant = 0
        try:
            self._run_under_faults()
            self._run_healed()
            self.checker.finish()
        except InvariantError as error:
            violation, invariant = str(error), error.invariant
        except (AssertionError, LookupError, ValueError) as error:
            violation = f"{type(error).__name__} in the core: {error}"
        checker = self.checker
        return Outcome(
            seed=self.plan.seed,
            violation=violation,
            invariant=invariant,
            events=self.loop.events,
            committed=len(checker.committed),
            acknowledged=len(checker.acked),
            leaderships=len(checker.leaders),
            quiesced=checker.quiesced,
            trace=self.loop.lines,
        )

    def _run_under_faults(self) -> None:
        if self.loop.tracing:
            self.loop.trace(f"begin    {self.parameters!r}")
        for process in self.processes:
            process.start()
        if self.parameters.first_campaign:
            self.processes[0].campaign()
        self.nemesis.start()
        self.loop.after(TICK, self._client, None)
        while self.loop.events < self.plan.events:
            self.loop.step()

    def _run_healed(self) -> None:
        """Heal everything; the group must serve again, and survive what quiescence may hide."""
        self.parameters = self.parameters.healed()
        self.network.parameters = self.parameters
        for process in self.processes:
            process.parameters = self.parameters
            process.disk.parameters = self.parameters
        if self.loop.tracing:
            self.loop.trace("heal     everything")
        self.nemesis.revive()
        self._expect("one leader and equal logs", self._has_converged)
        self._expect_write()
        if self.parameters.quiesce_ticks == 0:
            return
        self._expect("silence", self._is_quiesced)
        if self.parameters.voters >= 3 and self.rng.random() < 0.7:
            self._lose_quiesced_leader()
        self._expect_write()

    def _lose_quiesced_leader(self) -> None:
        leader = next(process for process in self.processes if process.is_leader())
        others = [process for process in self.processes if process is not leader]
        way = self.rng.randrange(4)
        if self.loop.tracing:
            self.loop.trace(f"lose     leader {leader.member}, way {way}")
        if way == 0:
            leader.crash()
        elif way == 1:
            leader.pause()
        else:
            for process in others:
                self.network.cut(leader.member, process.member)
                if way == 2:
                    self.network.cut(process.member, leader.member)
        self._expect("another leader", lambda: any(map(_serves, others)))
        self.network.heal()
        leader.resume()
        if leader.core is None:
            leader.start()
        self._expect("one leader and equal logs again", self._has_converged)

    def _expect_write(self) -> None:
        """A write must succeed; one whose leader was deposed meanwhile is tried again."""
        payload = b""
        term = 0

        def succeeds() -> bool:
            nonlocal payload, term
            if payload and self._is_applied_everywhere(payload):
                return True
            leader = next(filter(_serves, self.processes), None)
            if leader is not None and leader.core is not None and leader.core.term != term:
                term = leader.core.term
                payload = self._command()
                leader.propose([payload])
            return False

        self._expect("a write everywhere", succeeds)

    def _expect(self, what: str, condition: Callable[[], bool]) -> None:
        """Run until `condition`, which must come true in bounded time."""
        parameters = self.parameters
        entries = max(process.log.last_index() for process in self.processes)
        ticks = RECOVERY_ELECTIONS * parameters.election_ticks + parameters.quiesce_ticks
        deadline = self.loop.now + (ticks + 10 * entries) * TICK
        while not condition():
            if self.loop.now > deadline:
                raise InvariantError(17, f"{what}: not within {deadline} units")
            until = self.loop.now + TICK
            while self.loop.now < until:
                self.loop.step()

    def _has_converged(self) -> bool:
        serving = [process for process in self.processes if _serves(process)]
        if len(serving) != 1 or sum(process.is_leader() for process in self.processes) != 1:
            return False
        items = serving[0].log.items
        for process in self.processes:
            core = process.core
            if core is None or core.applied_index != len(items) or process.log.items != items:
                return False
            if core.leader != serving[0].member:
                return False
        return True

    def _is_quiesced(self) -> bool:
        return all(process.core is not None and process.core.quiesced for process in self.processes)

    def _is_applied_everywhere(self, payload: bytes) -> bool:
        index = self.checker.seen.get(payload, 0)
        return index > 0 and all(
            process.core is not None and process.core.applied_index >= index
            for process in self.processes
        )

    def _deliver(self, message: Message) -> None:
        self.processes[message.target - 1].receive(message)

    def _client(self, _: None) -> None:
        """Offer commands to whoever takes itself for the leader, and sometimes to others."""
        parameters = self.parameters
        self.loop.after(TICK, self._client, None)
        for process in self.processes:
            if self.rng.random() < parameters.proposal and (
                process.is_leader() or self.rng.random() < 0.02
            ):
                process.propose([self._command() for _ in range(self.rng.choice((1, 1, 1, 3)))])

    def _command(self) -> bytes:
        self.commands += 1
        payload = b"command %d" % self.commands
        if self.rng.random() < 0.1:
            payload = payload.ljust(40, b".")
        self.checker.proposed[payload] = True
        return payload


def _serves(process: Process) -> bool:
    core = process.core
    return core is not None and not process.paused and core.ready_to_serve


def simulate(plan: Plan) -> Outcome:
    """Run one seed."""
    return Simulation(plan).run()
