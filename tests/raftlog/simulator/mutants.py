"""The injected bugs: by name, (module of the core, its text, what replaces it)."""

from __future__ import annotations

Patches = list[tuple[str, str, str]]

PATCHES: dict[str, Patches] = {
    # Replication and elections.
    "truncate_always": [("replication", "fresh = log.first_fresh(entries)", "fresh = 0")],
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
            "            liveness.wake(self)\n        if message.term <",
            "            pass\n        if message.term <",
        )
    ],
    "silence_before_all_is_replicated": [
        ("liveness", "all(progress.match >= last_index for progress in state.peers)", "True"),
        ("liveness", "        and state.commit_index == message.index\n", ""),
        ("liveness", "        and log.last_index == message.index\n", ""),
        ("liveness", "        and log.last_term() == message.log_term\n", ""),
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
            "        return min(index, outgoing.committed_index(peers, own_match))",
            "        return index",
        )
    ],
    "membership_not_rolled_back": [("state", "            self._roll_back(first)\n", "")],
    "learner_counted": [
        (
            "quorum",
            "        self._incoming = Majority(membership.voters)",
            "        self._incoming = Majority(membership.voters + membership.learners)",
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
    "old_snapshot_accepted": [
        ("raft", "if index <= self.commit_index or self.role == LEADER or term", "if term"),
        (
            "replication",
            "    if index <= state.commit_index:\n"
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
