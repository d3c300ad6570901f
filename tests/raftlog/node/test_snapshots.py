"""When snapshots are taken, and what is restored from them."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import (
    SNAPSHOT_BYTES_PER_TICK,
    SNAPSHOT_COST_BYTES,
    SNAPSHOT_OUTRUN_FACTOR,
    SNAPSHOT_WAIT_FACTOR,
    SNAPSHOTS_PER_TICK,
)
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.message import (
    APPEND,
    APPEND_REPLY,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    PRE_VOTE_REPLY,
    SNAPSHOT,
    VOTE_REPLY,
    Message,
)
from headrace_raftlog.model.snapshot import Snapshot

EVERY = 10_000
DATA = bytes(1000)


@pytest.fixture
def small(world: Any) -> Any:
    """Return a world whose groups take snapshots often."""
    world.host.snapshots._every_bytes = EVERY
    return world


def alone(world: Any, group: int) -> Any:
    world.host.create_group(group, (1,), (), world.machine(group), True)
    hosted = world.host.find(group)
    world.run_turns()
    while not hosted.core.ready_to_serve:
        world.settle(1)
    return hosted


def apply(world: Any, hosted: Any, count: int) -> None:
    for _ in range(count):
        assert world.host.propose(hosted.group, DATA, False) > 0
    world.settle(1)
    assert hosted.core.applied_index == hosted.core.last_index


def first(hosted: Any) -> int:
    return int(hosted.view.first_index())


def test_snapshot_is_taken_when_enough_was_applied(small: Any) -> None:
    hosted = alone(small, 5)
    apply(small, hosted, 5)
    small.host.tick()
    assert first(hosted) == 1
    apply(small, hosted, 5)
    applied = hosted.core.applied_index
    small.host.tick()
    assert small.events.count("g5 snapshot") == 1
    small.host.tick()
    assert small.events.count("g5 snapshot") == 1
    apply(small, hosted, 1)  # whose write comes behind the snapshot's
    small.host.tick()
    assert first(hosted) == applied + 1


def test_big_states_are_saved_less_often(small: Any) -> None:
    hosted = alone(small, 5)
    hosted.handler.snapshot = lambda: (bytes(EVERY), array("Q"))
    apply(small, hosted, 10)
    small.host.tick()
    assert small.host.snapshots.taken == 1
    apply(small, hosted, 30)
    small.host.tick()
    assert small.host.snapshots.taken == 1
    apply(small, hosted, 10)
    small.host.tick()
    assert small.host.snapshots.taken == 2


def assert_taken_at_once(small: Any, most: int, state: bytes) -> None:
    groups = [alone(small, group) for group in range(most + 2)]
    for hosted in groups:
        hosted.handler.snapshot = lambda: (state, array("Q"))
        for _ in range(12):
            assert small.host.propose(hosted.group, DATA, False) > 0
    small.settle(len(groups))  # outruns the ticks: the first snapshots are taken at once
    assert small.host.snapshots.taken == most
    small.host.tick()
    assert small.host.snapshots.taken == len(groups)


def test_few_large_snapshots_are_taken_in_one_tick(small: Any) -> None:
    assert_taken_at_once(small, SNAPSHOTS_PER_TICK, bytes(SNAPSHOT_BYTES_PER_TICK))


def test_many_small_snapshots_are_taken_in_one_tick(small: Any) -> None:
    assert_taken_at_once(small, SNAPSHOT_BYTES_PER_TICK // SNAPSHOT_COST_BYTES, b"")


def test_fast_load_does_not_wait_for_a_tick(small: Any) -> None:
    hosted = alone(small, 5)
    apply(small, hosted, 10 * SNAPSHOT_OUTRUN_FACTOR)
    assert small.host.snapshots.taken == 1
    applied = hosted.core.applied_index
    apply(small, hosted, 1)
    assert first(hosted) > applied - 10
    assert not small.host.snapshots.is_outrun


def test_load_without_ticks_fills_no_more_files_than_it_needs(world: Any) -> None:
    world.host.snapshots._every_bytes = 128 << 10
    hosted = alone(world, 5)
    ledger = world.log.recovery.ledger
    largest = 0
    for _ in range(256):
        assert world.host.propose(5, bytes(64 << 10), False) > 0
        world.settle(1)
        largest = max(largest, len(ledger.segments))
    assert hosted.core.applied_index > 256
    assert largest <= 3, f"{largest} files of 1 MiB for 16 MiB of entries that nobody needs"


def test_outrun_ticks_leave_alone_what_is_not_due(small: Any) -> None:
    taken = small.host.snapshots
    for group in range(3 * SNAPSHOT_OUTRUN_FACTOR):
        apply(small, alone(small, group), 5)
    assert taken.taken == 0
    assert not taken.is_outrun


class Asking:
    """A log that asks for the same snapshots each time."""

    def __init__(self, log: Any) -> None:
        self.save_snapshot = log.save_snapshot

    def collect(self, bytes_max: int) -> list[int]:
        return [5, 99]


def test_log_may_ask_for_a_snapshot(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hosted = alone(small, 5)
    apply(small, hosted, 1)
    monkeypatch.setattr(small.host.snapshots, "_log", Asking(small.log))
    small.host.tick()
    small.host.tick()
    assert small.host.snapshots.taken == 1
    apply(small, hosted, 1)
    small.host.tick()
    assert small.host.snapshots.taken == 2


def lead(world: Any) -> Any:
    """Return group 5 of nodes 1, 2 and 3, led from here."""
    world.host.create_group(5, (1, 2, 3), (), world.machine(5), True)
    world.run_turns()
    world.host.receive([Message(PRE_VOTE_REPLY, 5, 2, 1, 1)])
    world.settle(1)
    world.host.receive([Message(VOTE_REPLY, 5, 2, 1, 1)])
    world.settle(1)
    hosted = world.host.find(5)
    for member in (2, 3):
        answer(world, hosted, member)
    return hosted


def answer(world: Any, hosted: Any, member: int, index: int = 0) -> None:
    core = hosted.core
    index = index or core.last_index
    world.host.receive([Message(APPEND_REPLY, 5, member, 1, core.term, index=index)])
    world.settle()


def test_leader_waits_for_a_follower_that_was_not_sent_what_a_snapshot_would_drop(
    small: Any,
) -> None:
    hosted = lead(small)
    progress = hosted.core.progress(3)
    progress.become_probe()  # something to node 3 got lost
    progress.probe_sent = True
    while hosted.unsaved_bytes < 2 * EVERY:
        apply_led(small, hosted)
    small.host.receive([Message(HEARTBEAT_REPLY, 5, 3, 1, hosted.core.term)])
    small.settle()
    small.host.tick()
    assert small.host.snapshots.taken == 0
    while hosted.unsaved_bytes < (SNAPSHOT_WAIT_FACTOR + 1) * EVERY:
        apply_led(small, hosted)
    small.host.tick()
    assert small.host.snapshots.taken == 1


def test_leader_does_not_wait_for_a_follower_that_is_out_of_reach(small: Any) -> None:
    hosted = lead(small)
    hosted.core.report_unreachable(3)
    hosted.core.progress(3).recent_active = False
    while hosted.unsaved_bytes < 2 * EVERY:
        apply_led(small, hosted)
    small.host.tick()
    assert small.host.snapshots.taken == 1


def apply_led(world: Any, hosted: Any) -> None:
    assert world.host.propose(5, DATA, False) > 0
    world.settle(1)
    answer(world, hosted, 2)
    assert hosted.core.applied_index == hosted.core.last_index


def follow(world: Any) -> Any:
    """Return group 5, led by node 2, with three entries here of which one is committed."""
    world.host.create_group(5, (1, 2, 3), (), world.machine(5), False)
    entries = [Entry(at, 1, 0, b"%d" % at) for at in (1, 2, 3)]
    world.host.receive([Message(APPEND, 5, 2, 1, 1, entries=entries, commit=1)])
    world.settle(1)
    return world.host.find(5)


def test_offer_goes_to_whoever_fetches_and_its_snapshot_takes_the_place_of_the_log(
    world: Any,
) -> None:
    hosted = follow(world)
    world.host.receive([Message(SNAPSHOT, 5, 2, 1, 2, index=9, log_term=2)])
    world.settle(1)
    [(offered, offer)] = world.offers
    assert offered is hosted
    assert (offer.leader, offer.index) == (2, 9)
    membership = Membership((1, 2, 4))
    snapshot = Snapshot(9, 2, membership, b"nine", array("Q", (1, 2, 7)))
    assert world.host.missing(hosted, snapshot) == [2, 7]
    world.host.add_incoming(hosted, [Entry(2, 2, 0, b"two"), Entry(7, 2, 0, b"seven")])
    assert world.host.missing(hosted, snapshot) == []
    world.posted.clear()
    assert world.host.install(hosted, snapshot)
    assert "g5 restores nine" in world.events
    assert not world.host.install(hosted, snapshot)
    world.run_turns()
    assert [m for m in world.posted if m.kind == APPEND_REPLY] == []
    world.settle(1)
    [reply] = [m for m in world.posted if m.kind == APPEND_REPLY]
    assert (reply.target, reply.index) == (2, 9)
    assert (first(hosted), hosted.core.applied_index) == (10, 9)
    assert hosted.core.membership.everyone() == (1, 2, 4)
    assert [hosted.view.entry(i).data for i in (1, 2, 7)] == [b"1", b"two", b"seven"]
    world.host.receive(
        [
            Message(
                APPEND,
                5,
                2,
                1,
                2,
                index=9,
                log_term=2,
                entries=[Entry(10, 2, 0, b"ten")],
                commit=10,
            )
        ]
    )
    world.settle(1)
    assert world.events[-3:].count("g5 applies ten") == 1
    assert world.failures == []


def test_entries_behind_a_snapshot_stay_where_the_log_agrees_with_it(world: Any) -> None:
    hosted = follow(world)
    snapshot = Snapshot(2, 1, Membership((1, 2, 3)), b"two", array("Q"))
    assert world.host.install(hosted, snapshot)
    world.settle(1)
    assert (first(hosted), hosted.core.last_index) == (3, 3)
    snapshot = Snapshot(3, 2, Membership((1, 2, 3)), b"three", array("Q"))
    assert not world.host.install(hosted, snapshot)  # of a term that is not written yet
    world.host.receive([Message(HEARTBEAT, 5, 2, 1, 2)])
    world.settle(1)
    assert world.host.install(hosted, snapshot)
    world.settle(1)
    assert (first(hosted), hosted.core.last_index) == (4, 3)
    assert world.failures == []


def test_state_that_cannot_be_restored_stops_the_host(world: Any) -> None:
    hosted = follow(world)
    assert hosted.core.term == 1

    def fail(state: bytes) -> None:
        raise ZeroDivisionError

    hosted.handler.restore = fail
    world.host.install(hosted, Snapshot(9, 1, Membership((1, 2, 3)), b"", array("Q")))
    assert [type(error) for error in world.failures] == [ZeroDivisionError]
    assert world.host.stopped
