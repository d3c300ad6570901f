"""Queues and the catalog without a leader that this node reaches, and since when that is so."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Final, Protocol, final

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.definition import Queue
from headrace_broker.runtime.session.session import QueueSession

_LOG: Final = logging.getLogger("headrace.queue")

Sessions = Mapping[int, Mapping[int, QueueSession]]


class Logs(Protocol):
    """The replicated logs of this node."""

    def leader(self, group: int) -> int:
        """Return the leader of a group as far as its replica here knows, 0 for none."""


class Replica(Protocol):
    """A queue's replica on this node."""

    leading: bool  # it leads, and a majority has followed it: an entry of its term is committed


@final
class LeaderView:
    """Which queues have a leader that this node can reach, as far as it knows."""

    def __init__(
        self,
        node: int,
        logs: Logs,
        hosted: Mapping[int, Replica],
        moved: Mapping[int, Queue],
        peers_up: Mapping[int, int],
    ) -> None:
        self._node = node  # this node's id
        self._logs = logs  # its replicated logs
        self._hosted = hosted  # replicas on this node, by group
        self._moved = moved  # by group, queues whose members have changed
        self._peers_up = peers_up  # by node id, 0 for those that are not heard

    def has_leader(self, queue: Queue) -> bool:
        """Return whether there is one; without a replica here, whether there may be one."""
        if not queue.logged:
            return self.is_heard(queue.members[0])
        queue = self._moved.get(queue.group, queue)
        replica = self._hosted.get(queue.group)
        if replica is not None:
            leader = self._logs.leader(queue.group)
            if leader == self._node:  # it steps down by itself, but late where time is short
                return replica.leading and self._hears_majority(queue)
            if leader or not queue.revision:  # a replica that has yet to join knows of none
                return leader != 0 and self.is_heard(leader)
        return self._hears_majority(queue)

    def members(self, queue: Queue) -> tuple[int, ...]:
        """Return the nodes that have the replicas of a queue now."""
        return self._moved.get(queue.group, queue).members

    def _hears_majority(self, queue: Queue) -> bool:
        heard = sum(map(self.is_heard, queue.members))
        return 2 * heard > len(queue.members)

    def is_heard(self, node: int) -> bool:
        """Return whether a node is this one or connected to it."""
        return node == self._node or self._peers_up.get(node, 0) != 0


class _Period:
    """A time in which a queue had no leader, or none that answered."""

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.led = False  # a leader was reached in it, which answered nothing
        self.given_up = False  # the log has told


@final
class Reachability:
    """Gives up for clients once a queue had no leader that this node can reach for long enough.

    A leader ends that time when it has answered, or when nothing waits for its answer: leaders that
    follow each other and commit nothing do not begin it anew.
    """

    def __init__(
        self, limits: FlowLimits, has_leader: Callable[[Queue], bool], now_ms: Callable[[], int]
    ) -> None:
        self._limits = limits  # `leaderless_ms` says how long that is, 0 for never
        self._has_leader = has_leader  # see `LeaderView.has_leader`
        self._now_ms = now_ms  # a time that only goes forward
        self._periods: dict[int, _Period] = {}  # by group

    def poll(self, by_group: Sessions) -> None:
        """Check all queues that have sessions here.

        Args:
            by_group: the sessions of this node, by group and by id.
        """
        now = self._now_ms()
        for group in [each for each in self._periods if each not in by_group]:
            del self._periods[group]
        for group, sessions in list(by_group.items()):
            queue = next(iter(sessions.values())).queue
            period = self._periods.get(group)
            if not self._has_leader(queue):
                self._poll_leaderless(queue, sessions, period, now)
            elif period is not None and _is_over(period, sessions.values()):
                if period.given_up:
                    _LOG.info("%s: leader reachable again", _name(queue))
                del self._periods[group]

    def leaderless_for_ms(self, group: int) -> int | None:
        """Return for how long no leader of a queue is reached, None for one not polled as such."""
        period = self._periods.get(group)
        return None if period is None else self._now_ms() - period.since_ms

    def _poll_leaderless(
        self, queue: Queue, sessions: Mapping[int, QueueSession], period: _Period | None, now: int
    ) -> None:
        answered = False
        for session in sessions.values():
            answered = answered or session.answered
            session.answered = False
        if period is None:
            period = self._periods[queue.group] = _Period(now)
        elif answered:  # by a leader that came and went between two polls
            period.since_ms = now
            period.led = False
        bound = self._limits.leaderless_ms
        if bound and now - period.since_ms >= bound:
            self._give_up(queue, sessions, period, now - period.since_ms)

    def _give_up(
        self, queue: Queue, sessions: Mapping[int, QueueSession], period: _Period, waited_ms: int
    ) -> None:
        text = f"no leader of {_name(queue)} was reachable from this node for {waited_ms // 1000} s"
        if period.led:
            text += ", but for some that have answered nothing"
        if not period.given_up:
            period.given_up = True
            _LOG.warning(
                "%s: publishes are refused and requests fail until there is one; look whether a "
                "majority of its replicas runs (nodes %s) and this node reaches them",
                text,
                ", ".join(map(str, queue.members)),
            )
        for session in list(sessions.values()):
            session.unreachable(text)


