"""Each invariant is violated once on purpose: a check that cannot fail checks nothing."""

from __future__ import annotations

from array import array

import pytest

from headrace_raftlog.model.entry import ENTRY_CONFIG, ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.message import (
    APPEND,
    APPEND_REPLY,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    VOTE,
    VOTE_REPLY,
    Message,
)
from headrace_raftlog.model.snapshot import Snapshot
from headrace_simulation.simulator.cluster import Simulation
from headrace_simulation.simulator.healed_run import HealedRun
from headrace_simulation.simulator.invariant_error import InvariantError
from headrace_simulation.simulator.invariants import intersects
from headrace_simulation.simulator.linearizability import READ, Operation
from headrace_simulation.simulator.parameters import TICK
from headrace_simulation.simulator.plan import Plan
from headrace_simulation.simulator.silence_phase import SilencePhase
from headrace_simulation.simulator.traffic import FETCHES_MAX, SENDS_MAX


@pytest.fixture
def running():
    """Return a healthy run of one group with three voters, after some work."""
    for seed in range(400):
        simulation = Simulation(Plan(seed, "calm"))
        parameters = simulation.parameters
        sizes = (parameters.voters, parameters.learners, parameters.groups)
        plain = not (parameters.snapshot_every or parameters.spares or parameters.late_turn)
        if sizes != (3, 0, 1) or not plain:
            continue
        assert simulation.run().violation is None
        records = simulation.catalog.records
        checker = records[0].checker
        plain = len(records) == 1 and checker.in_use() == [Membership((1, 2, 3))]
        if plain and len(checker.committed) > 5:
            return simulation
    raise AssertionError("no such seed")


@pytest.fixture
def checker(running):
    return running.catalog.records[0].checker


@pytest.fixture
def replica(running):
    return next(iter(running.nodes[0].replicas.values()))


@pytest.fixture
def leader(running):
    return next(one for one in running.replicas(running.catalog.records[0]) if one.is_leader)


def durable(replica):
    return replica.store.durable[replica.group]


def violated(number):
    return pytest.raises(InvariantError, match=f"invariant {number}:")


def test_two_leaders_of_a_term(checker, leader):
    checker.leaders[leader.core.term] = 99
    with violated(1):
        checker.observe(leader)


def test_durable_term_falls(checker, replica):
    durable(replica).hard_state = HardState(0, 0, 0)
    with violated(2):
        checker.synced(replica)


def test_durable_vote_changes(checker, replica):
    term = durable(replica).hard_state.term + 1
    durable(replica).hard_state = HardState(term, 1, 0)
    checker.synced(replica)
    durable(replica).hard_state = HardState(term, 2, 0)
    with violated(2):
        checker.synced(replica)


def test_commit_index_falls(checker, replica):
    checker.commit_seen[replica.member] += 1
    with violated(3):
        checker.observe(replica)


def test_entry_is_applied_twice(checker, replica):
    with violated(3):
        checker.applied(replica, replica.log.items[-1])


def test_snapshot_goes_back(checker, replica):
    old = Snapshot(1, 1, Membership((1, 2, 3)), b"", array("Q"))
    with violated(3):
        checker.installed(replica, old)


def test_committed_entry_changes(checker, replica):
    checker.commit_seen[replica.member] = 1
    checker.committed[1] = Entry(2, 99, ENTRY_NORMAL, b"other")
    with violated(5):
        checker.observe(replica)


def commit_again(checker, replica, count=1):
    """Let the last entries be committed once more, for the first time."""
    last = len(checker.committed)
    checker.commit_seen[replica.member] = last - count
    for entry in checker.committed[last - count :]:
        checker.seen.pop(entry.data, None)
    del checker.committed[last - count :]
    return last - count + 1


def test_commit_without_a_durable_majority(running, checker, leader):
    first = commit_again(checker, leader)
    for other in running.replicas(running.catalog.records[0]):
        if other is not leader:
            del durable(other).items[first - 1 :]
    with violated(6):
        checker.observe(leader)


def test_joint_commit_needs_a_majority_of_both_halves(checker, leader):
    commit_again(checker, leader)
    checker._deciding[leader.member] = Membership((1, 2, 3), (), (4, 5, 6))
    with violated(6):
        checker.observe(leader)


def test_data_that_was_lost_after_it_counted_still_counts(running, checker, leader):
    first = commit_again(checker, leader)
    for other in running.replicas(running.catalog.records[0]):
        if other is not leader:
            checker.lost_logs[other.member] = durable(other).copy()
            del durable(other).items[first - 1 :]
    checker.observe(leader)


