"""Report on the replicas of queues that this node leads."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from headrace_broker.model.limits import BALANCE_HAND_SECONDS
from headrace_broker.model.status import LedQueue, MemberStatus, NodeLoad, ReplicaStatus
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.rpc.question import Leads, Load, Replicas, Transfer
from headrace_raftlog.model.membership import Membership, member_node, name_of
from headrace_raftlog.node.queries import MemberProgress

LAG_ENTRIES_MAX: Final = 1024  # a replica that lacks more keeps its queue waiting when it leads


class Replication(Protocol):
    """Required interface of the replicated logs (`headrace_raftlog.node`)."""

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


class NodeState(NamedTuple):
    """A node's report of itself."""

    unfit: Callable[[], str]  # returns why it should get no more leaders, "" where it may
    unheard: Callable[[], tuple[int, ...]]  # returns ids of nodes that it does not hear
    seconds: Callable[[], float] = time.monotonic  # a time that only goes forward


class ReplicaReport:
    """Answers questions about replicas and leaders."""

    def __init__(
        self,
        node: int,
        hosts: Mapping[int, QueueHost],
        raft: Replication,
        connections: Callable[[], int],
        moves: Callable[[int], bool],
        state: NodeState,
    ) -> None:
        self._connections = connections  # returns how many clients there are
        self._moves = moves  # returns whether something moved in a queue within a minute
        self._state = state  # what this node says of itself
        self._chosen: dict[int, float] = {}  # groups: until when they are to stay here
        self._node = node
        self._hosts = hosts  # replicas on this node by group
        self._raft = raft  # the replicated logs

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
                busy = self._moves(group)
                if question.busy is None or question.busy is busy:
                    yield from self._led(group, busy, question.targets)

    def _led(self, group: int, busy: bool, targets: tuple[int, ...]) -> Iterator[LedQueue]:
        """Return a led queue, if it may be handed over to one of `targets`, or these are none."""
        chosen = self._state.seconds() < self._chosen.get(group, 0.0)
        if targets and chosen:
            return
        candidates = tuple(self._candidates(group))
        if not targets or not set(targets).isdisjoint(candidates):
            yield LedQueue(group, candidates, busy, chosen)

    def load(self) -> NodeLoad:
        """Return what this node does."""
        led = self._raft.led()
        alone = sum(len(self._raft.members(group).voters) == 1 for group in led)
        state = self._state
        return NodeLoad(len(led), self._connections(), alone, state.unfit(), state.unheard())

    def transfer(self, question: Transfer) -> bool:
        """Begin to hand a leadership over; return whether it was.

        If this node is the one to lead, it only notes whether that was chosen by hand.
        """
        if question.node == self._node:
            if question.by_hand and question.group in self._hosts:
                self._keep(question.group)
            return False
        self._chosen.pop(question.group, None)
        return question.group in self._hosts and self._raft.transfer(question.group, question.node)

    def _keep(self, group: int) -> None:
        self._chosen = {each: end for each, end in self._chosen.items() if each in self._hosts}
        self._chosen[group] = self._state.seconds() + BALANCE_HAND_SECONDS

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


def replica_rows(
    raft: Replication, names: Mapping[int, str], group: int
) -> tuple[ReplicaStatus, ...]:
    """Return the members of a group that has a replica here, by the nodes' names; else none."""
    try:
        membership = raft.members(group)
    except KeyError:  # there is no replica here, or not yet
        return ()
    return tuple(
        ReplicaStatus(
            node=names.get(int(member_node(member)), ""),
            member=name_of(member),
            role=role_of(membership, member),
        )
        for member in membership.everyone()
    )


def role_of(membership: Membership, member: int) -> str:
    """Return what a member is in its group: "voter", "learner" or "leaving"."""
    if member in membership.voters:
        return "voter"
    return "learner" if member in membership.learners else "leaving"
