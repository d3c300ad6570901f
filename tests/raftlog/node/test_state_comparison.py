"""Members whose state differs are found and rebuilt; the others go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from headrace_raftlog.model.errors import DamageFoundError
from headrace_raftlog.model.membership import member_node

if TYPE_CHECKING:
    from tests.raftlog.node.conftest import Cluster

GROUP = 7
ROUND_S = 0.05


async def _run(cluster: Cluster, count: int) -> int:
    """Start all nodes with a group of `count` founders; return its leader."""
    await cluster.start(*range(1, count + 1))
    for node in cluster.nodes.values():
        await node.wait_formed()
        node.on_diverged = _rebuilder(cluster, node.options.node)
    founders = tuple(range(1, count + 1))
    cluster.create(GROUP, campaign=1, founders=founders)
    for node in cluster.nodes.values():
        node.set_members(GROUP, founders)
    leader = await cluster.elected(GROUP)
    for number in range(20):
        await cluster.propose(GROUP, b"%d" % number)
    return leader


def _rebuilder(cluster: Cluster, node: int) -> Callable[[int], None]:
    def rebuild(group: int) -> None:
        cluster.nodes[node].leave_group(group)
        cluster.create(group, node)
        cluster.nodes[node].set_members(group, tuple(cluster.nodes))

    return rebuild


def _events(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, object]]:
    return [r.fields for r in caplog.records if getattr(r, "event", "") == name]  # type: ignore[attr-defined]


def test_member_that_only_learns_is_rebuilt_too(cluster: Callable[..., Cluster]) -> None:
    async def scenario() -> None:
        made = cluster((1, 2, 3, 4), digest_round_s=ROUND_S)
        await _run(made, 4)

        def set_members() -> None:
            for node in made.nodes.values():
                node.set_members(GROUP, tuple(made.nodes), (1, 2, 3))

        def rebuild(group: int) -> None:
            made.nodes[4].leave_group(group)
            made.create(group, 4)
            set_members()

        made.nodes[4].on_diverged = rebuild
        set_members()
        await made.ticks(lambda: made.nodes[4].members(GROUP).learners != ())
        await made.propose(GROUP, b"more")
        await made.until(lambda: len(made.machines[4, GROUP].applied) == 21)
        made.machines[4, GROUP].applied[3] = b"another"
        for node in made.nodes.values():  # what they compared before is no news
            node._comparison.peer_up()
        await made.ticks(lambda: made.nodes[4]._host.suspensions.rebuilt == 1)
        assert "differed" in made.nodes[4].damages()[GROUP]
        await made.ticks(lambda: made.nodes[4].damages() == {})
        assert made.nodes[4].members(GROUP).learners != ()
        await made.until(lambda: len(made.machines[4, GROUP].applied) == 21)
        assert made.machines[4, GROUP].applied == made.machines[1, GROUP].applied
        await made.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("leads", [True, False])
def test_member_that_differs_is_rebuilt_and_nothing_is_lost(
    cluster: Callable[..., Cluster], caplog: pytest.LogCaptureFixture, leads: bool
) -> None:
    async def scenario() -> None:
        made = cluster(digest_round_s=ROUND_S)
        leader = await _run(made, 3)
        wrong = leader if leads else leader % 3 + 1
        await made.until(lambda: len(made.machines[wrong, GROUP].applied) == 20)
        former = made.nodes[wrong].members(GROUP)
        made.machines[wrong, GROUP].applied[3] = b"another"
        for node in made.nodes.values():  # what they compared before is no news
            node._comparison.peer_up()
        await made.ticks(lambda: made.nodes[wrong]._host.suspensions.rebuilt == 1)
        assert "differed" in made.nodes[wrong].damages()[GROUP]

        def votes() -> bool:
            again = any(m != wrong and member_node(m) == wrong for m in _voters(made, wrong))
            assert again or GROUP in made.nodes[wrong].damages(), "before another node may stop"
            return again

        await made.ticks(votes)
        assert _voters(made, wrong) != former.voters
        await made.propose(GROUP, b"last")
        machines = [made.machines[node, GROUP] for node in made.nodes]
        await made.until(lambda: all(each.applied[-1:] == [b"last"] for each in machines))
        assert all(each.applied == machines[0].applied for each in machines)
        assert machines[0].applied == [b"%d" % number for number in range(20)] + [b"last"]
        assert made.nodes[wrong].damages() == {}
        assert [node._host.suspensions.rebuilt for node in made.nodes.values()].count(1) == 1
        await made.stop()

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    [told] = _events(caplog, "replica_diverged")
    assert told["group"] == GROUP
    assert not _events(caplog, "replicas_differ")


def _voters(made: Cluster, node: int) -> tuple[int, ...]:
    return made.nodes[node].members(GROUP).voters


def test_of_two_members_that_differ_none_is_rebuilt_and_it_is_reported(
    cluster: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        made = cluster((1, 2), digest_round_s=ROUND_S, founders=(1, 2))
        leader = await _run(made, 2)
        await made.until(lambda: len(made.machines[3 - leader, GROUP].applied) == 20)
        made.machines[3 - leader, GROUP].applied[3] = b"another"
        for node in made.nodes.values():
            node._comparison.peer_up()
        await made.ticks(lambda: GROUP in made.nodes[leader].damages())
        assert "nodes 1, 2 differ" in made.nodes[leader].damages()[GROUP]
        assert made.nodes[leader].figures().differing == 1
        assert not any(node.figures().diverged for node in made.nodes.values())
        await made.stop()

    asyncio.run(scenario())
    told = _events(caplog, "replicas_differ")
    assert told[0]["nodes"] == [1, 2]
    assert not _events(caplog, "replica_diverged")


def test_members_of_different_versions_are_not_compared(
    cluster: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        made = cluster(digest_round_s=ROUND_S)
        leader = await _run(made, 3)
        other = leader % 3 + 1
        await made.until(lambda: len(made.machines[other, GROUP].applied) == 20)
        made.machines[other, GROUP].applied[3] = b"another"
        made.machines[other, GROUP].version = "newer"
        comparison = made.nodes[leader]._comparison
        for _ in range(3):
            before = comparison.compared
            comparison.peer_up()
            await made.ticks(lambda before=before: comparison.compared > before)  # type: ignore[misc]
        assert not any(node.damages() for node in made.nodes.values())
        await made.stop()

    asyncio.run(scenario())
    assert not _events(caplog, "replica_diverged")
    assert not _events(caplog, "replicas_differ")


def test_node_without_a_handler_for_it_restarts_to_rebuild_the_group(
    cluster: Callable[..., Cluster],
) -> None:
    async def scenario() -> None:
        made = cluster(digest_round_s=ROUND_S)
        leader = await _run(made, 3)
        wrong = leader % 3 + 1
        made.nodes[wrong].on_diverged = None
        await made.until(lambda: len(made.machines[wrong, GROUP].applied) == 20)
        made.machines[wrong, GROUP].applied[3] = b"another"
        for node in made.nodes.values():
            node._comparison.peer_up()
        await made.until(lambda: wrong in made.fatal)
        assert isinstance(made.fatal[wrong], DamageFoundError)
        await made.stop(wrong)
        await made.start(wrong)
        await made.nodes[wrong].wait_formed()
        made.create(GROUP, wrong)
        made.nodes[wrong].set_members(GROUP, (1, 2, 3))
        await made.until(lambda: len(made.machines[wrong, GROUP].applied) == 20)
        expected = [b"%d" % number for number in range(20)]
        assert made.machines[wrong, GROUP].applied == expected
        await made.stop()

    asyncio.run(scenario())


def test_group_at_rest_is_compared_once(cluster: Callable[..., Cluster]) -> None:
    async def scenario() -> None:
        made = cluster(digest_round_s=ROUND_S)
        leader = await _run(made, 3)
        node, comparison = made.nodes[leader], made.nodes[leader]._comparison
        await made.ticks(lambda: GROUP in comparison._histories)
        comparison.peer_up()  # what it compared before may lie before the last entry
        last = node.last_index(GROUP)
        await made.ticks(lambda: comparison._histories[GROUP].done_index > last)
        compared, last = comparison.compared, node.last_index(GROUP)
        for _ in range(3):
            comparison._histories[GROUP].next_s = 0.0
            comparison._next_s = 0.0
            await made.ticks(lambda: comparison._next_s > 0.0)
        assert comparison.compared == compared
        assert node.last_index(GROUP) == last == comparison._histories[GROUP].done_index
        await made.stop()

    asyncio.run(scenario())


def test_node_that_comes_up_during_a_comparison_is_compared_in_the_next(
    cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        made = cluster(digest_round_s=ROUND_S)
        leader = await _run(made, 3)
        comparison, machine = made.nodes[leader]._comparison, made.machines[leader, GROUP]
        digest, compared = machine.digest, list[int]()

        def digest_while_a_node_comes() -> tuple[str, bytes]:
            if not compared:
                compared.append(comparison.compared)
                comparison.peer_up()
            return digest()

        monkeypatch.setattr(machine, "digest", digest_while_a_node_comes)
        comparison.peer_up()
        await made.ticks(lambda: bool(compared) and comparison.compared >= compared[0] + 2)
        await made.stop()

    asyncio.run(scenario())
