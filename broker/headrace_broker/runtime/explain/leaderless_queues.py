"""Queues without a leader that this node can reach, for explanations."""

from __future__ import annotations

from collections.abc import Mapping

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow_status import LeaderlessStatus
from headrace_broker.runtime.session.reachability import LeaderView, Reachability


class LeaderlessQueues:
    """Answers from what the sessions of this node go by.

    Args:
        leaders: knows which queues have a leader.
        reachability: knows for how long others have had none.
        limits: `leaderless_ms` says when their publishes are refused.
        names: of the other nodes, by id.
    """

    def __init__(
        self,
        leaders: LeaderView,
        reachability: Reachability,
        limits: FlowLimits,
        names: Mapping[int, str],
    ) -> None:
        self._leaders = leaders
        self._reachability = reachability
        self._limits = limits
        self._names = names

    def find(self, queue: Queue) -> LeaderlessStatus | None:
        """Return how a queue has no leader, None for one that has."""
        if self._leaders.has_leader(queue):
            return None
        members = self._leaders.members(queue)
        down = [node for node in members if not self._leaders.is_heard(node)]
        return LeaderlessStatus(
            vhost=queue.vhost,
            name=queue.name,
            since_ms=self._reachability.leaderless_for_ms(queue.group),
            refused_after_ms=int(self._limits.leaderless_ms),
            replicas=len(members),
            down=tuple(self._names.get(node, f"node {node}") for node in down),
        )
