"""Invariants of one group, checked after every event of a simulated run.

The numbers in the messages are those of the list in this component's `INTERNALS.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.entry import ENTRY_CONFIG, ENTRY_NORMAL, Entry
from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.limits import ENTRY_COST_BYTES
from headrace_raftlog.model.membership import Membership, decode_membership
from headrace_raftlog.model.message import (
    APPEND_REPLY,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    VOTE,
    VOTE_REPLY,
    Message,
)
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.simulator.coverage import Coverage
from headrace_raftlog.simulator.invariant_error import InvariantError
from headrace_raftlog.simulator.linearizability import Operation, first_anomaly
from headrace_raftlog.simulator.machine import KEYS
from headrace_raftlog.simulator.memory_log import MemoryLog
from headrace_raftlog.simulator.port import MemberPort
from headrace_raftlog.simulator.stability import Stability
from headrace_raftlog.simulator.store import Store
from headrace_raftlog.simulator.traffic import Traffic

PAYLOAD_BYTES_MAX: Final = 1000  # the client's largest command, for the bounds
PROPOSAL_BLOBS_MAX: Final = 3  # commands in one proposal, likewise


class Checker:
    """Checker of a whole group's history, against every member.

    Args:
        group: incarnation id.
        founding: the first membership.
        stores: every node's disk.
        contract: whether to check what messages promise about the disk (2, 6, 12, 15); without
            it a bug of that kind must show by its consequences.
        stability: judges the ends of leaderships.
        traffic: counts what is sent.

    Attributes:
        lost_logs: what members had on their disks when it was destroyed, by member; they never
            come back, but what they had acknowledged counted.
        deleted: the group is gone, and its members forget it one after the other.
    """

    def __init__(
        self,
        group: int,
        founding: Membership,
        stores: list[Store],
        contract: bool,
        coverage: Coverage,
        stability: Stability,
        traffic: Traffic,
    ) -> None:
        self.group = group
        self.stores = stores
        self.contract = contract
        self.coverage = coverage
        self.stability = stability
        self.traffic = traffic
        self.new_leader: Callable[[MemberPort, int], None] | None = None
        self.new_change: Callable[[MemberPort], None] | None = None
        self.leaders: dict[int, int] = {}
        self.committed: list[Entry] = []  # index 1 first
        self.committed_in: list[int] = []  # term of the leader that committed it
        self.memberships: list[tuple[int, Membership]] = [(0, founding)]  # committed, by index
        self.appended: dict[tuple[int, int], Membership] = {}  # by (index, term), not committed
        self.digests: list[int] = []  # of the state machine after each index
        self.proposed: dict[bytes, bool] = {}
        self.seen: dict[bytes, int] = {}
        self.acked: dict[bytes, int] = {}
        self.operations: list[Operation] = []
        self.durable_term: dict[int, int] = {}
        self.durable_vote: dict[tuple[int, int], int] = {}
        self.commit_seen: dict[int, int] = {}
        self.applied_seen: dict[int, int] = {}
        self.lost_logs: dict[int, MemoryLog] = {}
        self.deleted = False
        self.moment = 0
        self._was_quiesced: dict[int, bool] = {}
        self._deciding: dict[int, Membership] = {}  # by member, in force before the last event

    def now(self) -> int:
        """Return a moment later than any before."""
        self.moment += 1
        return self.moment

    def started(self, replica: MemberPort) -> None:
        """Forget what a member may forget when it restarts."""
        self.commit_seen[replica.member] = 0
        self._deciding[replica.member] = replica.core.membership
        self.applied_seen[replica.member] = replica.machine.applied
        self.stability.started(replica)
        self.synced(replica)
        self._check_state(replica)
        self.check_bodies(replica)

    def observe(self, replica: MemberPort) -> None:
        """Check one member after it handled an event."""
        core = replica.core
        member = replica.member
        if core.quiesced != self._was_quiesced.get(member, False):
            self._was_quiesced[member] = core.quiesced
            if core.quiesced:
                self.coverage.note("quiesced")
        if core.role == LEADER:
            self._check_leader(replica, core)
        self.stability.observe(replica)
        commit = core.commit_index
        if commit != self.commit_seen[member]:
            self._check_commit(replica, core, commit)
        self._deciding[member] = core.membership
        if replica.config_changed and not replica.dirty:
            replica.config_changed = False
            self._check_configs(replica)
        first = replica.log.first_index()
        if not first - 1 <= core.applied_index <= commit <= core.last_index:
            raise InvariantError(
                9,
                f"member {member}: first {first}, applied {core.applied_index}, commit {commit}, "
                f"last {core.last_index}",
            )

    def synced(self, replica: MemberPort) -> None:
        """Check a member's durable hard state."""
        durable = replica.store.durable.get(self.group)
        member = replica.member
        if durable is None or durable.member != member:
            return
        hard_state = durable.hard_state
        if hard_state.term < self.durable_term.get(member, 0):
            raise InvariantError(2, f"member {member}: durable term fell to {hard_state.term}")
        self.durable_term[member] = hard_state.term
        self.stability.synced(replica, hard_state.term)
        key = (member, hard_state.term)
        vote = self.durable_vote.get(key, 0)
        if vote not in (0, hard_state.vote):
            raise InvariantError(
                2,
                f"member {member}: durable vote in term {hard_state.term} changed from "
                f"{vote} to {hard_state.vote}",
            )
        self.durable_vote[key] = hard_state.vote

    def sent(self, replica: MemberPort, message: Message, claim: int) -> None:
        """Check that what a message promises is on its sender's disk.

        Args:
            replica: the sender.
            message: the message.
            claim: term of the entry that an APPEND_REPLY acknowledges, 0 for none.
        """
        if not self.contract:
            return
        kind = message.kind
        if kind == PRE_VOTE or (kind == PRE_VOTE_REPLY and not message.reject):
            return
        durable = replica.store.durable.get(self.group)
        if durable is None or durable.member != replica.member:
            if message.term > 0:
                raise InvariantError(15, f"{message!r} left before its sender was on disk")
            return
        hard_state = durable.hard_state
        if hard_state.term < message.term:
            raise InvariantError(15, f"{message!r} left before its term was durable")
        if hard_state.term > message.term:
            return
        if kind == VOTE and hard_state.vote != replica.member:
            raise InvariantError(15, f"{message!r} left before the own vote was durable")
        if kind == VOTE_REPLY and not message.reject and hard_state.vote != message.target:
            raise InvariantError(12, f"{message!r} left, durable vote is {hard_state.vote}")
        if kind == APPEND_REPLY and claim and not durable.holds(message.index, claim):
            raise InvariantError(
                12, f"{message!r} left, durable log ends at {durable.last_index()}, claim t{claim}"
            )

    def applied(self, replica: MemberPort, entry: Entry) -> None:
        """Check one application to a member's state machine."""
        member = replica.member
        if entry.index != self.applied_seen[member] + 1:
            raise InvariantError(
                3, f"member {member} applied {entry.index} after {self.applied_seen[member]}"
            )
        self.applied_seen[member] = entry.index
        if self.contract:
            durable = replica.store.durable.get(self.group)
            if durable is None or not durable.holds(entry.index, entry.term):
                raise InvariantError(
                    15, f"member {member} applied {entry!r}, which is not durable there"
                )
        self._check_state(replica)

    def installed(self, replica: MemberPort, snapshot: Snapshot) -> None:
        """Check a member that took a snapshot over."""
        if snapshot.index <= self.applied_seen[replica.member]:
            raise InvariantError(
                3,
                f"member {replica.member} went back from {self.applied_seen[replica.member]} "
                f"to {snapshot!r}",
            )
        self.applied_seen[replica.member] = snapshot.index
        self._check_state(replica)
        if snapshot.membership != self.membership_at(snapshot.index):
            raise InvariantError(
                18, f"{snapshot!r} says {snapshot.membership!r}, which was not committed by then"
            )
        self.check_bodies(replica)

    def check_bodies(self, replica: MemberPort) -> None:
        """Check that every live entry of a member can be read there."""
        for index in replica.machine.live:
            try:
                entry = replica.store.entry(self.group, index)
            except KeyError:
                raise InvariantError(
                    10, f"member {replica.member} cannot read live entry {index}"
                ) from None
            if entry != self.committed[index - 1]:
                raise InvariantError(10, f"member {replica.member} has another body at {index}")

    def membership_at(self, index: int) -> Membership:
        """Return the membership that was committed up to `index`."""
        return next(item[1] for item in reversed(self.memberships) if item[0] <= index)

    def acknowledged(self, entry: Entry) -> None:
        """Note that a client was told that its command is done."""
        self.acked[entry.data] = entry.index

    def finish(self) -> None:
        """Check at the end that nothing acknowledged is missing and that reads were right."""
        for payload, index in self.acked.items():
            if index > len(self.committed) or self.committed[index - 1].data != payload:
                raise InvariantError(10, f"acknowledged command {payload!r} at {index} is lost")
        for key in range(KEYS):
            anomaly = first_anomaly([one for one in self.operations if one.key == key])
            if anomaly:
                raise InvariantError(11, f"group {self.group}, register {key}: {anomaly}")

    def note_proposed(self, index: int, replica: MemberPort) -> None:
        """Note a membership that a leader has just put into its log at `index`."""
        if index > len(self.committed):
            self.appended[index, replica.core.term] = replica.core.membership
            if self.new_change is not None:
                self.new_change(replica)

    def in_use(self) -> list[Membership]:
        """Return every membership that may decide something now or later."""
        return [self.memberships[-1][1], *self.appended.values()]

    def _check_leader(self, replica: MemberPort, core: RaftCore) -> None:
        term = core.term
        known = self.leaders.get(term)
        if known is None:
            self.leaders[term] = replica.member
            self.coverage.note("leaders")
            self._check_completeness(replica, term)
            if self.new_leader is not None:
                self.new_leader(replica, term)
        elif known != replica.member:
            raise InvariantError(1, f"members {known} and {replica.member} both lead term {term}")
        parameters = replica.node.parameters
        entry_max = PROPOSAL_BLOBS_MAX * (PAYLOAD_BYTES_MAX + ENTRY_COST_BYTES)
        if core.uncommitted_bytes > parameters.uncommitted_bytes_max + entry_max:
            raise InvariantError(16, f"{core.uncommitted_bytes} bytes are uncommitted")
        for peer in core.membership.everyone():
            progress = core.progress(peer)
            if progress is None:
                continue
            if len(progress.inflight) > parameters.inflight_max:
                raise InvariantError(16, f"{len(progress.inflight)} APPENDs to {peer} in flight")
            if progress.next_index <= progress.match:
                raise InvariantError(16, f"next index of {peer} is not above its match")

    def _check_completeness(self, replica: MemberPort, term: int) -> None:
        log = replica.log
        first = log.first_index()
        if first - 1 > len(self.committed):
            raise InvariantError(7, f"leader {replica.member} has a snapshot of what is not")
        for index in range(first, len(self.committed) + 1):
            if self.committed_in[index - 1] >= term:
                break
            if log.term_at(index) != self.committed[index - 1].term:
                raise InvariantError(
                    7, f"leader {replica.member} of term {term} lacks index {index}"
                )

    def _check_commit(self, replica: MemberPort, core: RaftCore, commit: int) -> None:
        member = replica.member
        seen = self.commit_seen[member]
        if commit < seen:
            raise InvariantError(3, f"member {member}: commit index fell from {seen} to {commit}")
        log = replica.log
        if commit > log.last_index():
            raise InvariantError(
                9, f"member {member}: commit {commit} beyond its log's {log.last_index()}"
            )
        first = max(seen + 1, log.first_index())
        if first - 1 > len(self.committed):
            raise InvariantError(5, f"member {member} has a snapshot of what was not committed")
        entries = log.entries(first, commit + 1, 1 << 60) if first <= commit else []
        for entry in entries:
            if entry.index > len(self.committed):
                self._commit(replica, core, entry)
            elif self.committed[entry.index - 1] != entry:
                raise InvariantError(
                    5, f"member {member} commits {entry!r} where another was committed before"
                )
        self.commit_seen[member] = commit

    def _commit(self, replica: MemberPort, core: RaftCore, entry: Entry) -> None:
        if self.contract and not self.deleted:
            self._check_quorum(self._deciding[replica.member], entry)
        if entry.kind == ENTRY_NORMAL:
            if entry.data not in self.proposed:
                raise InvariantError(10, f"{entry!r} was never proposed")
            if entry.data in self.seen:
                raise InvariantError(10, f"{entry!r} is at index {self.seen[entry.data]} too")
            self.seen[entry.data] = entry.index
        elif entry.kind == ENTRY_CONFIG:
            membership = decode_membership(entry.data)
            self._check_step(self.memberships[-1][1], membership)
            self.memberships.append((entry.index, membership))
            self.coverage.note("joint commits" if membership.is_joint else "config commits")
            self.appended = {key: one for key, one in self.appended.items() if key[0] > entry.index}
        self.committed.append(entry)
        self.committed_in.append(core.term)
        self.coverage.note("committed")

    def _check_quorum(self, membership: Membership, entry: Entry) -> None:
        for half in (membership.voters, membership.outgoing):
            holders = 0
            for store in self.stores:
                durable = store.durable.get(self.group)
                if durable is not None and durable.member in half:
                    holders += durable.holds(entry.index, entry.term)
            for member, log in self.lost_logs.items():
                if member in half:
                    holders += log.holds(entry.index, entry.term)
            if half and holders < len(half) // 2 + 1:
                raise InvariantError(
                    6, f"{entry!r} is committed, but durable on {holders} of {half} only"
                )

    def _check_configs(self, replica: MemberPort) -> None:
        """Check the memberships in a member's log that are not known to be committed."""
        before = self.memberships[0][1]
        newest = replica.store.membership(self.group)
        waiting = 0
        for entry in replica.log.config_entries():
            newest = membership = decode_membership(entry.data)
            index = entry.index
            if index <= len(self.committed) and self.committed[index - 1].term == entry.term:
                continue
            before = self.membership_at(index - 1) if waiting == 0 else before
            self._check_step(before, membership)
            self.appended[index, entry.term] = membership
            before = membership
            waiting += 1
        if replica.core.membership != newest:
            raise InvariantError(
                13,
                f"member {replica.member} goes by {replica.core.membership!r}, its log ends "
                f"with {newest!r}",
            )
        if waiting > 1:
            raise InvariantError(
                13, f"member {replica.member} has {waiting} config entries that are not committed"
            )

    def _check_step(self, before: Membership, after: Membership) -> None:
        halves = [half for half in (before.voters, before.outgoing) if half]
        for half in halves:
            if intersects(half, after.voters) or intersects(half, after.outgoing):
                return
        if halves:
            raise InvariantError(13, f"quorums of {before!r} and {after!r} may be disjoint")

    def _check_state(self, replica: MemberPort) -> None:
        machine = replica.machine
        index = machine.applied
        if index == 0:
            return
        if index == len(self.digests) + 1:
            self.digests.append(machine.digest)
        elif index > len(self.digests) or self.digests[index - 1] != machine.digest:
            raise InvariantError(8, f"member {replica.member} has another state after {index}")


def intersects(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether every majority of `one` has a member in common with every one of `other`."""
    if not one or not other:
        return False
    common = len(set(one) & set(other))
    of_one = max(0, len(one) // 2 + 1 - (len(one) - common))
    of_other = max(0, len(other) // 2 + 1 - (len(other) - common))
    return of_one + of_other > common