class CatalogReach:
    """Bounds what waits for the catalog's leader by how long none was reached."""

    def __init__(self, node: int) -> None:
        # node id of the catalog's leader as far as known, 0 for none; `look` follows
        self.leader = 0
        # `leaderless_ms` says how long that is, 0 for as long as is asked
        self.limits = FlowLimits()
        # by node id, 0 for those that are not heard; None where that is not known
        self.peers_up: Mapping[int, int] | None = None
        # returns why there is no leader, as far as this node can tell, "" for not at all
        self.diagnosis: Callable[[], str] = str
        self._node = node  # this node's id
        self._since: float | None = None  # time of the loop
        self._waiting: dict[asyncio.Timeout, float] = {}  # until when each waits in any case

    @contextlib.asynccontextmanager
    async def patience(self, seconds: float, whole: bool) -> AsyncIterator[None]:
        """Wait in it for an answer of the catalog.

        Args:
            seconds: at most.
            whole: wait so long whoever is reached.

        Raises TimeoutError: `why_not` says why.
        """
        async with asyncio.timeout(seconds) as timeout:
            deadline = timeout.when()
            assert deadline is not None, "it has just been given"
            if not whole:
                self._waiting[timeout] = deadline
            try:
                self.poll()
                yield
            finally:
                self._waiting.pop(timeout, None)

    def poll(self) -> None:
        """Follow a leader that was found or lost, a node that is heard or is not any more."""
        now = asyncio.get_running_loop().time()
        if self._reaches():
            self._since = None
        elif self._since is None:
            self._since = now
        bound = int(self.limits.leaderless_ms)
        for timeout, deadline in self._waiting.items():
            if timeout.expired():
                continue
            when = deadline
            if self._since is not None and bound:
                when = min(deadline, self._since + bound / 1000)
            if timeout.when() != when:
                timeout.reschedule(when)

    def _reaches(self) -> bool:
        leader = self.leader
        if leader == 0 or leader == self._node or self.peers_up is None:
            return leader != 0
        return self.peers_up.get(leader, 0) != 0

    def why_not(self, seconds: float) -> str:
        """Return why the catalog has not answered within so many seconds, or fewer."""
        if self._since is not None:
            waited = asyncio.get_running_loop().time() - self._since
            return (
                "no quorum: this node has reached no leader of the catalog for "
                f"{max(waited, 0.0):.3g} s "
                f"({self.diagnosis() or 'does a majority of the nodes run, and reach it?'})"
            )
        if self.leader == self._node:
            text = "this node, the catalog's leader, has not committed"
            return f"no quorum: {text} within {seconds:g} s"
        text = f"node {self.leader}, the catalog's leader, has not answered this node"
        cause = "it reaches no majority, or the link to it is slow"
        return f"no quorum: {text} within {seconds:g} s; {cause}"

    def why_not_made(self, seconds: float) -> str:
        """Return why a change was not made, as far as is known, within so many seconds or fewer."""
        return f"{self.why_not(seconds)}; the change may still be made once there is one"


def _is_over(period: _Period, sessions: Iterable[QueueSession]) -> bool:
    """Return whether a leader that is reached now has ended the time without one."""
    period.led = True
    waiting = False
    for session in sessions:
        if session.answered:
            return True
        waiting = waiting or session.waits
    return not waiting


def _name(queue: Queue) -> str:
    return f"queue '{queue.name}' in vhost '{queue.vhost}'"
