"""What a node knows of the replicas of queues that it leads, for those who ask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, Protocol

from headrace_broker.model.status import LedQueue, MemberStatus, NodeLoad
from headrace_broker.runtime.inquiry import Leads, Load, Replicas, Transfer
from headrace_broker.runtime.queue_host import QueueHost
from headrace_raftlog.model.membership import Membership, member_node, name_of
from headrace_raftlog.node.queries import MemberProgress

LAG_ENTRIES_MAX: Final = 1024  # a replica that lacks more keeps its queue waiting when it leads


class Replication(Protocol):
    """What this needs of the replicated logs (`headrace_raftlog.node`)."""

    def progress(self, group: int) -> list[MemberProgress]:
        """Return what this node, leading a group, knows of its members."""

    def last_index(self, group: int) -> int:
        """Return the highest index of a group's log on this node."""

    def transfer(self, group: int, node: int) -> bool:
        """Begin to hand a leadership over."""

    def members(self, group: int) -> Membership:
        """Return who belongs to a group."""

    def led(self) -> Collection[int]:
        """Return the groups that this node leads."""


class ReplicaReport:
    """Answers questions about replicas and leaders.

    Args:
        node: this node's id.
        hosts: replicas on this node by group.
        raft: the replicated logs.
        connections: returns how many clients there are.
    """

    def __init__(
        self,
        node: int,
        hosts: Mapping[int, QueueHost],
        raft: Replication,
        connections: Callable[[], int],
    ) -> None:
        self._connections = connections
        self._node = node
        self._hosts = hosts
        self._raft = raft

    def rows(
        self, question: Leads | Load | Replicas
    ) -> Iterator[LedQueue | MemberStatus | NodeLoad]:
        """Return rows as they are needed; none about what this node does not lead."""
        if isinstance(question, Load):
            yield self.load()
            return
        if isinstance(question, Replicas):
            host = self._hosts.get(question.group)
            if host is not None and host.queue.logged:
                yield from self._members(question.group)
            return
        for group in list(self._raft.led()):
            if group in self._hosts:
                yield LedQueue(group, tuple(self._candidates(group)))

    def load(self) -> NodeLoad:
        """Return what this node does."""
        led = self._raft.led()
        alone = sum(len(self._raft.members(group).voters) == 1 for group in led)
        return NodeLoad(len(led), self._connections(), alone)

    def transfer(self, question: Transfer) -> bool:
        """Begin to hand a leadership over; return whether it was."""
        return question.group in self._hosts and self._raft.transfer(question.group, question.node)

    def _members(self, group: int) -> Iterator[MemberStatus]:
        last = self._raft.last_index(group)
        for found in self._raft.progress(group):
            node = int(member_node(found.member))
            yield MemberStatus(
                node=node,
                member=name_of(found.member),
                role=found.role,
                leader=node == self._node,
                online=found.reachable,
                match=found.match,
                lag=max(last - found.match, 0),
                fetching=found.fetching,
            )

    def _candidates(self, group: int) -> Iterator[int]:
        for member in self._members(group):
            fit = member.role == "voter" and member.online and member.lag <= LAG_ENTRIES_MAX
            if fit and not member.leader:
                yield member.node
