"""Queues with sessions here of which no leader can be reached, and since when that is so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from typing import Final, Protocol, final

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.definition import Queue
from headrace_broker.runtime.session import QueueSession

_LOG: Final = logging.getLogger(__name__)

Sessions = Mapping[int, Mapping[int, QueueSession]]


class Logs(Protocol):
    """The replicated logs of this node."""

    def leader(self, group: int) -> int:
        """Return the leader of a group as far as its replica here knows, 0 for none."""


@final
class LeaderView:
    """Which queues have a leader that this node can reach, as far as it knows.

    Args:
        node: this node's id.
        logs: its replicated logs.
        hosted: groups that have a replica here.
        moved: by group, queues whose members have changed.
        peers_up: by node id, 0 for those that are not heard.
    """

    def __init__(
        self,
        node: int,
        logs: Logs,
        hosted: Container[int],
        moved: Mapping[int, Queue],
        peers_up: Mapping[int, int],
    ) -> None:
        self._node = node
        self._logs = logs
        self._hosted = hosted
        self._moved = moved
        self._peers_up = peers_up

    def has_leader(self, queue: Queue) -> bool:
        """Return whether there is one; without a replica here, whether there may be one."""
        if not queue.logged:
            return self._is_heard(queue.members[0])
        queue = self._moved.get(queue.group, queue)
        if queue.group in self._hosted:
            leader = self._logs.leader(queue.group)
            if leader or not queue.revision:  # a replica that has yet to join knows of none
                return leader != 0 and self._is_heard(leader)
        heard = sum(map(self._is_heard, queue.members))
        return 2 * heard > len(queue.members)

    def _is_heard(self, node: int) -> bool:
        return node == self._node or self._peers_up.get(node, 0) != 0


@final
class Reachability:
    """Gives up for clients once a queue had no leader that this node can reach for long enough.

    Args:
        limits: `leaderless_ms` says how long that is, 0 for never.
        has_leader: see `LeaderView.has_leader`.
        now_ms: a time that only goes forward.
    """

    def __init__(
        self, limits: FlowLimits, has_leader: Callable[[Queue], bool], now_ms: Callable[[], int]
    ) -> None:
        self._limits = limits
        self._has_leader = has_leader
        self._now_ms = now_ms
        self._since_ms: dict[int, int] = {}  # by group
        self._given_up: dict[int, None] = {}  # groups of which the log has told

    def look(self, by_group: Sessions) -> None:
        """Look at all queues that have sessions here.

        Args:
            by_group: the sessions of this node, by group and by id.
        """
        now = self._now_ms()
        bound = self._limits.leaderless_ms
        for group in [each for each in self._since_ms if each not in by_group]:
            self._forget(group)
        for group, sessions in list(by_group.items()):
            queue = next(iter(sessions.values())).queue
            if self._has_leader(queue):
                if group in self._given_up:
                    _LOG.info("%s: a leader can be reached again", _name(queue))
                self._forget(group)
                continue
            waited = now - self._since_ms.setdefault(group, now)
            if bound and waited >= bound:
                self._give_up(queue, sessions, waited)

    def _forget(self, group: int) -> None:
        self._since_ms.pop(group, None)
        self._given_up.pop(group, None)

    def _give_up(self, queue: Queue, sessions: Mapping[int, QueueSession], waited_ms: int) -> None:
        text = f"no leader of {_name(queue)} was reachable from this node for {waited_ms // 1000} s"
        if queue.group not in self._given_up:
            self._given_up[queue.group] = None
            _LOG.warning(
                "%s: publishes are refused and requests fail until there is one; look whether a "
                "majority of its replicas runs (nodes %s) and this node reaches them",
                text,
                ", ".join(map(str, queue.members)),
            )
        for session in list(sessions.values()):
            session.unreachable(text)


def _name(queue: Queue) -> str:
    return f"queue '{queue.name}' in vhost '{queue.vhost}'"
