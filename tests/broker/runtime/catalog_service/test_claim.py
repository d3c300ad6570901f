"""Boot counts that no two processes of a node share, whatever their data directories say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace_broker.catalog.request import decode_envelope
from headrace_broker.catalog.result import Ok
from headrace_broker.runtime.cluster.catalog_service import CatalogUnavailableError

from .conftest import DECLARE, Cluster, Run


def come_back(cluster: Cluster, node: int, boot: int) -> Any:
    """Start a node anew, with a directory that counts so many starts."""
    raft = cluster.rafts[node]
    raft.boot = boot
    raft.applied = 0
    service = cluster.services[node] = cluster.service(node)
    cluster.deliver()
    service.leadership(cluster.known_leader(node), cluster.term, cluster.leader == node)
    return service


def claimed(cluster: Cluster, node: int) -> list[int]:
    """Return the boots of a node whose requests are in the log, in order."""
    requests = [decode_envelope(data) for data in cluster.log]
    boots = [request.boot for request in requests if request and request.node == node]
    return list(dict.fromkeys(boots))


@pytest.mark.parametrize("boot", [1, 4, 5])
def test_boot_that_was_there_before_is_raised_beyond_all(run: Run, boot: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.elect(1)
        await come_back(cluster, 3, 5).barrier()
        assert cluster.rafts[3].boot == 5
        again = come_back(cluster, 3, boot)
        assert isinstance(await again.submit(DECLARE), Ok)
        assert cluster.rafts[3].boot == 6
        assert claimed(cluster, 3)[-1] == 6

    run(scenario)


def test_boot_that_is_new_is_kept(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.elect(1)
        await come_back(cluster, 3, 9).barrier()
        assert cluster.rafts[3].boot == 9

    run(scenario)


def test_no_boot_comes_twice_however_directories_are_lost(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.elect(1)
        boots = []
        for boot in (1, 2, 1, 2, 3, 4, 1, 1, 3):
            await come_back(cluster, 3, boot).barrier()
            boots.append(cluster.rafts[3].boot)
        assert boots == sorted(set(boots))

    run(scenario)


def test_answer_lost_in_a_snapshot_costs_a_boot_and_no_doubt(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.elect(1)
        service = come_back(cluster, 3, 7)
        cluster.deaf.add(3)
        waiting = asyncio.create_task(service.submit(DECLARE))
        await cluster.settle()
        cluster.deaf.discard(3)
        service._offer_all()
        await asyncio.sleep(0)
        cluster.deaf.add(3)
        await cluster.settle()
        assert 7 in claimed(cluster, 3), "its claim is in the log, and it has not heard"
        cluster.install(3)
        cluster.deaf.discard(3)
        assert isinstance(await waiting, Ok)
        assert cluster.rafts[3].boot == 8

    run(scenario)


def test_requests_of_the_same_boot_in_another_process_are_no_answers(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.elect(1)
        first = come_back(cluster, 3, 7)
        await first.barrier()
        second = come_back(cluster, 3, 7)
        assert first._next_number != second._next_number
        await second.barrier()
        assert cluster.rafts[3].boot == 8

    run(scenario)


def test_who_waits_for_a_boot_is_told_when_the_node_stops(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        service = come_back(cluster, 3, 7)
        waiting = asyncio.create_task(service.submit(DECLARE))
        await cluster.settle()
        await service.stop()
        with pytest.raises(CatalogUnavailableError):
            await waiting

    run(scenario)
