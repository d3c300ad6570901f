"""Clients that write, keep, drop and read, at supposed leaders and at other members."""

from __future__ import annotations

from typing import Final, final

from headrace_raftlog.simulator.catalog import Catalog
from headrace_raftlog.simulator.linearizability import WRITE, Operation
from headrace_raftlog.simulator.loop import Loop
from headrace_raftlog.simulator.machine import KEYS
from headrace_raftlog.simulator.node import Node
from headrace_raftlog.simulator.parameters import TICK, Parameters
from headrace_raftlog.simulator.replica import Replica

LONG_BYTES: Final = 900  # of a long command where sectors matter


@final
class Clients:
    """All clients of a run."""

    def __init__(
        self, loop: Loop, parameters: Parameters, nodes: list[Node], catalog: Catalog
    ) -> None:
        self.loop = loop
        self.parameters = parameters
        self.nodes = nodes
        self.catalog = catalog
        self.commands = 0

    def start(self) -> None:
        """Begin with the next tick."""
        self.loop.after(TICK, self._act, None)

    def write(self, replica: Replica) -> bytes:
        """Offer one write to a member; return the command, nothing if it was not taken."""
        payloads, writes = self._commands(replica, 1)
        taken = self._offer(replica, payloads, writes, urgent=False)
        return payloads[0] if taken else b""

    def _act(self, _: None) -> None:
        if not (self.parameters.proposal or self.parameters.read):
            return
        self.loop.after(TICK, self._act, None)
        for node in self.nodes:
            for replica in list(node.replicas.values()):
                if not replica.stopped and not node.paused:
                    self._use(replica)

    def _use(self, replica: Replica) -> None:
        parameters = self.parameters
        rng = self.loop.rng
        if rng.random() < parameters.read:
            replica.read(rng.randrange(KEYS))
        if rng.random() < parameters.proposal and (replica.is_leader or rng.random() < 0.02):
            payloads, writes = self._commands(replica, rng.choice((1, 1, 1, 3)))
            self._offer(replica, payloads, writes, urgent=rng.random() < 0.2)

    def _offer(
        self,
        replica: Replica,
        payloads: list[bytes],
        writes: list[Operation | None],
        *,
        urgent: bool,
    ) -> bool:
        checker = replica.checker
        if replica.propose(payloads, urgent, writes) < 0:
            return False
        checker.operations.extend(write for write in writes if write is not None)
        return True

    def _commands(self, replica: Replica, count: int) -> tuple[list[bytes], list[Operation | None]]:
        rng = self.loop.rng
        checker = replica.checker
        payloads: list[bytes] = []
        writes: list[Operation | None] = []
        for _ in range(count):
            self.commands += 1
            kind = rng.random()
            write: Operation | None = None
            if kind < 0.6:
                key = rng.randrange(KEYS)
                payload = b"w%d %d" % (self.commands, key)
                write = Operation(WRITE, key, self.commands, checker.now())
            elif kind < 0.85:
                payload = b"k%d" % self.commands
            else:
                payload = b"d%d %d" % (self.commands, rng.randint(1, 3))
            long = rng.random()
            if self.parameters.real_storage and long < 0.3:
                payload = payload.ljust(LONG_BYTES)
            elif long < 0.1:
                payload = payload.ljust(40)
            checker.proposed[payload] = True
            payloads.append(payload)
            writes.append(write)
        return payloads, writes
