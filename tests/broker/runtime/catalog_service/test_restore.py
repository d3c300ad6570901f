"""A node that was away for long gets the catalog's state instead of its log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.cluster_version import CLUSTER_VERSION
from headrace_broker.catalog.event import Event, QueueAdded, QueueRemoved
from headrace_broker.catalog.result import Exists, Ok
from headrace_broker.catalog.store import SnapshotError
from headrace_broker.catalog.version import CATALOG_VERSION
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.model.definition import Node
from headrace_broker.runtime.cluster.catalog_service import CatalogService, CatalogUnavailableError
from headrace_raftlog.model.group import CATALOG_GROUP
from headrace_raftlog.model.membership import Membership

Run = Callable[[Callable[[Any], Awaitable[None]]], None]


def declare(name: str) -> commands.DeclareQueue:
    return commands.DeclareQueue("/", name, "quorum", replicas=3)


class TestRestore:
    def test_changes_the_same_catalog_and_tells_the_difference(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            old = (await cluster.services[1].submit(declare("old"))).value
            await cluster.settle()
            late = cluster.services[3]
            catalog = late.catalog
            heard: list[Event] = []
            late.subscribe(heard.extend)
            heard.clear()
            cluster.deaf = {3}
            await cluster.services[1].submit(commands.DeleteQueue("/", "old"))
            new = (await cluster.services[1].submit(declare("new"))).value
            cluster.install(3)
            assert heard == [QueueRemoved(old), QueueAdded(new)]
            assert late.catalog is catalog
            assert len(cluster.digests()) == 1

        run(scenario)

    def test_change_that_is_part_of_the_state_is_answered(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            waiting = asyncio.create_task(cluster.services[3].submit(declare("q")))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            cluster.deaf = {3}  # it arrives, and its result does not
            await cluster.settle()
            assert cluster.services[1].catalog.queue("/", "q") is not None
            assert not waiting.done()
            cluster.install(3)
            cluster.deaf = set()
            queue = cluster.services[1].catalog.queue("/", "q")
            assert await waiting == Exists(queue)
            assert len(cluster.services[1].catalog.queues()) == 1

        run(scenario)

    def test_first_state_makes_a_new_node_ready(self, make_cluster: Any) -> None:
        async def main() -> None:
            cluster = make_cluster()
            cluster.deaf = {3}
            cluster.elect(1)
            await cluster.services[1].wait_ready(10.0)
            cluster.install(3)
            cluster.deaf = set()
            await cluster.services[3].wait_ready(10.0)
            for service in cluster.services.values():
                await service.stop()

        asyncio.run(main())

    def test_no_entry_is_needed_beside_the_state(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            state, live = cluster.services[1].snapshot()
            assert (live.typecode, len(live)) == ("Q", 0)
            assert state == cluster.services[2].snapshot()[0]

        run(scenario)

    def test_of_what_is_no_state_changes_nothing(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            service = cluster.services[1]
            heard: list[Event] = []
            service.subscribe(heard.extend)
            heard.clear()
            with pytest.raises(SnapshotError):
                service.restore(b"nonsense")
            assert heard == []
            assert len(cluster.digests()) == 1

        run(scenario)


class TestCatchUp:
    def test_waits_for_what_was_decided_before(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            cluster.deaf = {3}
            assert isinstance(await cluster.services[1].submit(declare("q")), Ok)
            waiting = asyncio.create_task(cluster.services[3].catch_up())
            await cluster.settle()
            assert not waiting.done()
            cluster.deaf = set()
            cluster.deliver()
            await waiting
            assert cluster.services[3].catalog.queue("/", "q") is not None

        run(scenario)

    def test_without_a_quorum_ends_as_unavailable(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            with pytest.raises(CatalogUnavailableError, match="no quorum"):
                await cluster.services[2].catch_up()

        run(scenario)


def test_queued_proposal_counts_as_taken(run: Run) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.queued = True
        cluster.elect(1)
        service = cluster.services[2]
        assert isinstance(await service.submit(declare("q")), Ok)
        assert cluster.services[1].dropped_count == 0
        before = len(cluster.log)
        cluster.holding = True
        waiting = asyncio.create_task(cluster.services[1].submit(declare("r")))
        await asyncio.sleep(2.0)  # time to send again, were it not taken
        assert len(cluster.log) == before + 1
        cluster.holding = False
        cluster.commit()
        await waiting

    run(scenario)


@pytest.mark.parametrize(
    ("count", "voters", "learners"),
    [(3, (1, 2, 3), ()), (4, (1, 2, 3), (4,)), (6, (1, 2, 3, 4, 5), (6,))],
)
def test_founders_vote_or_learn_and_nobody_is_wanted_before_the_catalog_is_known(
    make_cluster: Any, count: int, voters: tuple[int, ...], learners: tuple[int, ...]
) -> None:
    async def main() -> None:
        raft = make_cluster().rafts[2]
        nodes = [Node(number, f"n{number}", f"h:{number}") for number in range(1, count + 1)]
        CatalogService(raft, 2, nodes, lambda *_: True).start()
        assert raft.created == (CATALOG_GROUP, voters, learners, False)
        assert raft.wanted == (0, (), ())

    asyncio.run(main())


async def with_a_fourth(cluster: Any) -> Any:
    """Start all services, have the first lead and admit a fourth node; return the first."""
    cluster.elect(1)
    for service in cluster.services.values():
        service.start()
    first = cluster.services[1]
    cluster.announce()
    await first.submit(commands.AdmitNode(Node(4, "n4", "h:4", disk=44)))
    await cluster.settle()
    return first


def test_catalogs_log_lives_on_the_nodes_that_it_names(run: Run) -> None:
    async def scenario(cluster: Any) -> None:
        first = await with_a_fourth(cluster)
        rafts = cluster.rafts.values()
        assert [raft.wanted for raft in rafts] == [(0, (1, 2, 3, 4), (1, 2, 3))] * 3
        cluster.announce(4)
        await first.submit(commands.ForgetNode(2))
        await cluster.settle()
        assert [raft.wanted for raft in rafts] == [(0, (1, 3, 4), (1, 3, 4))] * 3

    run(scenario)


def test_voters_are_chosen_anew_when_a_zone_is_said_and_by_a_new_leader(run: Run) -> None:
    async def scenario(cluster: Any) -> None:
        first = await with_a_fourth(cluster)
        cluster.announce(4)
        await first.submit(commands.RaiseClusterVersion(CLUSTER_VERSION))
        for node, zone in ((1, "a"), (2, "a"), (3, "b"), (4, "c")):
            said = commands.AnnounceNode(
                node, MACHINE_VERSION, catalog_version=CATALOG_VERSION, zone=zone
            )
            await first.submit(said)
        await cluster.settle()
        wanted = [raft.wanted for raft in cluster.rafts.values()]
        assert wanted == [(0, (1, 2, 3, 4), voters) for voters in ((1, 3, 4), (2, 3, 4), (1, 3, 4))]
        second = cluster.rafts[2]
        second.membership = Membership((1, 3, 4))
        cluster.elect(2)
        await cluster.settle()
        assert second.wanted == (0, (1, 2, 3, 4), (1, 3, 4))

    run(scenario)
