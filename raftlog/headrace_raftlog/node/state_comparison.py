"""Comparison of the states of a group's members by its leader, at checkpoints in its log.

A checkpoint is a no-op of the leader's (`RaftCore.propose_checkpoint`), so it is an index that all
members agree on. Each takes the digest of its state when it applies it, and the leader fetches the
others' (`BulkClient.digests`). Who differs from a majority of the voters twice in a row is told to
stop and to come back as a new member, which the others bring up to date. Without a majority nothing
is done but to report it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from heapq import nsmallest
from typing import Final

from headrace_raftlog.ending import end_tasks, task_error
from headrace_raftlog.log_event import RAFT, REPLICAS_DIFFER, log_event
from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.limits import (
    DIGEST_CONFIRMATIONS,
    DIGEST_COST_FACTOR,
    DIGEST_EVERY_S,
    DIGEST_GROUPS_MAX,
    DIGEST_REQUESTS_MAX,
    DIGEST_WAIT_S,
)
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.model.state_digest import StateDigest
from headrace_raftlog.node.divergence import Verdict, judge
from headrace_raftlog.node.group_events import Labels
from headrace_raftlog.node.host import Host
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_raftlog.transport.bulk_client import BulkClient, FetchFailedError, UnknownCallError
from headrace_raftlog.transport.codec import FrameError

LOG: Final = logging.getLogger("headrace.raft")


class _History:
    """Earlier comparisons of a group, as its leader remembers them."""

    def __init__(self) -> None:
        self.next_s = 0.0  # no comparison before
        self.rest_s = 0.0  # nor before this, whatever happens: digests of its state are expensive
        self.done_index = 0  # nothing differs up to here; 0 where a member was not compared
        self.wrong: dict[int, int] = {}  # comparisons in a row in which a member differed
        self.undecided = 0  # comparisons in a row without a majority


class _Checkpoint:
    """A comparison under way."""

    def __init__(self, hosted: HostedGroup, index: int) -> None:
        self.hosted = hosted
        self.index = index
        self.members = {int(m): member_node(m) for m in hosted.core.membership.everyone()}
        self.digests: dict[int, StateDigest] = {}  # by member
        self.incomparable: set[int] = set()  # members on nodes that are down or of earlier releases

    def awaited_on(self, node: int) -> bool:
        """Return whether a node has a member that has not answered and may."""
        return any(
            at == node and member not in self.digests and member not in self.incomparable
            for member, at in self.members.items()
        )

    def skip(self, node: int) -> None:
        """Do without the members on a node."""
        self.incomparable.update(m for m, at in self.members.items() if at == node)

    @property
    def is_complete(self) -> bool:
        """True if no more answers can be had."""
        return self.members.keys() <= self.digests.keys() | self.incomparable


class StateComparison:
    """Compares the groups that a node leads, a bounded number of them in one round."""

    def __init__(
        self,
        host: Host,
        bulk: BulkClient,
        clock: Callable[[], float],
        round_s: float,
        labels: Labels,
    ) -> None:
        self.compared = 0  # comparisons since the start
        # by group led here, nodes whose states differ without a majority for one of them
        self.differing: dict[int, tuple[int, ...]] = {}
        self._host = host
        self._bulk = bulk
        self._clock = clock
        self._round_s = round_s
        self._labels = labels
        self._next_s = clock() + round_s
        self._histories: dict[int, _History] = {}
        self._arrivals = 0  # nodes that came up since the start
        self._task: asyncio.Task[None] | None = None

    def tick(self) -> None:
        """Begin a round when it is due and the last one is over."""
        if self._task is None and self._clock() >= self._next_s and not self._host.stopped:
            self._task = asyncio.create_task(self._round(), name="raftlog compares states")
            self._task.add_done_callback(self._ended)

    def peer_up(self) -> None:
        """Compare all groups anew: a member may have restarted with another state."""
        now = self._clock()
        self._arrivals += 1
        for history in self._histories.values():
            history.done_index = 0
            history.next_s = min(history.next_s, max(now, history.rest_s))

    async def stop(self) -> None:
        """End it."""
        if self._task is not None:
            await end_tasks((self._task,))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._next_s = self._clock() + self._round_s
        if (error := task_error(task)) is not None:
            self._host.fail(error)

    async def _round(self) -> None:
        arrivals = self._arrivals
        under_way = self._begin()
        for _ in range(DIGEST_REQUESTS_MAX):
            if not under_way:
                return
            await asyncio.sleep(min(DIGEST_WAIT_S, self._round_s))
            for each in under_way:
                own = each.hosted.digest_at(each.index)
                if own is not None:
                    each.digests[own.member] = own
            for node in sorted({at for each in under_way for at in each.members.values()}):
                await self._ask(node, [each for each in under_way if each.awaited_on(node)])
            if all(each.is_complete for each in under_way):
                break
        for each in under_way:
            await self._conclude(each)
            if arrivals != self._arrivals:  # the node that came meanwhile was not compared
                history = self._histories[each.hosted.group]
                history.done_index, history.next_s = 0, history.rest_s

    def _begin(self) -> list[_Checkpoint]:
        """Append checkpoints to the groups that are due, those first that wait for longest."""
        now = self._clock()
        led = [each for each in self._host.groups() if each.core.role == LEADER]
        former, self._histories = self._histories, {}
        for hosted in led:
            self._histories[hosted.group] = former.get(hosted.group) or _History()
        for group in self.differing.keys() - self._histories.keys():
            del self.differing[group]
        due = [hosted for hosted in led if self._is_due(hosted, now)]
        chosen = nsmallest(DIGEST_GROUPS_MAX, due, lambda each: self._histories[each.group].next_s)
        under_way: list[_Checkpoint] = []
        for hosted in chosen:
            index = self._host.propose_checkpoint(hosted)
            if index > 0:
                under_way.append(_Checkpoint(hosted, index))
        return under_way

    def _is_due(self, hosted: HostedGroup, now: float) -> bool:
        history, core = self._histories[hosted.group], hosted.core
        is_alone = len(core.membership.everyone()) < 2
        if hosted.suspended or is_alone:
            return False
        return now >= history.next_s and core.last_index > history.done_index

    async def _ask(self, node: int, awaited: list[_Checkpoint]) -> None:
        """Fetch the digests of a node's members."""
        if not awaited or node == member_node(self._host.member):
            return
        if node not in self._host.nodes_up():
            for each in awaited:
                each.skip(node)
            return
        asked = {each.hosted.group: each.index for each in awaited}
        try:
            found = await self._bulk.digests(node, self._host.member, asked)
        except UnknownCallError:
            for each in awaited:
                each.skip(node)
            return
        except (FetchFailedError, FrameError) as error:
            LOG.debug("node %d does not say what state its members have: %s", node, error)
            return
        for each in awaited:
            digest = found.get(each.hosted.group)
            if digest is not None and digest.member in each.members:
                each.digests[digest.member] = digest

    async def _conclude(self, each: _Checkpoint) -> None:
        """Act on what was answered, unless this node leads the group no more."""
        hosted, core = each.hosted, each.hosted.core
        history = self._histories[hosted.group]
        if hosted.removed or hosted.suspended or core.role != LEADER or core.is_changing:
            return
        if core.member not in each.digests or set(each.members) != set(core.membership.everyone()):
            return  # not applied yet, or compared with members of the past
        now = self._clock()
        self.compared += 1
        verdict = judge(core.membership.voters, list(each.digests.values()))
        is_equal = not verdict.wrong and not verdict.undecided
        history.rest_s = now + DIGEST_COST_FACTOR * hosted.digest_s
        history.next_s = max(history.rest_s, now + DIGEST_EVERY_S if is_equal else now)
        history.done_index = each.index if is_equal and each.is_complete else 0
        history.wrong = {member: history.wrong.get(member, 0) + 1 for member in verdict.wrong}
        self._report(each, verdict, history)
        for member, count in history.wrong.items():
            if count < DIGEST_CONFIRMATIONS:
                LOG.warning(
                    "group %d: the state on node %d differs from a majority's at entry %d; it is "
                    "compared once more",
                    hosted.group,
                    each.members[member],
                    each.index,
                )
            else:
                await self._rebuild(each, member)
                return  # one member at a time

    def _report(self, each: _Checkpoint, verdict: Verdict, history: _History) -> None:
        """Note and log that members differ while none of them is known to be right."""
        group = each.hosted.group
        history.undecided = history.undecided + 1 if verdict.undecided else 0
        if history.undecided < DIGEST_CONFIRMATIONS:
            if not verdict.undecided:
                self.differing.pop(group, None)
            return
        nodes = tuple(sorted(int(each.members[member]) for member in verdict.undecided))
        self.differing[group] = nodes
        history.next_s = max(history.rest_s, self._clock() + DIGEST_EVERY_S)
        labels = self._labels(group)
        log_event(RAFT, REPLICAS_DIFFER, group=group, index=each.index, nodes=list(nodes), **labels)

    async def _rebuild(self, each: _Checkpoint, member: int) -> None:
        """Rebuild a member: this one, or one on another node."""
        hosted, wrong = each.hosted, each.digests[member]
        if member == hosted.core.member:
            self._host.suspensions.diverged(hosted, each.index)
            return
        node, group = int(each.members[member]), hosted.group
        try:
            accepted = await self._bulk.rebuild(node, group, int(hosted.core.member), wrong)
        except (FetchFailedError, FrameError) as error:
            LOG.warning("group %d: node %d was not told to rebuild it: %s", group, node, error)
            return
        LOG.error(
            "group %d: the state on node %d differs from a majority's at entry %d; %s",
            group,
            node,
            each.index,
            "it is rebuilt there" if accepted else "that node does not rebuild it now",
        )
