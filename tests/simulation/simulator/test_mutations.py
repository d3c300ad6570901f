"""The simulator must find bugs: each injected one within a stated number of seeds.

The budgets are three to five times the median that was measured for the profile, so that a change
of the simulator which blinds it fails here while one that merely shifts the seeds does not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.errors import ContradictedError, ForgottenError
from headrace_simulation.simulator.cluster import simulate
from headrace_simulation.simulator.host_faults import HostFaults
from headrace_simulation.simulator.plan import Plan
from headrace_simulation.simulator.script import replay

GOLDEN = Path(__file__).parents[2] / "raftlog" / "golden"

# By name: module of the core, its text, and what replaces it.
PATCHES = {
    # Replication and elections.
    "truncate_always": [("replication", "fresh = log.first_fresh(entries)", "fresh = 0")],
    "no_up_to_date_check": [
        ("election", "    if not free or not is_up_to_date:\n", "    if not free:\n")
    ],
    "duplicate_votes_counted": [
        (
            "election",
            "    if reply.source not in state.votes:\n",
            "    while reply.source in state.votes:\n"
            "        reply.source = reply.source % len(state.electorate.voters) + 1\n"
            "        if len(state.votes) >= len(state.electorate.voters):\n"
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
    "append_aba": [
        (
            "durability",
            "        for writing in self.writing:\n            writing.last_index = min(",
            "        for writing in self.writing[:0]:\n            writing.last_index = min(",
        )
    ],
    "other_groups_taken": [
        (
            "raft",
            "if message.group != self.group or message.target != self.member:",
            "if message.target != self.member:",
        )
    ],
    "other_members_taken": [
        (
            "raft",
            "if message.group != self.group or message.target != self.member:",
            "if message.group != self.group:",
        )
    ],
    # Silence.
    "messages_do_not_wake": [
        (
            "raft",
            "            liveness.wake_for(self, message)\n        if message.kind == PRE_VOTE",
            "            pass\n        if message.kind == PRE_VOTE",
        )
    ],
    "silence_before_all_is_replicated": [
        (
            "liveness",
            "all(progress.match >= last_index or progress.down for progress in state.peers)",
            "True",
        ),
        ("liveness", "        and state.commit_index == message.index\n", ""),
        ("liveness", "        and log.last_index == message.index\n", ""),
        ("liveness", "        and log.last_term() == message.log_term\n", ""),
    ],
    # Leaders that are left alone.
    "stickiness_removed": [
        (
            "election",
            "        request.context != FORCED\n        and state.leader != 0\n",
            "        request.context != FORCED\n        and state.leader < 0\n",
        )
    ],
    "silent_follower_stands": [
        (
            "liveness",
            "        doubt_leader(state)\n        return False\n    state.doubts += 1\n"
            "    return True\n",
            "        doubt_leader(state)\n    return False\n",
        )
    ],
    "leader_wants_to_hear_all": [
        (
            "liveness",
            "if not state.electorate.is_active(state.peer_of):",
            "if not all(progress.recent_active for progress in state.peers):",
        )
    ],
    "no_silence_beside_the_dead": [
        (
            "liveness",
            " or progress.down for progress in state.peers)",
            " for progress in state.peers)",
        )
    ],
    "questions_never_rarer": [
        ("state", "        if doublings > 0:\n", "        if doublings > 99:\n")
    ],
    "members_in_vain_hurry_each_other": [
        ("state", "        if asker not in self.askers:\n", "        if asker >= 0:\n")
    ],
    # Loops without progress.
    "refusals_teach_nothing": [
        (
            "progress",
            "        self.next_index = max(min(index, agree_index + 1), self.match + 1)\n",
            "        self.next_index = index + 1\n",
        )
    ],
    "snapshots_never_taken": [
        (
            "raft",
            "        if index <= self.commit_index or self.role",
            "        if index > 0 or self.role",
        )
    ],
    # Membership.
    "two_changes_in_flight": [
        ("reconfiguration", "or is_changing(state) or", "or state.membership.is_joint or")
    ],
    "change_without_a_joint_step": [
        (
            "reconfiguration",
            "        wanted = Membership(wanted.voters, wanted.learners, current.voters)\n",
            "        pass\n",
        )
    ],
    "joint_decided_by_the_new_half": [
        (
            "quorum",
            "        return min(index, _reached(self._outgoing, peers, own_match, False))",
            "        return index",
        )
    ],
    "membership_not_rolled_back": [("state", "            self._roll_back(first)\n", "")],
    "learner_counted": [
        (
            "quorum",
            "        self._incoming = membership.voters",
            "        self._incoming = membership.voters + membership.learners",
        )
    ],
    "who_leaves_may_not_lead": [
        (
            "state",
            "            and memberships[-1][0] > self.commit_index\n",
            "            and memberships[-1][0] < 0\n",
        )
    ],
    "joint_step_never_ends": [
        (
            "reconfiguration",
            "    if membership.is_joint:\n        _append(",
            "    if membership.is_joint and state.term < 0:\n        _append(",
        )
    ],
    "change_before_the_first_commit": [
        (
            "reconfiguration",
            "if state.commit_index < state.noop_index or is_changing(state)",
            "if is_changing(state)",
        )
    ],
    # Transfers and proposals.
    "proposals_during_a_transfer": [
        ("proposals", "    if state.transferee != 0:\n        return BUSY\n", "")
    ],
    "transfer_never_given_up": [("transfer", "        state.transferee = 0\n", "        pass\n")],
    "urgent_waits_like_others": [
        ("proposals", "queue.add(blobs, size, urgent)", "queue.add(blobs, size, False)")
    ],
    # Reads.
    "read_confirmed_by_a_stale_round": [
        (
            "reads",
            "    progress.read_round = reply.context\n",
            "    progress.read_round = state.read_round\n",
        ),
        ("reads", " or reply.context <= progress.read_round", ""),
    ],
    "read_not_confirmed": [
        (
            "reads",
            "    while reads.rounds and reads.rounds[0].number <= confirmed:",
            "    while reads.rounds:",
        )
    ],
    "read_before_the_noop": [
        (
            "reads",
            "if reads is None or not reads.gathered or state.commit_index < state.noop_index:",
            "if reads is None or not reads.gathered:",
        ),
        (
            "reads",
            "    return len(reads.gathered) > 0 and state.commit_index >= state.noop_index\n",
            "    return len(reads.gathered) > 0\n",
        ),
    ],
    # Snapshots.
    "install_keeps_what_contradicts": [
        ("replication", "    keep = state.log.term_at(index) == term\n", "    keep = True\n")
    ],
    "install_drops_what_agrees": [
        ("replication", "    keep = state.log.term_at(index) == term\n", "    keep = False\n")
    ],
    "old_snapshot_accepted": [
        ("raft", "if index <= self.commit_index or self.role == LEADER or term", "if term"),
        (
            "replication",
            "    if index > state.commit_index and state.log.term_at(index) == message.log_term:\n"
            "        state.commit_to(index)  # the log has it all, and what a snapshot holds is "
            "committed\n"
            "    if index <= state.commit_index:\n"
            "        check_agrees(state, message)\n"
            "        _acknowledge(state, message.source, state.commit_index)\n"
            "        return\n"
            "    state.offer",
            "    state.offer",
        ),
    ],
    "snapshot_acknowledged_before_durable": [
        ("raft", "        changed = changed or self.restored\n", "")
    ],
    "membership_of_a_snapshot_ignored": [
        (
            "state",
            "        self._memberships = [(int(index), membership), *newer]",
            "        self._memberships = [(int(index), self._memberships[0][1]), *newer]",
        )
    ],
}


def seeds_needed(first: int, seeds: int, **plan) -> int | None:
    """Return how many seeds it took to find a violation, None if `seeds` were not enough."""
    for seed in range(first, first + seeds):
        if simulate(Plan(seed, **plan)).violation is not None:
            return seed - first + 1
    return None


@pytest.fixture
def broken(mutant):
    """Return the core with the named bug."""

    def load(name: str) -> type[RaftCore]:
        core_type: type[RaftCore] = mutant(name, *PATCHES[name])
        return core_type

    return load


@pytest.mark.parametrize(
    ("name", "profile", "first", "seeds"),
    [
        ("truncate_always", None, 0, 30),
        ("no_up_to_date_check", None, 0, 50),
        ("duplicate_votes_counted", "election", 200, 100),
        ("vote_forgotten", None, 0, 5),
        ("own_vote_not_awaited", None, 0, 5),
        ("leader_counts_its_memory", None, 0, 30),
        ("commit_of_old_terms_by_counting", "figure_8", 0, 120),
        ("other_groups_taken", "groups", 0, 40),
        ("other_members_taken", "membership", 0, 15),
        ("messages_do_not_wake", "quiet", 40, 15),
        ("silence_before_all_is_replicated", "quiet", 0, 60),
        ("stickiness_removed", "links", 0, 120),
        ("silent_follower_stands", "links", 0, 40),
        ("leader_wants_to_hear_all", "links", 0, 30),
        ("no_silence_beside_the_dead", "quiet", 0, 40),
        ("questions_never_rarer", "quiet", 3010, 60),
        ("members_in_vain_hurry_each_other", "quiet", 3020, 70),
        ("refusals_teach_nothing", None, 0, 10),
        ("snapshots_never_taken", "snapshot", 0, 10),
        ("two_changes_in_flight", "overlap", 0, 40),
        ("change_without_a_joint_step", "overlap", 0, 30),
        ("joint_decided_by_the_new_half", "overlap", 0, 30),
        ("membership_not_rolled_back", "overlap", 0, 120),
        ("learner_counted", None, 0, 30),
        ("who_leaves_may_not_lead", "overlap", 340, 200),
        ("joint_step_never_ends", "membership", 0, 10),
        ("read_confirmed_by_a_stale_round", "stale_reads", 0, 60),
        ("read_not_confirmed", "stale_reads", 0, 30),
        ("read_before_the_noop", "stale_reads", 70, 60),
        ("install_keeps_what_contradicts", "snapshot", 0, 10),
        ("old_snapshot_accepted", "snapshot", 0, 10),
        ("snapshot_acknowledged_before_durable", "snapshot", 0, 10),
        ("membership_of_a_snapshot_ignored", "snapshot", 0, 15),
    ],
)
def test_bug_of_the_core_is_found(broken, name, profile, first, seeds):
    needed = seeds_needed(first, seeds, profile=profile, core_type=broken(name))
    assert needed is not None, f"not found in {seeds} seeds"


@pytest.mark.parametrize(
    ("faults", "profile", "contract", "first", "seeds"),
    [
        (HostFaults(ack_before_sync=True), None, True, 0, 5),
        (HostFaults(ack_before_sync=True), "leader", False, 0, 40),
        (HostFaults(vote_not_persisted=True), None, True, 0, 5),
        (HostFaults(vote_not_persisted=True), "leader", False, 300, 300),
        (HostFaults(never_wake=True), "quiet", True, 0, 10),
        (HostFaults(snapshot_of_newest_membership=True), "membership", True, 0, 40),
        (HostFaults(bodies_not_fetched=True), "snapshot", True, 0, 10),
        (HostFaults(leads_without_disk=True), "disk", True, 0, 150),
        (HostFaults(wiped_keeps_id=True), "membership", True, 0, 100),
    ],
)
def test_bug_of_the_host_is_found(faults, profile, contract, first, seeds):
    """Without the contract's checks a bug must show by its consequences alone."""
    needed = seeds_needed(first, seeds, profile=profile, faults=faults, contract=contract)
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
        ("other_groups_taken", "incarnation"),
        ("learner_counted", "learner"),
        ("two_changes_in_flight", "joiner_behind_compaction"),
        ("change_before_the_first_commit", "overlapping_changes"),
        ("change_without_a_joint_step", "joint_leader_crash"),
        ("joint_decided_by_the_new_half", "joint_leader_crash"),
        ("joint_step_never_ends", "joint_leader_crash"),
        ("membership_not_rolled_back", "config_rolled_back"),
        ("who_leaves_may_not_lead", "leaver_still_needed"),
        ("read_confirmed_by_a_stale_round", "read_retried"),
        ("read_not_confirmed", "read_on_deposed_leader"),
        ("read_before_the_noop", "read_before_noop"),
        ("install_keeps_what_contradicts", "install_discards_suffix"),
        ("install_drops_what_agrees", "install_keeps_suffix"),
        ("old_snapshot_accepted", "snapshot_older_than_log"),
        ("snapshot_acknowledged_before_durable", "snapshot_while_appending"),
        ("membership_of_a_snapshot_ignored", "joiner_behind_compaction"),
        ("proposals_during_a_transfer", "transfer_under_load"),
        ("transfer_never_given_up", "transfer_aborted"),
        ("urgent_waits_like_others", "urgent"),
    ],
)
def test_bug_changes_the_golden_script_written_for_it(broken, name, script):
    """A directed script finds bugs that random schedules rarely reach."""
    text = (GOLDEN / f"{script}.txt").read_text()
    core_type = broken(name)
    try:
        output = replay(text, core_type)
    except (
        AssertionError,
        ContradictedError,
        ForgottenError,
        ValueError,
    ):  # it stops, or the script cannot go on
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
