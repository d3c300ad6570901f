"""One group as the host keeps it."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry
from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.limits import ENTRY_COST_BYTES, VOTERS_MAX
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.model.message import Message
from headrace_raftlog.node.handler import GroupHandler
from headrace_raftlog.node.reads import GroupReads
from headrace_raftlog.storage.group_log import StoredGroup


@final
class HostedGroup:
    """A group's core, its log and its application.

    Attributes:
        group: incarnation id.
        core: the Raft core.
        view: its part of the shared log.
        handler: the application.
        dirty: whether it waits for the next turn of the pump.
        awake: whether its core is ticked.
        removed: whether it is gone; everything still under way for it is dropped.
        durable_number: newest Ready known to be durable.
        touched: whether `durable_number` is news to the core.
        leaderless_ticks: ticks since a leader was known.
        saved_index: position of the last snapshot, taken or installed.
        unsaved_bytes: bytes applied since the last snapshot.
        saved_bytes: size of the last snapshot.
        desired: node ids that the application wants it on; None while it has not said.
        voter_count: how many of these should vote.
        joins: by node id, members that asked this leader to be admitted; None for none.
        told_leader: member id of the leader that the application knows of.
        counted_term: up to here terms are counted as elections.
        reads: reads under way, None before the first.
    """

    def __init__(
        self, group: i64, core: RaftCore, view: StoredGroup, handler: GroupHandler
    ) -> None:
        self.group = group
        self.core = core
        self.view = view
        self.handler = handler
        self.dirty = False
        self.awake = False
        self.removed = False
        self.durable_number: i64 = 0
        self.touched = False
        self.leaderless_ticks: i64 = 0
        self.saved_index: i64 = 0
        self.unsaved_bytes: i64 = 0
        self.saved_bytes: i64 = 0
        self.desired: tuple[int, ...] | None = None
        self.voter_count: i64 = VOTERS_MAX
        self.joins: dict[int, int] | None = None
        self.reads: GroupReads | None = None
        self.told_leader: i64 = 0
        self.counted_term: i64 = core.term
        self._term: i64 = 0
        self._serving = False

    def members_on(self, node: i64) -> list[int]:
        """Return the member ids of a node, older ones included."""
        return [m for m in self.core.membership.everyone() if member_node(m) == node]

    def apply(self, committed: list[Entry]) -> i64:
        """Hand committed entries to the application, note them as applied; return their bytes."""
        normal = [entry for entry in committed if entry.kind == ENTRY_NORMAL]
        if normal:
            self.handler.apply(normal)
        size: i64 = 0
        for entry in committed:
            size += ENTRY_COST_BYTES + i64(len(entry.data))
        self.unsaved_bytes += size
        if not self.removed:
            self.core.applied(committed[-1].index)
            if self.reads is not None:
                self.reads.applied(self.core.applied_index)
        return size

    def tell_leadership(self) -> bool:
        """Tell the application about a change; return whether there was one."""
        core = self.core
        leader: i64 = core.leader
        term: i64 = core.term
        serving = core.role == LEADER and core.ready_to_serve
        if leader == self.told_leader and term == self._term and serving == self._serving:
            return False
        self.told_leader = leader
        self._term = term
        self._serving = serving
        self.handler.leadership(member_node(leader), term, serving)
        return True


@final
class Writing:
    """The token of one Ready in the shared log: what may leave once it is durable."""

    def __init__(self, hosted: HostedGroup, number: i64, messages: list[Message]) -> None:
        self.hosted = hosted
        self.number = number
        self.messages = messages