def test_leader_lacks_a_committed_entry(checker, leader):
    del checker.leaders[leader.core.term]
    checker.committed_in[0] = 0
    checker.committed[0] = Entry(1, 99, ENTRY_NORMAL, b"other")
    with violated(7):
        checker.observe(leader)


def test_states_differ(checker, replica):
    entry = replica.log.items[-1]
    checker.applied_seen[replica.member] = entry.index - 1
    replica.machine.digest += 1
    with violated(8):
        checker.applied(replica, entry)


def test_commit_beyond_what_the_log_holds(checker, replica):
    replica.core.applied_index = replica.core.commit_index + 1
    with violated(9):
        checker.observe(replica)


def test_acknowledged_command_is_lost(checker):
    checker.acknowledged(Entry(10_000, 1, ENTRY_NORMAL, b"gone"))
    with violated(10):
        checker.finish()


def test_command_appears_from_nowhere(checker, leader):
    for entry in checker.committed[-1:]:
        del checker.proposed[entry.data]
    commit_again(checker, leader)
    with violated(10):
        checker.observe(leader)


def test_live_entry_cannot_be_read(checker, replica):
    replica.machine.live.append(10_000)
    with violated(10):
        checker.check_bodies(replica)


def test_live_entry_has_another_body(checker, replica):
    replica.machine.live.append(2)
    checker.committed[1] = Entry(2, 1, ENTRY_NORMAL, b"other")
    with violated(10):
        checker.check_bodies(replica)


def test_stale_read(checker):
    now = checker.now()
    checker.operations.append(Operation(READ, 0, 12345, now, now + 1))
    with violated(11):
        checker.finish()


@pytest.mark.parametrize(
    ("message", "claim", "number"),
    [(Message(VOTE, 7, 1, 2, 1000), 0, 15), (Message(APPEND_REPLY, 7, 1, 2, 1000, index=1), 1, 15)],
)
def test_message_names_a_term_that_is_not_durable(checker, replica, message, claim, number):
    with violated(number):
        checker.sent(replica, message, claim)


def test_messages_promise_what_is_not_durable(checker, replica):
    term = durable(replica).hard_state.term
    durable(replica).hard_state = HardState(term, 0, 0)
    with violated(15):
        checker.sent(replica, Message(VOTE, 7, 1, 2, term), 0)
    with violated(12):
        checker.sent(replica, Message(VOTE_REPLY, 7, 1, 2, term), 0)
    beyond = durable(replica).last_index() + 1
    with violated(12):
        checker.sent(replica, Message(APPEND_REPLY, 7, 1, 2, term, index=beyond), term)


def test_member_that_is_not_on_disk_says_something(checker, replica):
    durable(replica).member = 99
    with violated(15):
        checker.sent(replica, Message(VOTE, 7, 1, 2, 1), 0)


def test_entry_is_applied_before_it_is_durable(checker, replica):
    entry = replica.log.items[-1]
    checker.applied_seen[replica.member] = entry.index - 1
    durable(replica).items.pop()
    with violated(15):
        checker.applied(replica, entry)


def config(index, *voters):
    return Entry(index, 1, ENTRY_CONFIG, Membership(voters).encode())


def test_two_changes_of_membership_in_flight(checker, replica):
    last = replica.log.last_index()
    replica.log.append([config(last + 1, 1, 2, 3, 4), config(last + 2, 1, 2, 3)])
    replica.config_changed = True
    with violated(13):
        checker.observe(replica)


def test_change_of_membership_with_disjoint_quorums(checker, replica):
    replica.log.append([config(replica.log.last_index() + 1, 1, 4, 5)])
    replica.config_changed = True
    with violated(13):
        checker.observe(replica)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((1, 2, 3), (1, 2, 3), True),
        ((1, 2, 3), (1, 2, 3, 4), True),
        ((1, 2), (1,), True),
        ((1, 2, 3), (1, 2, 4), False),
        ((1, 2, 3, 4), (1, 2, 3, 5), True),
        ((1, 2, 3), (1, 4, 5), False),
        ((1,), (2,), False),
        ((), (1,), False),
    ],
)
def test_majorities_that_must_have_a_member_in_common(one, other, expected):
    assert intersects(one, other) == expected
    assert intersects(other, one) == expected


