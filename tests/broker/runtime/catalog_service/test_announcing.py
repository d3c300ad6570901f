"""Every node knows what machine the others run, also one that could not read that before."""

from __future__ import annotations

from typing import Any

from headrace_broker.catalog.command import AnnounceNode
from headrace_broker.model.definition import Node


def what(node: int) -> AnnounceNode:
    """Return what a node says of itself."""
    return AnnounceNode(node, 2, 70 + node)


def versions(service: Any) -> list[int]:
    return [node.machine_version for node in service.catalog.nodes()]


def test_nodes_tell_each_other_what_they_run(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.elect(1)
        for node, service in cluster.services.items():
            service.announce(what(node))
        await cluster.settle()
        assert [versions(service) for service in cluster.services.values()] == [[2, 2, 2]] * 3
        disks = [node.disk for node in cluster.services[1].catalog.nodes()]
        assert disks == [71, 72, 73]
        assert len(cluster.digests()) == 1

    run(scenario)


def test_node_at_a_new_address_says_so_itself(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.elect(1)
        cluster.services[3].announce(AnnounceNode(3, 2, 73, "third", "elsewhere:1"))
        await cluster.settle()
        found = [service.catalog.node(3) for service in cluster.services.values()]
        assert found == [Node(3, "third", "elsewhere:1", machine_version=2, disk=73)] * 3

    run(scenario)


def test_node_that_is_new_is_told_again(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.elect(1)
        cluster.services[1].announce(what(1))
        await cluster.settle()
        written = len(cluster.log)
        cluster.services[3].announce(what(3))
        await cluster.settle()
        # Node 3's, and node 1's once more, in the log that node 3 reads from here on.
        assert len(cluster.log) == written + 2
        assert versions(cluster.services[3]) == [2, 1, 2]
        assert len(cluster.digests()) == 1

    run(scenario)


def test_announcement_waits_for_a_leader(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.services[2].announce(what(2))
        await cluster.settle()
        assert versions(cluster.services[2]) == [1, 1, 1]
        cluster.elect(3)
        await cluster.settle()
        assert versions(cluster.services[2]) == [1, 2, 1]

    run(scenario)
