"""Groups that grow, shrink and move, leaders that hand over, and nodes that are drained."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace_raftlog.model.group import CoreOptions
from headrace_raftlog.model.membership import Membership, member_node
from headrace_raftlog.node.drain import drain

MakeCluster = Callable[..., Any]
FIVE = (1, 2, 3, 4, 5)


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(body)


async def start(c: Any, founders: tuple[int, ...]) -> None:
    """Start all nodes, and group 5 on its founders."""
    await c.start(*c.addresses)
    await asyncio.gather(*(node.wait_formed() for node in c.nodes.values()))
    c.create(5, *founders, founders=founders)
    for at in range(5):
        await c.propose(5, b"%d" % at)


async def move(c: Any, *nodes: int) -> None:
    """Say where group 5 should be, let new nodes create it, and wait until it is there."""
    there = [n for n in c.nodes if c.nodes[n]._host.find(5) is not None]
    for node in nodes:
        if node not in there:
            c.create(5, node, founders=())
    for node in {*there, *nodes}:
        c.nodes[node].set_members(5, nodes)
    goal = Membership(nodes)

    def arrived() -> bool:
        return c.leader(5) in nodes and all(c.nodes[n].members(5) == goal for n in nodes)

    await c.ticks(arrived)
    await c.propose(5, b"served by %d" % len(nodes))
    await c.until(
        lambda: all(c.machines[n, 5].applied == c.machines[nodes[0], 5].applied for n in nodes)
    )


@pytest.mark.parametrize(
    "steps",
    [
        [(1,), (1, 2, 3)],
        [(1, 2, 3, 4, 5), (1, 2, 3)],
        [(1, 2, 3), (1, 2, 4)],
        [(1, 2, 3), (3, 4, 5)],
        [(1,), (2,)],
        [(1, 2, 3), (2,), (2, 3, 4), (5,)],
    ],
)
def test_group_goes_where_it_is_wanted(cluster: MakeCluster, steps: list[tuple[int, ...]]) -> None:
    async def body() -> None:
        c = cluster(FIVE, founders=FIVE)
        await start(c, steps[0])
        for nodes in steps[1:]:
            await move(c, *nodes)
        first = list(dict.fromkeys(c.machines[steps[-1][0], 5].applied))
        assert first[:5] == [b"0", b"1", b"2", b"3", b"4"]
        await c.stop()
        assert not c.fatal

    run(body())


def test_leaders_own_seat_is_removed_and_another_serves_at_once(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster(core=CoreOptions(election_ticks=200))
        await c.start(1, 2, 3)
        await c.until(lambda: all(len(c.peers[n]) == 2 for n in (1, 2, 3)))
        c.create(5, campaign=1)
        assert await c.elected(5) == 1
        await c.propose(5, b"x")
        for node in (1, 2, 3):
            c.nodes[node].set_members(5, (2, 3))
        ticks = c.nodes[2]._host.find(5)
        await c.ticks(lambda: c.leader(5) in (2, 3))
        assert ticks.leaderless_ticks < 100  # no election timeout had to pass
        await c.ticks(lambda: c.nodes[2].members(5) == Membership((2, 3)))
        await c.propose(5, b"y")
        assert not c.nodes[1].serving(5)
        await c.stop()

    run(body())


def test_removed_member_that_is_wanted_again_joins_again(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster(core=CoreOptions(election_ticks=4))
        await start(c, (1, 2, 3))
        leader = await c.elected(5)
        out = next(n for n in (1, 2, 3) if n != leader)
        rest = tuple(n for n in (1, 2, 3) if n != out)
        await move(c, *rest)
        await c.ticks(lambda: c.nodes[leader]._host.find(5).core.progress(out) is None)
        await move(c, 1, 2, 3)
        assert c.nodes[out].members(5) == Membership((1, 2, 3))
        await c.stop()

    run(body())


def test_node_that_left_a_group_comes_back_as_a_new_member_of_it(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster(core=CoreOptions(election_ticks=4))
        await start(c, (1, 2, 3))
        await move(c, 1, 2)
        c.nodes[3].leave_group(5)
        c.nodes[3].leave_group(5)
        assert c.nodes[3]._host.find(5) is None
        await c.propose(5, b"without 3")
        await c.stop(3)
        await c.start(3)
        await c.nodes[3].wait_formed()
        c.create(5, 3, founders=(1, 2, 3))  # which it was, and may not be again
        assert c.nodes[3].members(5) == Membership(())
        for node in (1, 2, 3):
            c.nodes[node].set_members(5, (1, 2, 3))

        def is_back() -> bool:
            voters = c.nodes[1].members(5).voters
            return {member_node(each) for each in voters} == {1, 2, 3} and c.leader(5) != 0

        await c.ticks(is_back)
        assert c.nodes[3]._host.find(5).core.member > 1023
        await c.propose(5, b"with 3")
        await c.until(lambda: c.machines[3, 5].applied == c.machines[1, 5].applied)
        await c.stop()
        assert not c.fatal

    run(body())


def test_group_that_was_never_here_is_not_left(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await start(c, (1, 2))
        c.nodes[3].leave_group(5)
        assert not c.nodes[3]._log.known(5)
        await c.stop()

    run(body())


def test_group_that_was_left_may_be_removed_for_good(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await start(c, (1, 2, 3))
        c.nodes[3].leave_group(5)
        c.nodes[3].remove_group(5)
        with pytest.raises(KeyError, match="removed"):
            c.create(5, 3)
        await c.stop()

    run(body())


def test_leader_tells_how_far_members_are(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await start(c, (1, 2, 3))
        leader = await c.elected(5)
        node = c.nodes[leader]
        await c.ticks(lambda: all(at.match == node.last_index(5) for at in node.progress(5)))
        assert node.led() == [5]
        assert node.is_settled(5)
        assert [(member_node(each.member), each.role) for each in node.progress(5)] == [
            (1, "voter"),
            (2, "voter"),
            (3, "voter"),
        ]
        assert all(each.reachable and not each.fetching for each in node.progress(5))
        follower = next(n for n in (1, 2, 3) if n != leader)
        assert c.nodes[follower].progress(5) == []
        assert not c.nodes[follower].is_settled(5)
        await c.stop(follower)
        await c.ticks(lambda: any(not each.reachable for each in node.progress(5)))
        await c.stop()

    run(body())


def test_drain_avoids_nodes_that_are_drained_as_well(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await start(c, (1, 2, 3))
        leader = await c.elected(5)
        others = [n for n in (1, 2, 3) if n != leader]
        assert await c.nodes[leader].drain(0.2, lambda: others) == [5]
        assert await c.nodes[leader].drain(20.0, lambda: others[:1]) == []
        await c.ticks(lambda: c.leader(5) == others[1])
        await c.stop()

    run(body())


def test_members_must_be_nodes(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await start(c, (1, 2, 3))
        for nodes in ((), (0,), (1024,), tuple(range(1, 18))):
            with pytest.raises(ValueError, match="nodes"):
                c.nodes[1].set_members(5, nodes)
        for voting in ((), (4, 9), tuple(range(1, 9))):
            with pytest.raises(ValueError, match="voters"):
                c.nodes[1].set_members(5, tuple(range(1, 9)), voting)
        with pytest.raises(KeyError, match="group 9"):
            c.nodes[1].set_members(9, (1,))
        await c.stop()

    run(body())


def test_leadership_is_handed_over_under_load_and_nothing_is_lost(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await start(c, (1, 2, 3))
        taken: list[bytes] = []
        number = 0

        def load() -> None:
            nonlocal number
            leader = c.leader(5)
            for _ in range(20):
                number += 1
                data = b"load %d" % number
                if leader and c.nodes[leader].propose(5, data, urgent=number % 2 == 0) > 0:
                    taken.append(data)

        for target in (1, 2, 3, 1, 2, 3):
            leader = await c.elected(5)
            assert not c.nodes[leader].transfer(5, leader)
            assert not c.nodes[leader].transfer(5, 9)
            load()
            if leader != target:
                assert c.nodes[leader].transfer(5, target)
                assert not c.nodes[leader].transfer(5, target)
                assert not c.nodes[target].transfer(5, leader)
            load()
            await c.until(lambda t=target: c.leader(5) == t)
            load()
        assert len(taken) > 100
        await c.until(lambda: all(set(taken) <= set(c.machines[n, 5].applied) for n in (1, 2, 3)))
        assert not c.nodes[1].transfer(6, 2)
        await c.stop()

    run(body())


def test_drained_node_leads_nothing_that_others_can_lead(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster(core=CoreOptions(election_ticks=50, quiesce_ticks=5))
        await c.start(1, 2, 3)
        await c.until(lambda: all(len(c.peers[n]) == 2 for n in (1, 2, 3)))
        groups = range(10, 110)
        for group in groups:
            c.create(group, campaign=1)
        await c.until(lambda: all(c.leader(g) == 1 for g in groups))
        c.create(7, 1, founders=(1,), campaign=1)
        await c.until(lambda: c.leader(7) == 1)
        assert await c.nodes[1].drain() == [7]
        await c.until(lambda: all(c.leader(g) in (2, 3) for g in groups))
        assert await c.nodes[1].drain() == [7]
        await c.stop()

    run(body())


class Unwilling:
    """A host that hands nothing over."""

    def __init__(self, host: Any) -> None:
        self._host = host

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def transfer(self, hosted: Any, target: int) -> bool:
        return False


def test_drain_ends_in_time_with_what_is_left(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await start(c, (1, 2, 3))
        leader = await c.elected(5)
        unwilling: Any = Unwilling(c.nodes[leader]._host)
        assert await drain(unwilling, 0.01, 0.2) == [5]
        await c.stop()

    run(body())
