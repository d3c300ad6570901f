"""Brings the members of groups to where they should be: asks for admission, and grants it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from typing import final

from mypy_extensions import i64

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.limits import (
    JOIN_TICKS,
    JOINS_PER_TICK,
    LEADERLESS_JOIN_TIMEOUTS,
    RECONCILED_PER_TICK,
)
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.model.message import JOIN, Message
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_raftlog.node.membership import may_wait_for, plan, wanted_nodes


@final
class Reconciler:
    """Reconciler of led groups whose members may have to change; others cost nothing.

    A group is checked when its leader begins to serve, when its members changed, when the
    application says where it should be, and when a node asks to be admitted; then at every tick
    while a change is under way or a learner is about to be promoted.
    """

    def __init__(
        self, mark: Callable[[HostedGroup], None], fail_together: Callable[[int, int], bool]
    ) -> None:
        self._mark = mark
        self._fail_together = fail_together  # returns whether two different nodes do
        self._open: dict[int, HostedGroup] = {}

    def look_at(self, hosted: HostedGroup) -> None:
        """Note that something changed."""
        if hosted.core.role == LEADER:
            self._open[hosted.group] = hosted

    def joins(self, hosted: HostedGroup, member: i64, known: i64) -> None:
        """Receive a member's request for admission; members that do not lead ignore it.

        Args:
            hosted: the group.
            member: who asks.
            known: as `Message.index` of a JOIN. A node that has missed that the group left it, and
                came back, would destroy the log of the member that is admitted.
        """
        if hosted.core.role != LEADER or hosted.core.membership.contains(member):
            return
        if 0 < known <= hosted.revision:
            return  # it asks again
        if hosted.joins is None:
            hosted.joins = {}
        hosted.joins[member_node(member)] = member
        self._open[hosted.group] = hosted

    def tick(self) -> None:
        """Bring a bounded number of groups one step further."""
        if not self._open:
            return
        for group in list(islice(self._open, RECONCILED_PER_TICK)):
            hosted = self._open.pop(group)
            if self._advance(hosted):
                self._open[group] = hosted  # behind the others

    def _advance(self, hosted: HostedGroup) -> bool:
        """Take the next step of a group; return whether to check again."""
        core = hosted.core
        if hosted.removed or core.role != LEADER:
            hosted.joins = None
            return False
        if core.is_changing or not core.ready_to_serve or core.transferee:
            return True
        membership = core.membership
        wanted = wanted_nodes(membership, hosted.desired, hosted.voting)
        joins: dict[int, int] = hosted.joins if hosted.joins is not None else {}
        caught_up = [member for member in membership.learners if core.is_caught_up(member)]
        then = plan(membership, wanted, joins, caught_up, core.member, self._fail_together)
        if then is None:
            hosted.joins = None  # whoever still wants to be admitted asks again
            return may_wait_for(membership, wanted)
        if then.voters != membership.voters and not self._has_quorum(core, then.voters):
            return True  # it could commit nothing before more of them are there
        core.propose_membership(then.voters, then.learners)
        self._mark(hosted)
        return True

    def _has_quorum(self, core: RaftCore, voters: tuple[int, ...]) -> bool:
        """Return whether a majority of voters-to-be can be reached."""
        count: i64 = 0
        for voter in voters:
            progress = core.progress(voter)
            if voter == core.member or (progress is not None and not progress.is_out_of_reach()):
                count += 1
        return 2 * count > len(voters)


@final
class Joiner:
    """Asks all nodes for admission to groups of which this node's member is no part yet.

    A member that has had no leader for long asks as well: it may have been removed without
    getting to know.
    """

    def __init__(
        self, node: i64, post: Callable[[Message], bool], nodes_up: Callable[[], Collection[int]]
    ) -> None:
        self._node = node
        self._post = post
        self._nodes_up = nodes_up
        self._waiting: dict[int, HostedGroup] = {}
        self._ticks: i64 = 0
        self._round: list[HostedGroup] = []

    def look_at(self, hosted: HostedGroup) -> None:
        """Ask for a group if it is needed."""
        if self._should_ask(hosted):
            self._waiting[hosted.group] = hosted

    def tick(self) -> None:
        """Ask for the next groups of the round; begin a round now and then."""
        self._ticks += 1
        if not self._round:
            if self._ticks < JOIN_TICKS or not self._waiting:
                return
            self._ticks = 0
            self._round = list(self._waiting.values())
        batch = self._round[:JOINS_PER_TICK]
        del self._round[:JOINS_PER_TICK]
        nodes = sorted(self._nodes_up())
        for hosted in batch:
            if not self._should_ask(hosted):
                self._waiting.pop(hosted.group, None)
                continue
            member: i64 = hosted.core.member
            known: i64 = 0 if hosted.desired is None else hosted.revision + 1
            for node in nodes:
                self._post(Message(JOIN, hosted.group, member, node, 0, index=known))

    def _should_ask(self, hosted: HostedGroup) -> bool:
        core = hosted.core
        if (
            hosted.removed
            or hosted.suspended
            or (hosted.desired is not None and self._node not in hosted.desired)
        ):
            return False
        if not core.membership.contains(core.member):
            return True
        patience: i64 = LEADERLESS_JOIN_TIMEOUTS * core.options.election_ticks
        return core.leader == 0 and hosted.leaderless_ticks > patience
