"""Every node knows what machine the others run, also one that could not read that before."""

from __future__ import annotations

from typing import Any


def versions(service: Any) -> list[int]:
    return [node.machine_version for node in service.catalog.nodes()]


def test_nodes_tell_each_other_what_they_run(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.elect(1)
        for service in cluster.services.values():
            service.announce(2)
        await cluster.settle()
        assert [versions(service) for service in cluster.services.values()] == [[2, 2, 2]] * 3
        assert len(cluster.digests()) == 1

    run(scenario)


def test_node_that_is_new_is_told_again(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.elect(1)
        cluster.services[1].announce(2)
        await cluster.settle()
        written = len(cluster.log)
        cluster.services[3].announce(2)
        await cluster.settle()
        # Node 3's, and node 1's once more, in the log that node 3 reads from here on.
        assert len(cluster.log) == written + 2
        assert versions(cluster.services[3]) == [2, 1, 2]
        assert len(cluster.digests()) == 1

    run(scenario)


def test_announcement_waits_for_a_leader(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.services[2].announce(2)
        await cluster.settle()
        assert versions(cluster.services[2]) == [1, 1, 1]
        cluster.elect(3)
        await cluster.settle()
        assert versions(cluster.services[2]) == [1, 2, 1]

    run(scenario)
