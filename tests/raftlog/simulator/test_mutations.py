"""The simulator must find bugs: each injected one within a stated number of seeds.

The budgets are about ten times the median that was measured, so that a change of the simulator
which blinds it fails here while one that merely shifts the seeds does not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.simulator.cluster import Plan, simulate
from headrace_raftlog.simulator.process import HostFaults
from headrace_raftlog.simulator.script import replay

GOLDEN = Path(__file__).parents[1] / "golden"

# By name: module of the core, its text, and what replaces it.
PATCHES = {
    "truncate_always": [("replication", "log.first_fresh(entries)", "0")],
    "no_up_to_date_check": [
        (
            "election",
            "if not free or not _is_up_to_date(state, request.index, request.log_term):",
            "if not free:",
        )
    ],
    "duplicate_votes_counted": [
        (
            "election",
            "    if reply.source not in state.votes:\n",
            "    while reply.source in state.votes:\n"
            "        reply.source = reply.source % len(state.electorate.voters) + 1\n"
            "        if len(state.votes) == len(state.electorate.voters):\n"
            "            return\n"
            "    if True:\n",
        )
    ],
    "vote_forgotten": [("election", "        state.vote = request.source\n", "")],
    "own_vote_not_awaited": [
        ("state", "        return self.durability.term == self.term and", "        return True or")
    ],
    "leader_counts_its_memory": [
        (
            "replication",
            "state.peer_of, state.durability.last_index)",
            "state.peer_of, state.log.last_index)",
        )
    ],
    "commit_beyond_the_message": [
        ("replication", "min(message.commit, last_new)", "min(message.commit, log.last_index)")
    ],
    "commit_of_old_terms_by_counting": [
        ("replication", " and state.log.term_at(index) == state.term", "")
    ],
    "acks_of_old_terms_counted": [
        (
            "raft",
            "if message.term < self.term:",
            "if message.term < self.term and message.kind != APPEND_REPLY:",
        ),
        (
            "raft",
            "elif message.term == self.term or",
            "elif message.term == self.term or message.kind == APPEND_REPLY or",
        ),
    ],
    "append_aba": [("durability", "for writing in self.writing:", "for writing in ():")],
    "messages_do_not_wake": [
        (
            "raft",
            "            liveness.wake(self)\n        if message.term <",
            "            pass\n        if message.term <",
        )
    ],
    "requests_do_not_wake_the_leader": [
        ("liveness", "PRE_VOTE_REPLY, VOTE_REPLY)", "PRE_VOTE_REPLY, VOTE_REPLY, 1)"),
        ("liveness", "        and message.term <= state.term\n", ""),
    ],
    "silence_before_all_is_replicated": [
        ("liveness", "all(progress.match >= last_index for progress in state.peers)", "True"),
        ("liveness", "        and state.commit_index == message.index\n", ""),
        ("liveness", "        and log.last_index == message.index\n", ""),
        ("liveness", "        and log.last_term() == message.log_term\n", ""),
    ],
}


def seeds_needed(seeds: int, **plan) -> int | None:
    """Return how many seeds it took to find a violation, None if `seeds` were not enough."""
    for seed in range(seeds):
        if simulate(Plan(seed, **plan)).violation is not None:
            return seed + 1
    return None


@pytest.fixture
def broken(mutant):
    """Return the core with the named bug."""

    def load(name: str) -> type[RaftCore]:
        core_type: type[RaftCore] = mutant(name, *PATCHES[name])
        return core_type

    return load


@pytest.mark.parametrize(
    ("name", "profile", "seeds"),
    [
        ("truncate_always", None, 60),
        ("no_up_to_date_check", None, 200),
        ("duplicate_votes_counted", "election", 800),
        ("vote_forgotten", None, 20),
        ("own_vote_not_awaited", None, 20),
        ("leader_counts_its_memory", None, 100),
        ("commit_beyond_the_message", "small", 900),
        ("messages_do_not_wake", "quiet", 300),
        ("requests_do_not_wake_the_leader", "quiet", 1300),
        ("silence_before_all_is_replicated", "quiet", 700),
    ],
)
def test_bug_of_the_core_is_found(broken, name, profile, seeds):
    needed = seeds_needed(seeds, profile=profile, core_type=broken(name))
    assert needed is not None, f"not found in {seeds} seeds"


@pytest.mark.parametrize(
    ("faults", "profile", "contract", "seeds"),
    [
        (HostFaults(ack_before_sync=True), None, True, 10),
        (HostFaults(ack_before_sync=True), None, False, 20),
        (HostFaults(vote_not_persisted=True), None, True, 10),
        (HostFaults(vote_not_persisted=True), "leader", False, 1500),
        (HostFaults(never_wake=True), "quiet", True, 30),
    ],
)
def test_bug_of_the_host_is_found(faults, profile, contract, seeds):
    """Without the contract's checks a bug must show by its consequences alone."""
    needed = seeds_needed(seeds, profile=profile, faults=faults, contract=contract)
    assert needed is not None, f"not found in {seeds} seeds"


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("commit_of_old_terms_by_counting", "figure_8"),
        ("acks_of_old_terms_counted", "stale_ack"),
        ("append_aba", "append_aba"),
        ("truncate_always", "duplicate_append"),
        ("duplicate_votes_counted", "duplicate_votes"),
        ("commit_beyond_the_message", "commit_bounded"),
        ("leader_counts_its_memory", "leader_writes_late"),
        ("messages_do_not_wake", "quiesce_and_wake"),
        ("vote_forgotten", "vote_lost_in_crash"),
    ],
)
def test_bug_changes_the_golden_script_written_for_it(broken, name, script):
    """What random schedules rarely reach is found by a directed script."""
    text = (GOLDEN / f"{script}.txt").read_text()
    core_type = broken(name)
    try:
        output = replay(text, core_type)
    except AssertionError:
        return
    assert output != text


def test_unpatched_copy_is_the_core(mutant):
    core_type = mutant("unchanged")
    for seed in range(5):
        assert simulate(Plan(seed, tracing=True, core_type=core_type)) == simulate(
            Plan(seed, tracing=True)
        )


def test_patch_without_its_anchor_is_refused(mutant):
    with pytest.raises(AssertionError, match="0 times"):
        mutant("nowhere", ("raft", "no such text", ""))