def test_message_of_another_group_is_taken(replica):
    stray = Message(APPEND, replica.group, 2, replica.member, 1000)
    with violated(14):
        replica.disregard(stray)


def test_too_much_is_uncommitted(checker, leader):
    leader.core.uncommitted_bytes = 1 << 40
    with violated(16):
        checker.observe(leader)


def test_too_many_appends_in_flight(checker, leader):
    leader.core.peers[0].inflight.extend([(1, 1)] * 1000)
    with violated(16):
        checker.observe(leader)


def test_group_does_not_recover(running):
    healed = HealedRun(running)
    for node in running.nodes[:2]:
        node.crash()
    with violated(17):
        healed.expect("one leader", healed.have_converged)


def test_snapshot_with_a_membership_that_was_not_committed(checker, replica):
    index = replica.machine.applied
    checker.applied_seen[replica.member] = index - 1
    with violated(18):
        checker.installed(replica, Snapshot(index, 1, Membership((1,)), b"", array("Q")))


def let_pass(running, ticks=400):
    """Let time pass in which nothing goes wrong."""
    until = running.loop.now + ticks * TICK
    while running.loop.now < until:
        running.loop.step()


def test_member_stands_against_a_leader_that_has_a_quorum(running, checker, leader):
    let_pass(running)
    other = next(one for one in running.replicas(running.catalog.records[0]) if one is not leader)
    other.core.vote = other.member
    other.core.term += 1
    with violated(20):
        checker.stability.observe(other)


def test_leader_that_has_a_quorum_steps_down(running, checker, leader):
    let_pass(running)
    leader.core.resign()
    with violated(20):
        checker.stability.observe(leader)


def test_leader_gives_way_to_a_term_in_which_nobody_stood(running, checker, leader):
    leader.core.resign()
    leader.core.term += 1000
    leader.core.vote = 0
    with violated(20):
        checker.stability.observe(leader)


@pytest.mark.parametrize("fault", ["cut", "pause", "clock", "transfer", "told", "full"])
def test_leader_may_lose_its_leadership_for_a_reason(running, checker, leader, fault):
    let_pass(running)
    others = [node for node in running.nodes if node is not leader.node]
    if fault == "cut":
        for node in others:
            running.network.cut(node.number, leader.node.number)
    elif fault == "pause":
        for node in others:
            node.pause()
    elif fault == "clock":
        leader.node.burst(1)
    elif fault == "transfer":
        checker.stability.transferred(leader)
    elif fault == "told":
        checker.stability.disturb(running.loop.now)
    else:
        leader.store.full = True
    leader.core.resign()
    checker.stability.observe(leader)


def test_idle_group_says_something(running):
    phase = SilencePhase(HealedRun(running))
    node = running.nodes[0]
    replica = next(iter(node.replicas.values()))
    message = Message(HEARTBEAT_REPLY, replica.group, replica.member, 2, 1)
    running.loop.after(5 * replica.core.options.election_ticks * TICK, _say, (replica, message))
    replica.core.quiesced = True
    with violated(21):
        phase._expect_silence("one node", [node])


def _say(what):
    replica, message = what
    replica.checker.traffic.sent(replica, message)


def test_idle_group_does_not_fall_silent(running):
    phase = SilencePhase(HealedRun(running))
    running.nodes[1].crash()
    running.nodes[2].crash()
    with violated(21):
        phase._expect_silence("two nodes that are gone", running.nodes[:1])


def test_messages_without_progress(checker, leader):
    append = Message(APPEND, leader.group, leader.member, 2, leader.core.term)
    with violated(22):
        for _ in range(SENDS_MAX + 1):
            checker.traffic.sent(leader, append)


def test_messages_with_progress_or_heartbeats_between_them(checker, leader):
    target = leader.core.peers[0].member
    append = Message(APPEND, leader.group, leader.member, target, leader.core.term)
    heartbeat = Message(HEARTBEAT, leader.group, leader.member, target, leader.core.term)
    for _ in range(SENDS_MAX * 3):
        checker.traffic.sent(leader, append)
        leader.core.peers[0].match += 1
    for _ in range(SENDS_MAX * 3):
        leader.node.ticks += 1
        checker.traffic.sent(leader, heartbeat)
        checker.traffic.sent(leader, append)


def test_snapshot_is_fetched_again_and_again(checker, replica):
    with violated(22):
        for _ in range(FETCHES_MAX + 1):
            checker.traffic.fetched(replica, 5, 1)
