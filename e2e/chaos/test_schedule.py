"""Schedules follow from the seed, use every kind, and hit nodes that exist."""

from __future__ import annotations

import pytest
from e2e.chaos.schedule import (
    FLAPS,
    KINDS,
    LEADER,
    SHARD_KINDS,
    SHORT_KINDS,
    SHORT_SHARD_KINDS,
    Cut,
    Drain,
    Fault,
    Isolate,
    Kill,
    KillShard,
    Pause,
    PauseShard,
    Restart,
    Restore,
    Rot,
    SetClock,
    Slow,
    Step,
    Throttle,
    Truncate,
    Wipe,
    WipeShard,
    bridge,
    kinds_of,
    make_schedule,
    split,
)


def test_the_seed_decides() -> None:
    assert make_schedule(7, 5, 20) == make_schedule(7, 5, 20)
    assert make_schedule(7, 5, 20) != make_schedule(8, 5, 20)


@pytest.mark.parametrize("count", [3, 5])
def test_every_kind_comes_before_any_comes_again(count: int) -> None:
    steps = make_schedule(1, count, len(KINDS))
    assert {step.kind for step in steps} == set(KINDS)
    assert len(steps) == len(KINDS) + FLAPS - 1


def nodes_of(step: Step) -> set[int]:
    named: set[int] = set()
    for fault in step.faults:
        match fault:
            case Kill(nodes) | Restart(nodes) | Pause(nodes) | Slow(nodes, _):
                named.update(nodes)
            case KillShard(nodes, _) | PauseShard(nodes, _):
                named.update(nodes)
            case Drain(node, _) | WipeShard(node, _):
                named.add(node)
            case Rot(nodes) | SetClock(nodes, _) | Throttle(nodes, _):
                named.update(nodes)
            case Wipe(nodes, _) | Restore(nodes, _) | Truncate(nodes, _):
                named.update(nodes)
            case Isolate(node, _, _):
                named.add(node)
            case Cut(links):
                named.update(node for link in links for node in link)
    return named


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("count", [3, 5])
def test_steps_hit_nodes_that_exist_and_end_healthy(count: int, shards: int) -> None:
    kinds = kinds_of(shards)
    for seed in range(50):
        steps = make_schedule(seed, count, 2 * len(kinds), kinds, shards)
        for step in steps:
            assert step.faults
            assert nodes_of(step)
            assert nodes_of(step) <= set(range(count + 1))
        assert steps[-1].settle > 0


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("count", [3, 5])
def test_no_step_takes_the_data_of_two_of_three_replicas(count: int, shards: int) -> None:
    kinds = kinds_of(shards)
    for seed in range(50):
        for step in make_schedule(seed, count, 2 * len(kinds), kinds, shards):
            losers = {node for each in step.faults for node in loses_data(each)}
            assert len(losers) <= 1, "a queue has three replicas, also on five nodes"
            assert not losers or step.settle > 0, "what follows waits until the data is back"


def loses_data(fault: Fault) -> set[int]:
    if isinstance(fault, WipeShard):
        return {fault.node}
    return set(fault.nodes) if isinstance(fault, Wipe | Restore | Truncate) else set()


def test_short_kinds_are_kinds() -> None:
    assert set(SHORT_KINDS) <= set(KINDS)
    assert set(SHORT_SHARD_KINDS) <= set(kinds_of(2))
    assert kinds_of(1) == KINDS


def test_faults_of_shards_hit_each_of_them_and_the_one_that_leads() -> None:
    struck: set[tuple[str, int | None]] = set()
    victims: dict[str, set[int]] = {}
    for seed in range(200):
        for step in make_schedule(seed, 3, len(SHARD_KINDS), SHARD_KINDS, shards=2):
            [fault] = step.faults
            assert isinstance(fault, KillShard | PauseShard | WipeShard | Drain)
            struck.add((step.kind, fault.shard))
            victims.setdefault(step.kind, set()).update(nodes_of(step))
    alone = set(SHARD_KINDS) - {"drain", "drain-shard"}
    both = {(kind, shard) for kind in alone for shard in (0, 1)}
    assert struck == {*both, ("drain", None), ("drain-shard", 1)}
    assert victims["kill-leading-shard"] == {LEADER}
    assert victims["pause-shard"] == {LEADER, 1, 2, 3}
    for kind in ("kill-shard", "wipe-shard", "drain-shard", "drain"):
        assert victims[kind] == {1, 2, 3}


def test_split_cuts_between_the_sides_only() -> None:
    assert set(split([1], [2, 3])) == {(1, 2), (2, 1), (1, 3), (3, 1)}


def test_bridge_leaves_one_node_in_touch_with_all() -> None:
    cuts = set(bridge([1, 2, 3, 4, 5]))
    assert not {link for link in cuts if 3 in link}
    assert cuts == {link for a in (1, 2) for b in (4, 5) for link in ((a, b), (b, a))}
