"""Faults: which, when and to whom, all drawn from the run's seed."""

from __future__ import annotations

from typing import Final

from headrace_raftlog.simulator.loop import Loop
from headrace_raftlog.simulator.network import Network
from headrace_raftlog.simulator.parameters import TICK, Parameters
from headrace_raftlog.simulator.process import Process

HUNT_DELAYS: Final = (1, 3, 8)  # a new leader is struck within so many usual delays


class Nemesis:
    """Crashes, pauses and cuts off members until it is stopped."""

    def __init__(
        self, loop: Loop, parameters: Parameters, network: Network, processes: list[Process]
    ) -> None:
        self.loop = loop
        self.parameters = parameters
        self.network = network
        self.processes = processes
        self.stopped = False

    def start(self) -> None:
        """Schedule the first fault."""
        self.loop.after(self._gap(), self._act, None)

    def revive(self) -> None:
        """Stop all faults and undo them: every member runs and reaches every other."""
        self.stopped = True
        self.network.heal()
        for process in self.processes:
            process.resume()
        for process in self.processes:
            if process.core is None:
                process.start()

    def _gap(self) -> int:
        return 1 + int(self.loop.rng.expovariate(1.0 / self.parameters.fault_gap))

    def _victim(self) -> Process:
        rng = self.loop.rng
        if rng.random() < self.parameters.leader_bias:
            leaders = [process for process in self.processes if process.is_leader()]
            if leaders:
                return rng.choice(leaders)
        return rng.choice(self.processes)

    def _act(self, _: None) -> None:
        if self.stopped:
            return
        rng = self.loop.rng
        draw = rng.random()
        victim = self._victim()
        self._trace(victim, draw)
        if draw < 0.35:
            self._crash(victim)
        elif draw < 0.40:
            for process in self.processes:
                self._crash(process)
        elif draw < 0.55:
            victim.pause()
            self.loop.after(rng.randint(1, 30) * TICK, self._resume, victim)
        elif draw < 0.65:
            self._isolate(victim)
        elif draw < 0.72:
            other = rng.choice(self.processes)
            self.network.cut(victim.member, other.member)
        elif draw < 0.78:
            self._partition()
        elif draw < 0.90:
            self.network.heal()
        elif draw < 0.95:
            victim.transfer(rng.choice(self.processes).member)
        else:
            for process in self.processes:
                process.campaign()
        self.loop.after(self._gap(), self._act, None)

    def new_leader(self, process: Process, term: int) -> None:
        """Strike a new leader before it has replicated much, which random faults rarely do."""
        rng = self.loop.rng
        if self.stopped or rng.random() >= self.parameters.hunt:
            return
        delays = rng.choice(HUNT_DELAYS)
        delay = rng.randint(0, delays * self.parameters.delay_max)
        self.loop.after(delay, self._strike, (process, term))

    def _strike(self, target: tuple[Process, int]) -> None:
        process, term = target
        core = process.core
        if self.stopped or core is None or core.term != term:
            return
        rng = self.loop.rng
        way = rng.random()
        self._trace(process, way)
        if way < 0.5:
            process.crash()
            self.loop.after(rng.randint(0, 5) * TICK, self._restart, process)
        elif way < 0.65:
            self._forget(process)
        elif way < 0.8:
            self._isolate(process)
            self.loop.after(rng.randint(1, 20) * TICK, self._heal, None)
        else:
            process.pause()
            self.loop.after(rng.randint(1, 20) * TICK, self._resume, process)

    def _forget(self, leader: Process) -> None:
        """Restart some of those who elected `leader`: what they voted must be on their disks."""
        for process in self.processes:
            if process is not leader and self.loop.rng.random() < 0.5:
                process.crash()
                self.loop.after(0, self._restart, process)

    def _heal(self, _: None) -> None:
        if not self.stopped:
            self.network.heal()

    def _trace(self, victim: Process, draw: float) -> None:
        if self.loop.tracing:
            self.loop.trace(f"fault    {draw:.2f} on {victim.member}")

    def _crash(self, process: Process) -> None:
        process.crash()
        delay = self.loop.rng.randint(0, 40) * TICK
        self.loop.after(delay, self._restart, process)

    def _restart(self, process: Process) -> None:
        if process.core is None and not self.stopped:
            process.start()

    def _resume(self, process: Process) -> None:
        if not self.stopped:
            process.resume()

    def _isolate(self, victim: Process) -> None:
        for process in self.processes:
            self.network.cut(victim.member, process.member)
            self.network.cut(process.member, victim.member)

    def _partition(self) -> None:
        """Split the members in two; sometimes one of them stays in touch with both sides."""
        rng = self.loop.rng
        members = list(self.processes)
        rng.shuffle(members)
        split = rng.randint(1, len(members))
        bridge = members[0] if rng.random() < 0.4 else None
        for left in members[:split]:
            for right in members[split:]:
                if left is not bridge and right is not bridge:
                    self.network.cut(left.member, right.member)
                    self.network.cut(right.member, left.member)
