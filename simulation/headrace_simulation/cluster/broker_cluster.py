"""Broker nodes on simulated machines, and the work that clients give them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any, Final, final

from headrace_broker.config.shards import shard_config
from headrace_broker.model.shard import SHARD_IDS, shard_id
from headrace_broker.runtime.node.node import BrokerNode
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_simulation.cluster.clients import Site, Wanted
from headrace_simulation.cluster.history import History
from headrace_simulation.cluster.hosts import host_of, name_of, number_of
from headrace_simulation.cluster.machine import Machine
from headrace_simulation.cluster.network import Network
from headrace_simulation.cluster.process import Process
from headrace_simulation.cluster.software import HEAD, Software
from headrace_simulation.cluster.world import World

RESTART_S: Final = 0.5  # after which a supervisor starts a process that has ended


@final
class BrokerCluster:
    """Machines with broker nodes."""

    def __init__(
        self,
        world: World,
        nodes: int = 3,
        builds: tuple[Software, ...] = (HEAD,),
        snapshot_bytes: int = 64 << 10,
        shards: int = 1,
    ) -> None:
        self.world = world
        self.network = Network(world)
        self.history = History(world)
        self.wanted = Wanted()
        self.nodes: dict[int, BrokerNode] = {}  # that run and have joined, or are about to
        self.sites: dict[int, Site] = {}  # where clients may connect
        self.on_site: Callable[[int, Site], None] = lambda node, site: None
        # return whether administrators have done what they were asked to
        self.done: list[Callable[[], bool]] = []
        self.errors: list[BaseException] = []  # that no production code may let happen
        self.fatal: list[tuple[int, BaseException]] = []  # ends of nodes that they chose
        self.machines: dict[int, Machine] = {}
        self.builds = builds  # that nodes may run
        # what each node runs, from its next start on
        self.software: dict[int, Software] = defaultdict(lambda: builds[0])
        self._running: dict[int, Software] = {}  # by node, as of its last start
        self._snapshot_bytes = snapshot_bytes  # of a log, after which there is one
        self._count = nodes
        self._shards = shards
        self.hosts = tuple(range(1, nodes + 1))
        for host in self.hosts:
            for number in self.processes(host):
                program = partial(self._program, number)
                first = self.machines.get(host)
                name = name_of(number)
                machine = Machine(world, self.network, f"n{host}", program, name, first)
                machine.on_failure = self._failed
                self.machines[number] = machine

    def processes(self, host: int) -> tuple[int, ...]:
        """Return the numbers of the processes of a host."""
        return tuple(shard_id(host, shard) for shard in range(self._shards))

    def clone(self, number: int) -> Machine:
        """Return a machine with a copy of a node's disk; no client uses it."""
        host = f"n{number}x{len(self.world.dead)}"
        machine = Machine(self.world, self.network, host, partial(self._copied, number))
        machine.disk.put_back(self.machines[number].disk.copy())
        machine.on_failure = self._failed
        return machine

    def _node(
        self, software: Software, number: int, on_fatal: Callable[[BaseException], None]
    ) -> BrokerNode:
        place = (host_of(number), self._count, self._snapshot_bytes)
        if self._shards == 1:
            return software.node(*place, on_fatal)
        own = partial(shard_config, shard=number // SHARD_IDS, count=self._shards)
        return software.node(*place, on_fatal, own)

    async def _copied(self, number: int, process: Process) -> None:
        ended: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        def on_fatal(error: BaseException) -> None:
            if not ended.done():
                ended.set_result(error)

        node = self._node(self.software[number], number, on_fatal)
        try:
            await node.start()
            error = await ended
        except Exception as failure:  # noqa: BLE001  (as the command line's: it reports, and ends)
            error = failure
        process.note(f"ends: {error!r}")
        await asyncio.Event().wait()

    def start(self) -> None:
        """Start all machines."""
        for machine in self.machines.values():
            machine.start()

    def _failed(self, where: str, error: BaseException) -> None:
        del where
        self.errors.append(error)
        self.world.stop()

    async def _program(self, number: int, process: Process) -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[BaseException] = loop.create_future()

        def on_fatal(error: BaseException) -> None:
            if not ended.done():
                ended.set_result(error)

        software = self._running[number] = self.software[number]
        node = self._node(software, number, on_fatal)
        self.nodes[number] = node
        try:
            await node.start()
            joining = loop.create_task(self._join(number, process, node, software))
            error = await ended
            joining.cancel()
        except Exception as failure:  # noqa: BLE001  (as the command line's: it reports, and ends)
            error = failure
        self.fatal.append((number, error))
        if not isinstance(error, software.expected):
            self._failed("node", error)
        process.note(f"ends: {error!r}")
        self.world.at(0, lambda: self._end(number, process))

    def _end(self, number: int, process: Process) -> None:
        machine = self.machines[number]
        if machine.process is process:
            self.kill(number)
            self.world.at(int(RESTART_S * 1e9), machine.start)

    async def _join(
        self, number: int, process: Process, node: BrokerNode, software: Software
    ) -> None:
        await node.join()
        process.note(f"joined, boot {node.raft.boot}")
        rng = Random(self.world.rng.random())  # noqa: S311  (a simulation)
        site = self.sites[number] = software.site(process, node, self.history, self.wanted, rng)
        self.on_site(number, site)

    def kill(self, number: int, *, power: bool = False) -> None:
        """End a process at once, or with its power all of its host; clients go with them."""
        for each in self.processes(host_of(number)) if power else (number,):
            self.sites.pop(each, None)
            self.nodes.pop(each, None)
            self.machines[each].kill(power=power)

    def kill_host(self, host: int) -> None:
        """End all processes of a host at once."""
        for number in self.processes(host):
            self.kill(number)

    def start_host(self, host: int) -> None:
        """Start all processes of a host that do not run."""
        for number in self.processes(host):
            self.machines[number].start()

    def site(self) -> Site | None:
        """Return some node where clients may connect."""
        found = [
            site
            for site in self.sites.values()
            if site.process.is_alive and not site.process.is_paused
        ]
        return self.world.rng.choice(found) if found else None

    def software_at(self, site: Site) -> Software:
        """Return what runs at a site; clients there are of the same build."""
        return self._running[number_of(site.process.name)]

    def spawn(self, site: Site, work: Coroutine[Any, Any, None], name: str = "") -> None:
        """Run a client at a site, in a task of its process."""
        loop = self.machines[number_of(site.process.name)].loop
        assert loop is not None

        def begin() -> None:
            task = loop.create_task(work, name=name or None)
            site.tasks.add(task)
            task.add_done_callback(lambda done: self._done(site, done))

        loop.call_soon_threadsafe(begin)

    def _done(self, site: Site, task: asyncio.Task[None]) -> None:
        site.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            site.process.failed("client", error)

    def hosted(self) -> list[HostedGroup]:
        """Return all groups of all nodes that run."""
        hosts = [getattr(node.raft, "_host", None) for node in self.nodes.values()]
        return [
            hosted
            for host in hosts
            if host is not None and not host.stopped
            for hosted in host.groups()
        ]
