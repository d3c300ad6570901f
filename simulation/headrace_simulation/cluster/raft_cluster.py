"""Nodes of the replicated log alone, with state machines that record what they are given."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Callable
from typing import Final, final

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.node.node import NodeOptions, RaftNode
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_simulation.cluster.disk import VirtualDisk
from headrace_simulation.cluster.loop import VirtualLoop
from headrace_simulation.cluster.network import Network
from headrace_simulation.cluster.process import Clock, Process
from headrace_simulation.cluster.world import World

PORT: Final = 7000


@final
class Machine:
    """Group handler that keeps all entries."""

    def __init__(self, process: Process, group: int) -> None:
        self.applied: list[bytes] = []
        self.leader = 0
        self.serving = False
        self._process = process
        self._group = group

    def apply(self, entries: list[Entry]) -> None:
        self.applied += [entry.data for entry in entries]
        self._process.note(f"group {self._group} applied up to {entries[-1].index}")

    def leadership(self, leader: int, term: int, serving: bool) -> None:
        self._process.note(f"group {self._group} leader {leader} term {term} {serving}")
        self.leader, self.serving = leader, serving

    def snapshot(self) -> tuple[bytes, array[int]]:
        return json.dumps([data.hex() for data in self.applied]).encode(), array("Q")

    def held(self) -> array[int]:
        return array("Q")

    def restore(self, state: bytes) -> None:
        self.applied = [bytes.fromhex(data) for data in json.loads(state)]


@final
class RaftMachine:
    """One machine of the cluster: clock, disk, and the process that runs on it."""

    def __init__(self, cluster: RaftCluster, node: int) -> None:
        self.node = node
        self.host = f"n{node}"
        self.cluster = cluster
        self.clock = Clock(cluster.world)
        self.disk = VirtualDisk(cluster.world, self.host)
        self.process: Process | None = None
        self.raft: RaftNode | None = None
        self.groups: dict[int, Machine] = {}

    def start(self) -> None:
        """Start the node's process."""
        cluster = self.cluster
        cluster.network.power_on(self.host)
        process = Process(
            cluster.world, self.host, cluster.network, self.host, self.disk, self.clock
        )
        process.on_failure = cluster.failed
        self.process = process
        self.groups = {}
        process.note("starts")
        process.spawn("main", lambda: self._main(process))

    def _main(self, process: Process) -> None:
        loop = VirtualLoop(process)
        loop.call_soon(lambda: loop.create_task(self._run(process)))
        loop.drive()

    async def _run(self, process: Process) -> None:
        cluster = self.cluster
        options = NodeOptions(
            cluster="test",
            node=self.node,
            peers=cluster.addresses,
            data_dir="/data",
            tick_ms=100,
            log=LogOptions(segment_bytes=256 << 10, entry_bytes_max=64 << 10),
            snapshot_every_bytes=16 << 10,
        )
        raft = self.raft = RaftNode(options)
        raft.on_fatal = lambda error: process.failed("node", error)
        await raft.start()
        await raft.wait_formed()
        process.note(f"formed, boot {raft.boot}")
        for group in range(cluster.groups):
            machine = self.groups[group] = Machine(process, group)
            raft.create_group(group, cluster.voters(raft), (), machine)
        number = 0
        while True:
            await asyncio.sleep(0.02)
            for group, machine in self.groups.items():
                if machine.serving:
                    number += 1
                    data = f"{self.node}.{raft.boot}.{group}.{number}".encode()
                    if raft.propose(group, data) > 0:
                        cluster.proposed += 1

    def kill(self, *, power: bool = False) -> None:
        """End the process at once."""
        assert self.process is not None
        self.process.note("power lost" if power else "killed")
        if power:
            self.cluster.network.power_off(self.host)
        self.process.die(power=power)
        if power:
            self.disk.lose_power()
        self.process = None


@final
class RaftCluster:
    """Machines of a cluster, with their network."""

    def __init__(self, world: World, nodes: int = 3, groups: int = 3) -> None:
        self.world = world
        self.network = Network(world)
        self.groups = groups
        self.proposed = 0
        self.failures: list[str] = []
        self.addresses = {node: f"n{node}:{PORT}" for node in range(1, nodes + 1)}
        self.machines = {node: RaftMachine(self, node) for node in self.addresses}

    def voters(self, raft: RaftNode) -> tuple[int, ...]:
        """Return the founding members of all groups."""
        return tuple(self.addresses)

    def failed(self, where: str, error: BaseException) -> None:
        """Note what nobody caught."""
        self.failures.append(f"{where}: {error!r}")

    def check(self, note: Callable[[str], None]) -> None:
        """Compare all machines."""
        for group in range(self.groups):
            logs = [m.groups[group].applied for m in self.machines.values() if m.process]
            longest = max(logs, key=len)
            assert all(log == longest[: len(log)] for log in logs), f"group {group} differs"
            note(f"group {group}: {[len(log) for log in logs]}")
