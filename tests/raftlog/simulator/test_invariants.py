"""Each invariant is violated once on purpose: a check that cannot fail checks nothing."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.model.message import APPEND_REPLY, VOTE, VOTE_REPLY, Message
from headrace_raftlog.simulator.cluster import Plan, Simulation
from headrace_raftlog.simulator.invariants import InvariantError


@pytest.fixture
def running():
    """Return a healthy three-member simulation after some work."""
    for seed in range(100):
        simulation = Simulation(Plan(seed, "calm"))
        if simulation.parameters.voters == 3 and simulation.run().committed > 5:
            return simulation
    raise AssertionError("no such seed")


def leader_of(simulation):
    return next(process for process in simulation.processes if process.is_leader())


def violated(number):
    return pytest.raises(InvariantError, match=f"invariant {number}:")


def test_two_leaders_of_a_term(running):
    leader = leader_of(running)
    running.checker.leaders[leader.core.term] = 99
    with violated(1):
        running.checker.observe(leader)


def test_durable_term_falls(running):
    process = running.processes[0]
    process.disk.hard_state = HardState(0, 0, 0)
    with violated(2):
        running.checker.synced(process)


def test_durable_vote_changes(running):
    process = running.processes[0]
    term = process.disk.hard_state.term + 1
    process.disk.hard_state = HardState(term, 1, 0)
    running.checker.synced(process)
    process.disk.hard_state = HardState(term, 2, 0)
    with violated(2):
        running.checker.synced(process)


def test_commit_index_falls(running):
    process = running.processes[0]
    running.checker.commit_seen[process.member] += 1
    with violated(3):
        running.checker.observe(process)


def test_entry_is_applied_twice(running):
    process = running.processes[0]
    with violated(3):
        running.checker.applied(process, process.log.items[-1])


def test_committed_entry_changes(running):
    process = running.processes[0]
    running.checker.commit_seen[process.member] = 1
    running.checker.committed[1] = (99, b"other")
    with violated(5):
        running.checker.observe(process)


def test_commit_without_a_durable_majority(running):
    process = leader_of(running)
    last = len(running.checker.committed)
    running.checker.commit_seen[process.member] = last - 1
    del running.checker.committed[last - 1 :]
    for other in running.processes:
        if other is not process:
            del other.disk.entries[last - 1 :]
    with violated(6):
        running.checker.observe(process)


def test_leader_lacks_a_committed_entry(running):
    leader = leader_of(running)
    del running.checker.leaders[leader.core.term]
    running.checker.committed_in[0] = 0
    running.checker.committed[0] = (99, b"other")
    with violated(7):
        running.checker.observe(leader)


def test_states_differ(running):
    process = running.processes[0]
    entry = process.log.items[-1]
    running.checker.applied_seen[process.member] = entry.index - 1
    process.applied_hash += 1
    with violated(8):
        running.checker.applied(process, entry)


def test_acknowledged_command_is_lost(running):
    running.checker.acknowledged(Entry(10_000, 1, ENTRY_NORMAL, b"gone"))
    with violated(10):
        running.checker.finish()


def test_command_appears_from_nowhere(running):
    process = leader_of(running)
    last = len(running.checker.committed)
    running.checker.commit_seen[process.member] = last - 1
    _, payload = running.checker.committed.pop()
    del running.checker.proposed[payload]
    with violated(10):
        running.checker.observe(process)


@pytest.mark.parametrize(
    ("message", "claim", "number"),
    [
        (Message(VOTE, 7, 1, 2, 1000), 0, 15),
        (Message(APPEND_REPLY, 7, 1, 2, 1000, index=1), 1, 15),
    ],
)
def test_message_names_a_term_that_is_not_durable(running, message, claim, number):
    with violated(number):
        running.checker.sent(running.processes[0], message, claim)


def test_messages_promise_what_is_not_durable(running):
    process = running.processes[0]
    term = process.disk.hard_state.term
    process.disk.hard_state = HardState(term, 0, 0)
    with violated(15):
        running.checker.sent(process, Message(VOTE, 7, 1, 2, term), 0)
    with violated(12):
        running.checker.sent(process, Message(VOTE_REPLY, 7, 1, 2, term), 0)
    beyond = len(process.disk.entries) + 1
    with violated(12):
        running.checker.sent(process, Message(APPEND_REPLY, 7, 1, 2, term, index=beyond), term)


def test_group_does_not_recover(running):
    for process in running.processes[:2]:
        process.crash()
    with violated(17):
        running._expect("one leader", lambda: running._has_converged())
