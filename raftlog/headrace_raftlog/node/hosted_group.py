"""One group as the host keeps it."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry
from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.message import Message
from headrace_raftlog.node.handler import GroupHandler
from headrace_raftlog.storage.group_log import StoredGroup


@final
class HostedGroup:
    """A group's core, its log and its application.

    Attributes:
        group: incarnation id.
        core: the Raft core.
        view: its part of the shared log.
        handler: the application.
        members: node ids of voters and learners.
        dirty: whether it waits for the next turn of the pump.
        removed: whether it is gone; everything still under way for it is dropped.
        durable_number: newest Ready known to be durable.
        touched: whether `durable_number` is news to the core.
    """

    def __init__(
        self,
        group: i64,
        core: RaftCore,
        view: StoredGroup,
        handler: GroupHandler,
        members: tuple[int, ...],
    ) -> None:
        self.group = group
        self.core = core
        self.view = view
        self.handler = handler
        self.members = members
        self.dirty = False
        self.removed = False
        self.durable_number: i64 = 0
        self.touched = False
        self._leader: i64 = 0
        self._term: i64 = 0
        self._serving = False

    def apply(self, committed: list[Entry]) -> None:
        """Hand committed entries to the application and note them as applied."""
        normal = [entry for entry in committed if entry.kind == ENTRY_NORMAL]
        if normal:
            self.handler.apply(normal)
        if not self.removed:
            self.core.applied(committed[-1].index)

    def tell_leadership(self) -> bool:
        """Tell the application about a change; return whether the leader is another."""
        core = self.core
        leader: i64 = core.leader
        term: i64 = core.term
        serving = core.role == LEADER and core.ready_to_serve
        if leader == self._leader and term == self._term and serving == self._serving:
            return False
        changed = leader != self._leader
        self._leader = leader
        self._term = term
        self._serving = serving
        self.handler.leadership(leader, term, serving)
        return changed


@final
class Writing:
    """The token of one Ready in the shared log: what may leave once it is durable."""

    def __init__(self, hosted: HostedGroup, number: i64, messages: list[Message]) -> None:
        self.hosted = hosted
        self.number = number
        self.messages = messages
