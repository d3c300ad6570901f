"""What must hold after every event of a simulated run, whatever happens.

The numbers in the messages are those of the list in this component's `INTERNALS.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry
from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.limits import ENTRY_COST_BYTES
from headrace_raftlog.model.message import (
    APPEND_REPLY,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    VOTE,
    VOTE_REPLY,
    Message,
)

if TYPE_CHECKING:
    from headrace_raftlog.core.raft import RaftCore
    from headrace_raftlog.simulator.process import Process

PAYLOAD_BYTES_MAX: Final = 64  # the client's largest command, for the bounds


class InvariantError(Exception):
    """An invariant does not hold.

    Args:
        invariant: its number, 0 for an exception in the core.
        text: what was seen.
    """

    def __init__(self, invariant: int, text: str) -> None:
        super().__init__(f"invariant {invariant}: {text}")
        self.invariant = invariant


class Checker:
    """Knows the whole history of a run and compares every member with it.

    Args:
        majority: voters that make a quorum.
        voters: ids of the voters.
        contract: whether to check what messages promise about the disk (2, 12, 15); without
            it a bug of that kind must show by its consequences.
    """

    def __init__(self, voters: tuple[int, ...], contract: bool) -> None:
        self.voters = voters
        self.majority = len(voters) // 2 + 1
        self.contract = contract
        self.processes: list[Process] = []
        self.new_leader: Callable[[Process, int], None] | None = None
        self.leaders: dict[int, int] = {}
        self.committed: list[tuple[int, bytes]] = []  # term and data, index 1 first
        self.committed_in: list[int] = []  # term of the leader that committed it
        self.state_hash: list[int] = []  # of the state machine after each index
        self.proposed: dict[bytes, bool] = {}
        self.seen: dict[bytes, int] = {}
        self.acked: dict[bytes, int] = {}
        self.durable_term: dict[int, int] = {}
        self.durable_vote: dict[tuple[int, int], int] = {}
        self.commit_seen: dict[int, int] = {}
        self.applied_seen: dict[int, int] = {}
        self.quiesced = 0
        self._was_quiesced: dict[int, bool] = {}

    def started(self, process: Process) -> None:
        """Forget what a member may forget when it restarts."""
        self.commit_seen[process.member] = 0
        self.applied_seen[process.member] = 0
        self.synced(process)

    def observe(self, process: Process) -> None:
        """Check one member after it handled an event."""
        core = process.core
        if core is None:
            return
        member = process.member
        if core.quiesced != self._was_quiesced.get(member, False):
            self._was_quiesced[member] = core.quiesced
            self.quiesced += core.quiesced
        if core.role == LEADER:
            self._check_leader(process, core)
        commit = core.commit_index
        if commit != self.commit_seen[member]:
            self._check_commit(process, core, commit)
        if not core.applied_index <= commit <= core.last_index:
            raise InvariantError(
                9,
                f"member {member}: applied {core.applied_index}, commit {commit}, "
                f"last {core.last_index}",
            )

    def synced(self, process: Process) -> None:
        """Check a member's durable hard state."""
        hard_state = process.disk.hard_state
        member = process.member
        if hard_state.term < self.durable_term.get(member, 0):
            raise InvariantError(2, f"member {member}: durable term fell to {hard_state.term}")
        self.durable_term[member] = hard_state.term
        key = (member, hard_state.term)
        vote = self.durable_vote.get(key, 0)
        if vote not in (0, hard_state.vote):
            raise InvariantError(
                2,
                f"member {member}: durable vote in term {hard_state.term} changed from "
                f"{vote} to {hard_state.vote}",
            )
        self.durable_vote[key] = hard_state.vote

    def sent(self, process: Process, message: Message, claim: int) -> None:
        """Check that what a message promises is on its sender's disk.

        Args:
            process: the sender.
            message: the message.
            claim: term of the entry that an APPEND_REPLY acknowledges, 0 for none.
        """
        if not self.contract:
            return
        kind = message.kind
        if kind == PRE_VOTE or (kind == PRE_VOTE_REPLY and not message.reject):
            return
        disk = process.disk
        durable = disk.hard_state
        if durable.term < message.term:
            raise InvariantError(15, f"{message!r} left before its term was durable")
        if durable.term > message.term:
            return
        if kind == VOTE and durable.vote != process.member:
            raise InvariantError(15, f"{message!r} left before the own vote was durable")
        if kind == VOTE_REPLY and not message.reject and durable.vote != message.target:
            raise InvariantError(12, f"{message!r} left, durable vote is {durable.vote}")
        if kind == APPEND_REPLY and claim and disk.term_at(message.index) != claim:
            raise InvariantError(
                12, f"{message!r} left, durable log ends at {len(disk.entries)}, claim t{claim}"
            )

    def applied(self, process: Process, entry: Entry) -> None:
        """Check one application to a member's state machine."""
        member = process.member
        if entry.index != self.applied_seen[member] + 1:
            raise InvariantError(
                3, f"member {member} applied {entry.index} after {self.applied_seen[member]}"
            )
        self.applied_seen[member] = entry.index
        if process.disk.term_at(entry.index) != entry.term and self.contract:
            raise InvariantError(
                15, f"member {member} applied {entry!r}, which is not durable there"
            )
        if entry.index > len(self.state_hash):
            self.state_hash.append(process.applied_hash)
        elif self.state_hash[entry.index - 1] != process.applied_hash:
            raise InvariantError(8, f"member {member} has another state after {entry!r}")

    def acknowledged(self, entry: Entry) -> None:
        """Note that a client was told that its command is done."""
        self.acked[entry.data] = entry.index

    def finish(self) -> None:
        """Check at the end that nothing acknowledged is missing."""
        for payload, index in self.acked.items():
            if index > len(self.committed) or self.committed[index - 1][1] != payload:
                raise InvariantError(10, f"acknowledged command {payload!r} at {index} is lost")

    def _check_leader(self, process: Process, core: RaftCore) -> None:
        term = core.term
        known = self.leaders.get(term)
        if known is None:
            self.leaders[term] = process.member
            self._check_completeness(process, term)
            if self.new_leader is not None:
                self.new_leader(process, term)
        elif known != process.member:
            raise InvariantError(1, f"members {known} and {process.member} both lead term {term}")
        bytes_max = process.parameters.uncommitted_bytes_max
        entry_max = PAYLOAD_BYTES_MAX + ENTRY_COST_BYTES
        if core.uncommitted_bytes > bytes_max + entry_max:
            raise InvariantError(16, f"{core.uncommitted_bytes} bytes are uncommitted")
        for peer in process.peers:
            progress = core.progress(peer.member)
            assert progress is not None
            if len(progress.inflight) > process.parameters.inflight_max:
                raise InvariantError(
                    16, f"{len(progress.inflight)} APPENDs to {peer.member} in flight"
                )
            if progress.next_index <= progress.match:
                raise InvariantError(16, f"next index of {peer.member} is not above its match")

    def _check_completeness(self, process: Process, term: int) -> None:
        items = process.log.items
        for position, (entry_term, data) in enumerate(self.committed):
            if self.committed_in[position] >= term:
                break
            if (
                position >= len(items)
                or items[position].term != entry_term
                or items[position].data != data
            ):
                raise InvariantError(
                    7, f"leader {process.member} of term {term} lacks index {position + 1}"
                )

    def _check_commit(self, process: Process, core: RaftCore, commit: int) -> None:
        member = process.member
        seen = self.commit_seen[member]
        if commit < seen:
            raise InvariantError(3, f"member {member}: commit index fell from {seen} to {commit}")
        items = process.log.items
        if commit > len(items):
            raise InvariantError(
                9, f"member {member}: commit {commit} beyond its log's {len(items)}"
            )
        for position in range(seen, commit):
            entry = items[position]
            if position >= len(self.committed):
                self._commit(core, entry)
            elif self.committed[position] != (entry.term, entry.data):
                raise InvariantError(
                    5, f"member {member} commits {entry!r} where another was committed before"
                )
        self.commit_seen[member] = commit

    def _commit(self, core: RaftCore, entry: Entry) -> None:
        holders = 0
        for process in self.processes:
            if process.member in self.voters and process.disk.term_at(entry.index) == entry.term:
                holders += 1
        if holders < self.majority:
            raise InvariantError(6, f"{entry!r} is committed, but durable on {holders} voters only")
        if entry.kind == ENTRY_NORMAL:
            if entry.data not in self.proposed:
                raise InvariantError(10, f"{entry!r} was never proposed")
            if entry.data in self.seen:
                raise InvariantError(10, f"{entry!r} is at index {self.seen[entry.data]} too")
            self.seen[entry.data] = entry.index
        self.committed.append((entry.term, entry.data))
        self.committed_in.append(core.term)
