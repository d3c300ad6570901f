"""The catalog on three real nodes over loopback: real logs, real streams, real elections."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from e2e.harness.ports import free_addresses

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.result import Exists, Ok
from headrace_broker.model.definition import Binding, Node
from headrace_broker.runtime.cluster.catalog_service import CatalogService, CatalogTiming
from headrace_raftlog.model.group import CATALOG_GROUP
from headrace_raftlog.node.node import NodeOptions, RaftNode
from headrace_raftlog.storage.disk.options import LogOptions

DEADLINE_S = 60.0


class Cluster:
    """Nodes of this process, each with its directory."""

    def __init__(self, directory: Path, addresses: dict[int, str]) -> None:
        self.directory = directory
        self.addresses = addresses
        self.rafts: dict[int, RaftNode] = {}
        self.services: dict[int, CatalogService] = {}

    async def start(self, node: int) -> None:
        options = NodeOptions(
            cluster="test",
            node=node,
            peers=self.addresses,
            data_dir=str(self.directory / str(node)),
            tick_ms=20,
            log=LogOptions(segment_bytes=1 << 20),
        )
        raft = RaftNode(options)
        nodes = [Node(number, f"n{number}", where) for number, where in self.addresses.items()]
        timing = CatalogTiming(answer_seconds=DEADLINE_S, resend_seconds=0.1)
        service = CatalogService(raft, node, nodes, raft.send, timing)
        raft.on_payload = service.handle_forward
        self.rafts[node] = raft
        self.services[node] = service
        await raft.start()

    async def join(self, node: int) -> None:
        await self.rafts[node].wait_formed()
        self.services[node].start()

    async def stop(self, node: int) -> None:
        await self.services.pop(node).stop()
        await self.rafts.pop(node).stop()

    async def leader(self) -> int:
        """Return who leads once everybody is up to date."""
        while True:
            for service in self.services.values():
                await service.wait_ready(DEADLINE_S)
            for node, raft in self.rafts.items():
                if raft.serving(CATALOG_GROUP):
                    return node


@pytest.fixture
def addresses() -> dict[int, str]:
    """Three addresses on loopback."""
    return free_addresses(3)


def test_changes_survive_a_leader_and_a_restart(tmp_path: Path, addresses: dict[int, str]) -> None:
    async def main() -> None:
        cluster = Cluster(tmp_path, addresses)
        for node in addresses:
            await cluster.start(node)
        for node in addresses:
            await cluster.join(node)
        try:
            await scenario(cluster)
        finally:
            for node in list(cluster.rafts):
                await cluster.stop(node)

    asyncio.run(main())


async def scenario(cluster: Cluster) -> None:
    first = await cluster.leader()
    for node, service in cluster.services.items():
        assert service.catalog.user("guest") is not None
        declare = commands.DeclareQueue("/", f"q{node}", "quorum", replicas=3, preferred_node=node)
        result = await service.submit(declare)
        assert isinstance(result, Ok)
        queue = service.catalog.queue("/", f"q{node}")
        assert queue == result.value
        assert queue is not None
        assert queue.members[0] == node
        assert await service.submit(declare) == Exists(queue)

    await cluster.stop(first)
    binding = Binding("/", "amq.topic", "queue", "q1", "a.#")
    for service in cluster.services.values():
        assert isinstance(await service.submit(commands.Bind(binding)), Ok | Exists)
        assert service.catalog.bindings() == [binding]
    assert await cluster.leader() != first

    await cluster.start(first)
    await cluster.join(first)
    await cluster.leader()
    assert cluster.services[first].catalog.bindings() == [binding]
    deleted = await cluster.services[first].submit(commands.DeleteQueue("/", "q1"))
    assert isinstance(deleted, Ok)
    for service in cluster.services.values():
        await service.barrier()
    states = {service.catalog.applied_index: service for service in cluster.services.values()}
    newest = states[max(states)]
    for service in cluster.services.values():
        assert service.catalog.contents() == newest.catalog.contents()
        assert [queue.group for queue in service.catalog.queues()] == [2, 3]
