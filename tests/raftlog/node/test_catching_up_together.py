"""Many groups of a node that was away, whose members were left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.raftlog.node.inside import entry_data, snapshot_now

from headrace_raftlog.transport.bulk_client import UnknownCallError

MakeCluster = Callable[..., Any]
ALL = (1, 2, 3)
AWAY = 3
GROUPS = range(5, 25)


async def write(c: Any, group: int, count: int) -> None:
    for at in range(count):
        await c.propose(group, b"%06d" % at)


def first_index(c: Any, node: int, group: int) -> int:
    return int(c.nodes[node]._host.find(group).view.first_index())


async def left_behind(cluster: MakeCluster, groups: range) -> Any:
    """Return a cluster whose last node runs again, without the groups, whose entries are gone."""
    c = cluster(snapshot_every_bytes=20_000)
    c.is_live = lambda index: index % 10 == 0
    await c.start(*ALL)
    for group in groups:
        c.create(group)
        await write(c, group, 3)
        await equal(c, group)
    last = {group: c.machines[AWAY, group].indexes[-1] for group in groups}
    await c.stop(AWAY)
    for group in groups:
        await write(c, group, 20)
        leader = await c.elected(group)
        snapshot_now(c.nodes[leader], group)
        await c.ticks(
            lambda group=group, leader=leader: first_index(c, leader, group) > last[group] + 1
        )
    await c.start(AWAY)
    return c


async def equal(c: Any, group: int) -> None:
    def same() -> bool:
        first, *rest = (c.machines[n, group] for n in ALL)
        return all((m.indexes, m.applied) == (first.indexes, first.applied) for m in rest)

    await c.ticks(same)


class Bulk:
    """Calls to peers, noted; small snapshots as a test wants them."""

    def __init__(self, real: Any, small: Callable[..., Any] | None = None) -> None:
        self.small: list[int] = []  # groups of each call
        self.large: list[int] = []  # a group each
        self._real = real
        self._instead = small or real.small_snapshots

    def small_snapshots(self, node: int, member: int, wanted: Any) -> Any:
        self.small.append(len(wanted))
        return self._instead(node, member, wanted)

    def snapshot(self, node: int, group: int, *more: Any) -> Any:
        self.large.append(group)
        return self._real.snapshot(node, group, *more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def interpose(c: Any, small: Callable[..., Any] | None = None) -> Bulk:
    fetcher = c.nodes[AWAY]._fetcher
    bulk = Bulk(fetcher._bulk, small)
    fetcher._bulk = fetcher._small._bulk = bulk
    return bulk


def test_many_groups_catch_up_with_few_calls(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = await left_behind(cluster, GROUPS)
        bulk = interpose(c)
        for group in GROUPS:
            c.create(group, AWAY)
        for group in GROUPS:
            await equal(c, group)
            machine = c.machines[AWAY, group]
            live = [index for index in machine.indexes if index % 10 == 0]
            assert live
            for index in live:
                said = machine.applied[machine.indexes.index(index)]
                assert entry_data(c.nodes[AWAY], group, index) == said
        fetcher = c.nodes[AWAY]._fetcher
        assert not bulk.large
        assert fetcher.installed == sum(bulk.small) == len(GROUPS)
        assert fetcher.entries_fetched >= len(GROUPS)
        assert len(bulk.small) < len(GROUPS) / 2
        await c.stop()

    asyncio.run(body())


def test_a_leader_of_an_earlier_release_is_asked_group_by_group(cluster: MakeCluster) -> None:
    async def unknown(*args: Any) -> AsyncIterator[None]:
        for each in list[None]():
            yield each
        raise UnknownCallError("node 1: UNIMPLEMENTED")

    async def body() -> None:
        groups = range(5, 8)
        c = await left_behind(cluster, groups)
        bulk = interpose(c, unknown)
        for group in groups:
            c.create(group, AWAY)
        for group in groups:
            await equal(c, group)
        assert bulk.small
        assert sorted(bulk.large) == list(groups)
        await c.stop()

    asyncio.run(body())


def test_a_connection_that_is_closed_meanwhile_leaves_no_group_behind(cluster: MakeCluster) -> None:
    """As when a peer moves, when certificates are narrowed, or another call falls silent."""

    async def body() -> None:
        groups = range(5, 9)
        c = await left_behind(cluster, groups)
        real = c.nodes[AWAY]._fetcher._bulk
        cut: list[int] = []

        async def small(node: int, *more: Any) -> AsyncIterator[Any]:
            if node not in cut:
                cut.append(node)
                asyncio.create_task(real.close(node))  # noqa: RUF006  (ends at once)
            async for each in real.small_snapshots(node, *more):
                yield each

        interpose(c, small)
        for group in groups:
            c.create(group, AWAY)
        for group in groups:
            await equal(c, group)
        assert cut
        await c.stop()

    asyncio.run(body())
