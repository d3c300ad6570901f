"""Commits and their duration, counted by the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace_raftlog.model.group import LEADER, CoreOptions
from headrace_raftlog.model.histogram import Histogram
from headrace_raftlog.model.message import HEARTBEAT, PRE_VOTE_REPLY, VOTE_REPLY, Message
from headrace_raftlog.node.commit_meter import CommitMeter


class Clock:
    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(world: Any) -> Clock:
    clock = Clock()
    world.host.commits = CommitMeter(clock)
    return clock


def lead(world: Any, *groups: int) -> None:
    """Found groups of one voter; their first entries commit."""
    for group in groups:
        world.host.create_group(group, (1,), (), world.machine(group), True)
    world.run_turns()
    while not all(world.host.find(group).core.ready_to_serve for group in groups):
        world.settle(1)


def test_one_entry_is_timed_at_a_time(world: Any, clock: Clock) -> None:
    lead(world, 1, 2)
    meter = world.host.commits
    before = int(meter.entries)
    world.host.propose(1, b"timed", False)
    clock.now += 700
    world.host.propose(2, b"not timed", False)
    world.host.propose(1, b"nor this", False)
    clock.now += 2_000
    world.settle(2)
    assert meter.entries == before + 3
    assert sum(meter.latency.counts) == 1
    assert meter.latency.sum_us == 2_700
    world.host.propose(2, b"timed again", False)
    clock.now += 5
    world.settle(1)
    assert meter.latency.sum_us == 2_705


def test_an_entry_whose_leader_is_deposed_is_not_timed(tmp_path: Path, world_type: Any) -> None:
    world = world_type(tmp_path, CoreOptions())
    meter = world.host.commits
    world.host.create_group(1, (1, 2, 3), (), world.machine(1), True)
    world.run_turns()
    world.host.receive([Message(PRE_VOTE_REPLY, 1, 2, 1, 1)])
    world.settle(1)
    world.host.receive([Message(VOTE_REPLY, 1, 2, 1, 1)])
    world.settle(1)
    assert world.host.find(1).core.role == LEADER
    assert world.host.propose(1, b"lost", False) == 2
    assert meter.timing
    world.host.receive([Message(HEARTBEAT, 1, 3, 1, 5)])
    world.settle(1)
    assert meter.timing
    world.host.tick()
    assert not meter.timing
    assert sum(meter.latency.counts) == 0
    assert (meter.elections, meter.leader_changes) == (5, 2)
    world.settle()
    world.log.close()


def test_a_group_that_is_removed_is_not_waited_for(world: Any) -> None:
    lead(world, 1, 2)
    world.host.propose(1, b"gone", False)
    world.host.remove_group(1)
    world.host.tick()
    assert not world.host.commits.timing
    assert world.host.commits.elections == 2


def test_batches_that_were_synced_are_timed(world: Any) -> None:
    lead(world, 1)
    syncs, written, _ = world.log.writes()
    count = sum(syncs.counts)
    world.host.propose(1, bytes(1000), False)
    world.settle(1)
    assert sum(syncs.counts) > count
    assert world.log.writes()[1] >= written + 1000


@pytest.mark.parametrize(
    ("us", "bucket"), [(-5, 0), (0, 0), (10, 0), (11, 1), (100, 1), (101, 2), (10**12, 2)]
)
def test_durations_fall_into_the_first_bucket_that_holds_them(us: int, bucket: int) -> None:
    histogram = Histogram((10, 100))
    histogram.observe(us)
    assert histogram.counts == [int(at == bucket) for at in range(3)]
    assert histogram.sum_us == max(us, 0)
