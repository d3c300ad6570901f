"""Clusters of real nodes in one process, and a state machine that records its input."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from e2e.harness.ports import free_addresses

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.group import CoreOptions
from headrace_raftlog.model.message import Message
from headrace_raftlog.model.snapshot import SnapshotOffer
from headrace_raftlog.node.host import Host
from headrace_raftlog.node.host_port import HostPort
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_raftlog.node.node import NodeOptions, RaftNode
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.writing.identity import Identity

DEADLINE_S = 60.0
VOTERS = (1, 2, 3)
LOG = LogOptions(segment_bytes=1 << 20, entry_bytes_max=1 << 19)


def found(directory: Path, nodes: Iterable[int]) -> None:
    """Lay out data directories as nodes leave them that have founded a cluster."""
    places = {node: str(directory / str(node)) for node in nodes}
    new = {node: Identity.open(place, "test", node) for node, place in places.items()}
    disks = {node: identity.disk for node, identity in new.items()}
    for node, place in places.items():
        SharedLog.open(place, LOG, new[node]).close()
        replace(new[node].form(place, disks), boot=0).write(place)


class Machine:
    """Keeps every entry and every change of leadership.

    Its snapshots hold the data of entries that are not live; that of the others stays in the log.
    """

    def __init__(self, changed: asyncio.Event) -> None:
        self.applied: list[bytes] = []
        self.indexes: list[int] = []
        self.leaders: list[tuple[int, int, bool]] = []
        self.restored = 0
        self.version = "test"  # of its digests
        self.held_here: list[int] = []
        self.is_live: Callable[[int], bool] = lambda index: False
        self.read: Callable[[int], bytes] = lambda index: b""
        self._changed = changed

    def snapshot(self) -> tuple[bytes, array[int]]:
        live = [index for index in self.indexes if self.is_live(index)]
        bodies = zip(self.indexes, self.applied, strict=True)
        kept = [None if index in live else data.hex() for index, data in bodies]
        return json.dumps([self.indexes, kept]).encode(), array("Q", live)

    def held(self) -> array[int]:
        return array("Q", self.held_here)

    def digest(self) -> tuple[str, bytes]:
        return self.version, hashlib.sha256(b"|".join(self.applied)).digest()

    def restore(self, state: bytes) -> None:
        self.indexes, kept = json.loads(state)
        bodies = zip(self.indexes, kept, strict=True)
        self.applied = [
            self.read(index) if data is None else bytes.fromhex(data) for index, data in bodies
        ]
        self.restored += 1
        self._changed.set()

    def apply(self, entries: list[Entry]) -> None:
        self.applied += [entry.data for entry in entries]
        self.indexes += [entry.index for entry in entries]
        self._changed.set()

    def leadership(self, leader: int, term: int, serving: bool) -> None:
        self.leaders.append((leader, term, serving))
        self._changed.set()

    def quiesced(self) -> None:
        pass


class Cluster:
    """Nodes on loopback; `until` waits for a condition on what they report."""

    def __init__(
        self,
        directory: Path,
        addresses: dict[int, str],
        founders: tuple[int, ...] = VOTERS,
        **options: Any,
    ) -> None:
        if founders and not (directory / str(founders[0])).exists():
            found(directory, founders)
        self.changed = asyncio.Event()
        self.nodes: dict[int, RaftNode] = {}
        self.machines: dict[tuple[int, int], Machine] = {}
        self.payloads: dict[int, list[tuple[int, bytes]]] = {}
        self.peers: dict[int, list[tuple[int, bool, int]]] = {}
        self.fatal: dict[int, BaseException] = {}
        self.directory = directory
        self.addresses = addresses
        self.is_live: Callable[[int], bool] = lambda index: False
        self._options = options

    def make(self, node: int) -> RaftNode:
        """Return a node that reports to this cluster, not started."""
        options: dict[str, Any] = {
            "cluster": "test",
            "tick_ms": 20,
            "core": CoreOptions(),
        } | self._options
        made = RaftNode(
            NodeOptions(
                node=node,
                peers=self.addresses,
                data_dir=str(self.directory / str(node)),
                log=LOG,
                **options,
            )
        )
        payloads = self.payloads[node] = []
        peers = self.peers[node] = []
        made.on_payload = lambda *args: self._note(payloads, args)
        made.on_peer = lambda *args: self._note(peers, args)
        made.on_fatal = lambda error: self._note_fatal(node, error)
        return made

    def make_clone(self, node: int, directory: Path, address: str) -> RaftNode:
        """Return a second process of a node, with a copy of its data, at another address."""
        options = self.nodes[node].options
        return RaftNode(
            replace(options, data_dir=str(directory), peers={**self.addresses, node: address})
        )

    async def start(self, *nodes: int) -> None:
        for node in nodes:
            self.nodes[node] = self.make(node)
            await self.nodes[node].start()

    async def stop(self, *nodes: int) -> None:
        for node in nodes or tuple(self.nodes):
            await self.nodes.pop(node).stop()

    def create(
        self, group: int, *nodes: int, campaign: int = 0, founders: tuple[int, ...] = VOTERS
    ) -> None:
        """Create a group on some nodes, or all that run."""
        for node in nodes or tuple(self.nodes):
            machine = self.machines[node, group] = Machine(self.changed)
            machine.is_live = self.is_live
            machine.read = partial(self._body, node, group)
            self.nodes[node].create_group(group, founders, (), machine, campaign=node == campaign)

    def _body(self, node: int, group: int, index: int) -> bytes:
        return self.nodes[node]._log.group(group).entry(index).data

    def make_machine(self) -> Machine:
        """Return a machine for a group that the cluster does not keep; also at `solo`."""
        self.solo = Machine(self.changed)
        return self.solo

    def leader(self, group: int) -> int:
        """Return the node that serves a group, 0 while there is none."""
        return next((n for n, node in self.nodes.items() if node.serving(group)), 0)

    async def elected(self, group: int) -> int:
        await self.until(lambda: self.leader(group) != 0)
        return self.leader(group)

    async def propose(self, group: int, data: bytes) -> None:
        """Propose until it is applied at whoever leads; it may be applied twice."""
        while True:
            leader = await self.elected(group)
            index = self.nodes[leader].propose(group, data)
            if index > 0 and await self._applied(self.machines[leader, group], index):
                return

    async def _applied(self, machine: Machine, index: int) -> bool:
        """Wait until an entry is applied; False when the leader that took it leads no more."""
        leader_and_term = machine.leaders[-1][:2]  # who has no quorum leads no more in its own term
        await self.until(
            lambda: index in machine.indexes or machine.leaders[-1][:2] != leader_and_term
        )
        return index in machine.indexes

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def ticks(self, condition: Callable[[], bool]) -> None:
        """Wait for something that only ticks bring about and nothing reports."""
        loop = asyncio.get_running_loop()
        poll = loop.call_later(0.02, self._poll)
        self._poll_handle = poll
        try:
            await self.until(condition)
        finally:
            self._poll_handle.cancel()

    def _poll(self) -> None:
        self.changed.set()
        self._poll_handle = asyncio.get_running_loop().call_later(0.02, self._poll)

    def _note(self, where: list[Any], what: Any) -> None:
        where.append(what)
        self.changed.set()

    def _note_fatal(self, node: int, error: BaseException) -> None:
        self.fatal[node] = error
        self.changed.set()


class EventMachine:
    """Records its events."""

    def __init__(self, events: list[str], name: str) -> None:
        self.events = events
        self.name = name
        self.react: Callable[[], object] | None = None

    def apply(self, entries: list[Entry]) -> None:
        self.events += [f"{self.name} applies {entry.data.decode()}" for entry in entries]
        if self.react is not None:
            self.react()

    def snapshot(self) -> tuple[bytes, array[int]]:
        self.events.append(f"{self.name} snapshot")
        return self.name.encode(), array("Q")

    def held(self) -> array[int]:
        return array("Q")

    def digest(self) -> tuple[str, bytes]:
        return "", b""

    def restore(self, state: bytes) -> None:
        self.events.append(f"{self.name} restores {state.decode()}")

    def leadership(self, leader: int, term: int, serving: bool) -> None:
        self.events.append(f"{self.name} led by {leader}, serving {serving}")

    def quiesced(self) -> None:
        self.events.append(f"{self.name} is quiescent")


class World:
    """Stands for loop and network; `settle` runs turns until nothing is left to do."""

    def __init__(self, directory: Path, options: CoreOptions, files: Files | None = None) -> None:
        self.turns: list[Callable[[], None]] = []
        self.posted: list[Message] = []
        self.events: list[str] = []
        self.failures: list[BaseException] = []
        self.accepts = True
        self.writes = 0
        self.log = SharedLog.open(str(directory), LogOptions(segment_bytes=1 << 20), files=files)
        self._durable: list[object] = []
        self._arrived = threading.Condition()
        self.log.writer.on_durable = self._from_writer
        self.offers: list[tuple[HostedGroup, SnapshotOffer]] = []
        self.up: list[int] = []
        self.suspended: list[HostedGroup] = []
        port = HostPort(
            self._post,
            self._flush,
            self.turns.append,
            self.failures.append,
            self._leader,
            lambda hosted, offer: self.offers.append((hosted, offer)),
            lambda: self.up,
            lambda: 77,
            self.suspended.append,
        )
        self.host = Host(1, 1, options, self.log, port)

    def settle(self, tokens: int = 0) -> None:
        """Run all turns, then wait for so many finished writes and run on."""
        self.run_turns()
        while tokens > 0:
            with self._arrived:
                assert self._arrived.wait_for(lambda: self._durable, DEADLINE_S)
                done, self._durable = self._durable, []
            tokens -= len(done)
            self.writes += len(done)
            self.host.durable(done)
            self.run_turns()

    def machine(self, name: object) -> EventMachine:
        """Return the application of a group that writes into `events`."""
        return EventMachine(self.events, f"g{name}")

    def run_turns(self) -> None:
        while self.turns:
            self.turns.pop(0)()

    def _post(self, message: Message) -> bool:
        self.posted.append(message)
        return self.accepts

    def _flush(self) -> None:
        self.events.append("flush")

    def _leader(self, group: int, leader: int) -> None:
        self.events.append(f"leader of {group} is {leader}")

    def _from_writer(self, tokens: list[object]) -> None:
        with self._arrived:
            self._durable += tokens
            self._arrived.notify()


@pytest.fixture(name="world_type")
def _world_type() -> type[World]:
    return World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, CoreOptions())
    yield made
    made.log.close()


@pytest.fixture
def addresses() -> dict[int, str]:
    """Five addresses on loopback."""
    return free_addresses(5)


@pytest.fixture
def cluster(tmp_path: Path, addresses: dict[int, str]) -> Callable[..., Cluster]:
    """Return a maker of clusters, of three nodes by default; to be called within a running loop."""

    def make(nodes: Iterable[int] = VOTERS, **options: Any) -> Cluster:
        return Cluster(tmp_path, {node: addresses[node] for node in nodes}, **options)

    return make
