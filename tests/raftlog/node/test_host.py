"""The pump without a network: one voter, or messages caught on their way out."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.group import BUSY, CATALOG_GROUP, LEADER, NOT_LEADER, CoreOptions
from headrace_raftlog.model.limits import (
    ELECTIONS_PER_TICK,
    TURN_GROUPS_MAX,
    WRITE_BACKLOG_BYTES_MAX,
)
from headrace_raftlog.model.message import (
    APPEND,
    APPEND_REPLY,
    HEARTBEAT,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    VOTE,
    VOTE_REPLY,
    Message,
)
from headrace_simulation.memory_files import MemoryFiles

DEADLINE_S = 30.0


def alone(world: Any, group: int) -> Any:
    machine = world.machine(group)
    world.host.create_group(group, (1,), (), machine, True)
    return machine


def serve(world: Any, *groups: int) -> list[Any]:
    machines = [alone(world, group) for group in groups]
    world.run_turns()
    found = [world.host.find(group) for group in groups]
    while not all(h is not None and h.core.ready_to_serve for h in found):
        world.settle(1)
    world.events.clear()
    return machines


def test_proposals_of_one_turn_make_one_turn_of_the_pump(world: Any) -> None:
    serve(world, 1)
    writes = world.writes
    assert [world.host.propose(1, b"%d" % i, False) for i in range(3)] == [2, 3, 4]
    assert len(world.turns) == 1
    world.settle(1)
    assert world.writes == writes + 1
    assert [e for e in world.events if "applies" in e] == [f"g1 applies {i}" for i in range(3)]


def test_dirty_groups_are_served_in_the_order_they_became_dirty(world: Any) -> None:
    serve(world, 1, 2, 3)
    for group in (3, 1, 2, 3):
        world.host.propose(group, b"x", False)
    world.settle(3)
    applied = [e for e in world.events if "applies" in e]
    assert applied == ["g3 applies x", "g3 applies x", "g1 applies x", "g2 applies x"]


def test_turn_serves_some_of_many_groups_and_the_next_one_goes_on(world: Any) -> None:
    count = 2 * TURN_GROUPS_MAX + 1
    serve(world, *range(1, count + 1))
    for group in range(1, count + 1):
        world.host.propose(group, b"x", False)
    waiting = []
    while world.turns:
        world.turns.pop(0)()
        waiting.append(sum(hosted.dirty for hosted in world.host.groups()))
    assert waiting == [TURN_GROUPS_MAX + 1, 1, 0]
    world.settle(count)
    applied = [e for e in world.events if "applies" in e]
    assert applied == [f"g{group} applies x" for group in range(1, count + 1)]


def test_nothing_is_applied_before_it_is_durable(world: Any) -> None:
    serve(world, 1)
    world.host.propose(1, b"x", False)
    world.run_turns()
    assert [e for e in world.events if "applies" in e] == []
    world.settle(1)
    assert [e for e in world.events if "applies" in e] == ["g1 applies x"]


def test_handler_may_propose_and_remove_while_it_applies(world: Any) -> None:
    [machine, _] = serve(world, 1, 2)
    machine.react = lambda: world.host.propose(2, b"from g1", False)
    world.host.propose(1, b"x", False)
    world.settle(2)
    assert [e for e in world.events if "applies" in e] == ["g1 applies x", "g2 applies from g1"]
    machine.react = lambda: world.host.remove_group(1)
    world.host.propose(1, b"last", False)
    world.settle(1)
    assert world.host.find(1) is None
    assert world.host.propose(1, b"x", False) == NOT_LEADER
    assert world.failures == []


def test_leadership_is_told_on_change_only_and_after_the_entries(world: Any) -> None:
    alone(world, 1)
    world.run_turns()
    world.host.tick()
    world.settle(2)
    world.host.tick()
    world.settle()
    assert [event for event in world.events if event != "flush"] == [
        "g1 led by 0, serving False",
        "g1 led by 1, serving False",
        "leader of 1 is 1",
        "g1 led by 1, serving True",
    ]


def test_vote_request_leaves_only_after_the_own_vote_is_durable(world: Any) -> None:
    world.host.create_group(1, (1, 2, 3), (), world.machine(1), True)
    world.run_turns()
    assert {m.kind for m in world.posted} == {PRE_VOTE}
    world.host.receive([Message(PRE_VOTE_REPLY, 1, 2, 1, 1)])
    world.run_turns()
    assert {m.kind for m in world.posted} == {PRE_VOTE}
    world.settle(1)
    assert {m.kind for m in world.posted} == {PRE_VOTE, VOTE}


def test_messages_of_unknown_groups_wait_and_those_of_removed_ones_do_not(world: Any) -> None:
    append = Message(APPEND, 7, 2, 1, 3, entries=[Entry(1, 3, 0, b"x")], commit=1)
    world.host.receive([append])
    world.host.create_group(7, (1, 2, 3), (), world.machine(7), False)
    world.settle(1)
    assert "g7 applies x" in world.events
    assert "g7 led by 2, serving False" in world.events
    world.host.remove_group(7)
    world.host.receive([append])
    assert world.host._held.count == 0


def test_call_for_silence_of_a_leader_that_is_down_silences_no_group(world: Any) -> None:
    append = Message(APPEND, 7, 2, 1, 3, entries=[Entry(1, 3, 0, b"x")], commit=1)
    silence = Message(HEARTBEAT, 7, 2, 1, 3, index=1, log_term=3, commit=1, quiesce=True)
    for lost, quiesced in ((3, True), (2, False)):
        append.group = silence.group = group = 10 + lost
        world.host.receive([append, silence])
        world.host.peer_changed(lost, False)
        world.host.create_group(group, (1, 2, 3), (), world.machine(""), False)
        hosted = world.host.find(group)
        assert hosted is not None
        assert hosted.core.quiesced == quiesced


def test_quiescent_group_keeps_no_dead_entries_in_memory_and_says_that_it_is(world: Any) -> None:
    world.host.create_group(7, (1, 2, 3), (), world.machine("a"), False)
    world.host.tick()
    assert "ga is quiescent" not in world.events
    entries = [Entry(1, 3, 0, b"dead"), Entry(2, 3, 0, b"read on")]
    world.host.receive([Message(APPEND, 7, 2, 1, 3, entries=entries, commit=2)])
    world.settle(1)
    world.log.group(7).hint_dead(1)
    world.host.tick()
    silence = Message(HEARTBEAT, 7, 2, 1, 3, index=2, log_term=3, commit=2, quiesce=True)
    world.host.receive([silence])
    world.settle()
    assert sorted(world.log.group(7).recent) == [1, 2]
    for _ in range(2):
        world.host.tick()
    assert world.events.count("ga is quiescent") == 1
    assert sorted(world.log.group(7).recent) == [2]


def test_elections_of_the_groups_of_a_lost_node_do_not_all_begin_at_once(world: Any) -> None:
    groups = range(100, 100 + 8 * ELECTIONS_PER_TICK)
    for group in (CATALOG_GROUP, *groups):
        world.host.create_group(group, (1, 2, 3), (), world.machine(""), False)
    world.host.peer_changed(3, True)
    silence = [
        Message(HEARTBEAT, group, 2, 1, 3, quiesce=True) for group in (CATALOG_GROUP, *groups)
    ]
    world.host.receive(silence)
    assert all(world.host.find(group).core.quiesced for group in groups)
    world.host.peer_changed(2, False)
    timeouts = [world.host.find(group).core.election_timeout for group in groups]
    ticks = {tick: timeouts.count(tick) for tick in timeouts}
    half = len(groups) // 2  # the others are node 3's to begin with
    assert sorted(ticks) == [*range(1, 9), *range(11, 19)]
    assert abs(sum(ticks[tick] for tick in range(1, 9)) - half) < half // 5
    assert max(ticks.values()) < ELECTIONS_PER_TICK
    catalog = world.host.find(CATALOG_GROUP).core
    assert (catalog.election_timeout - 1) % 10 < 5, "it waits for no others"


def test_entries_are_dropped_while_the_disk_is_far_behind(tmp_path: Path, world_type: Any) -> None:
    files = MemoryFiles()
    world = world_type(tmp_path, CoreOptions(), files)
    files.fault = full_on_write
    data = bytes(1 << 19)
    taken = 0
    for group in range(WRITE_BACKLOG_BYTES_MAX // len(data) + 10):
        world.host.create_group(group, (1, 2), (), world.machine(""), False)
        world.host.receive([Message(APPEND, group, 2, 1, 1, entries=[Entry(1, 1, 0, data)])])
        world.run_turns()
        hosted = world.host.find(group)
        assert hosted is not None
        taken += hosted.core.last_index
    assert taken == WRITE_BACKLOG_BYTES_MAX // len(data)
    world.host.receive([Message(HEARTBEAT, group, 2, 1, 1)])
    assert hosted is not None
    assert hosted.core.leader == 2
    assert world.failures == []
    world.log.close()


def full_on_write(call: str, path: str) -> None:
    if call == "write":
        raise OSError(errno.ENOSPC, "no space left on device", path)


def test_full_disk_makes_the_leader_busy(world: Any) -> None:
    serve(world, 1)
    world.host.disk_full = True
    assert world.host.propose(1, b"x", False) == BUSY
    world.host.disk_full = False
    assert world.host.propose(1, b"x", False) > 0


def test_silent_groups_are_not_ticked_until_something_happens(world: Any) -> None:
    serve(world, 1, 2)
    groups = [world.host.find(group) for group in (1, 2)]
    while not all(hosted.core.quiesced for hosted in groups):
        world.host.tick()
        world.settle()
    world.host.tick()
    assert world.host._awake == []
    world.host.propose(2, b"x", False)
    assert world.host._awake == [groups[1]]
    world.settle(1)
    world.host.peer_changed(2, True)
    world.host.receive([Message(PRE_VOTE, 1, 2, 1, 9)])
    assert groups[0] in world.host._awake


def test_no_tick_passes_for_a_group_that_was_not_served_since_the_one_before(world: Any) -> None:
    for group in (1, 2):
        world.host.create_group(group, (1, 2, 3), (), world.machine(group), False)
    world.run_turns()

    def tick() -> list[int]:
        world.host.tick()
        return [hosted.leaderless_ticks for hosted in world.host.groups()]

    assert tick() == [1, 1]
    world.host.propose(1, b"x", False)  # refused, but there may be something to do
    assert tick() == [2, 2]
    assert tick() == [2, 3]
    world.run_turns()
    assert tick() == [3, 4]


def test_what_is_raised_stops_the_host_once_and_for_all(world: Any) -> None:
    [machine, _] = serve(world, 1, 2)

    def fail() -> None:
        raise ZeroDivisionError

    machine.react = fail
    world.host.propose(1, b"x", False)
    world.host.propose(2, b"y", False)
    world.settle(2)
    assert [type(error) for error in world.failures] == [ZeroDivisionError]
    assert world.host.stopped
    posted = len(world.posted)
    world.host.tick()
    world.host.peer_changed(2, False)
    world.host.receive([Message(APPEND, 1, 2, 1, 99)])
    world.host.fail(RuntimeError())
    world.run_turns()
    assert len(world.posted) == posted
    assert world.host.propose(2, b"z", False) == NOT_LEADER
    assert len(world.failures) == 1


def test_dropped_message_makes_the_leader_probe(world: Any) -> None:
    world.host.create_group(1, (1, 2), (), world.machine(1), True)
    world.run_turns()
    world.host.receive([Message(PRE_VOTE_REPLY, 1, 2, 1, 1)])
    world.settle(1)
    world.host.receive([Message(VOTE_REPLY, 1, 2, 1, 1)])
    world.settle(1)
    hosted = world.host.find(1)
    assert hosted is not None
    assert hosted.core.role == LEADER
    world.host.receive([Message(APPEND_REPLY, 1, 2, 1, 1, index=1)])
    world.settle()
    progress = hosted.core.progress(2)
    assert progress is not None
    world.accepts = False
    world.host.propose(1, b"lost", False)
    world.settle(1)
    assert progress.next_index == progress.match + 1
    assert progress.probe_sent


def applied_and_not_known_to_be_on_disk(world: Any) -> None:
    """Make group 7 apply an entry of term 3, and not write that it is committed."""
    world.host.create_group(7, (1, 2, 3), (), world.machine(7), False)
    append = Message(APPEND, 7, 2, 1, 3, entries=[Entry(1, 3, 0, b"x")], commit=1)
    world.host.receive([append])
    world.settle(1)
    assert "g7 applies x" in world.events
    assert world.log.group(7).hard_state.commit == 0


def contradiction() -> Message:
    """Return what a leader sends that has another entry than the first of group 7."""
    return Message(APPEND, 7, 3, 1, 4, index=1, log_term=4, commit=1)


@pytest.mark.parametrize("held", [False, True])
def test_contradicted_group_stands_still_after_every_start(
    tmp_path: Path, world_type: Any, held: bool
) -> None:
    world = world_type(tmp_path, CoreOptions())
    applied_and_not_known_to_be_on_disk(world)
    world.host.receive([contradiction()])
    assert world.host.find(7).suspended
    world.log.close()
    for _ in range(2):
        world = world_type(tmp_path, CoreOptions())
        if held:
            world.host.receive([contradiction()])
        world.host.create_group(7, (1, 2, 3), (), world.machine(7), False)
        world.host.receive([contradiction()])
        world.run_turns()
        hosted = world.host.find(7)
        assert hosted.suspended
        assert "is committed here" in hosted.contradiction
        assert hosted.view.entry(1).data == b"x"
        assert world.failures == []
        world.log.close()


def lost_entry(world: Any, called: list[str]) -> Any:
    """Wait for an entry of group 1 that was lost."""
    serve(world, 1)
    world.host.propose(1, b"x", False)
    world.settle(1)
    hosted = world.host.find(1)
    hosted.view.recent.clear()  # as if it had been in memory long ago
    world.host.suspensions.note(hosted, 2)
    assert world.host.suspensions.wait(hosted, 2, lambda: called.append("over"))
    return hosted


@pytest.mark.parametrize("leaves", [False, True])
def test_who_waits_for_a_lost_entry_hears_that_its_group_has_gone(world: Any, leaves: bool) -> None:
    called: list[str] = []
    lost_entry(world, called)
    world.run_turns()
    assert called == []
    (world.host.leave_group if leaves else world.host.remove_group)(1)
    assert called == []
    world.run_turns()
    assert called == ["over"]
    assert world.failures == []


def test_who_waits_for_a_lost_entry_that_dies_before_the_group_stands_still_hears_it(
    world: Any,
) -> None:
    called: list[str] = []
    hosted = lost_entry(world, called)
    hosted.view.lost = None
    world.run_turns()
    assert called == ["over"]
    assert not hosted.suspended


def test_error_of_one_who_waited_keeps_no_other_waiting_and_stops_the_node(world: Any) -> None:
    called: list[str] = []
    serve(world, 1)
    world.host.propose(1, b"x", False)
    world.settle(1)
    hosted = world.host.find(1)
    hosted.view.recent.clear()  # as if it had been in memory long ago
    world.host.suspensions.note(hosted, 2)
    error = KeyError("a bug")

    def fails() -> None:
        raise error

    for done in (fails, lambda: called.append("over")):
        assert world.host.suspensions.wait(hosted, 2, done)
    hosted.view.lost = None
    world.run_turns()
    assert called == ["over"]
    assert world.failures == [error]
