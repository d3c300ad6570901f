"""Callbacks of a host to the node around it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import final

from headrace_raftlog.model.message import Message
from headrace_raftlog.model.snapshot import SnapshotOffer
from headrace_raftlog.node.group_events import Labels, no_labels
from headrace_raftlog.node.hosted_group import HostedGroup


@final
class HostPort:
    """Callbacks of the host to the node around it."""

    def __init__(
        self,
        post: Callable[[Message], bool],
        flush: Callable[[], None],
        call_soon: Callable[[Callable[[], None]], object],
        failed: Callable[[BaseException], None],
        leader_changed: Callable[[int, int], None],
        offered: Callable[[HostedGroup, SnapshotOffer], None],
        nodes_up: Callable[[], Collection[int]],
        random: Callable[[], int],
        suspended: Callable[[HostedGroup], None],
        labels: Labels = no_labels,
        fail_together: Callable[[int, int], bool] = lambda node, other: False,
    ) -> None:
        self.post = post  # queue a message; False when it is dropped
        self.flush = flush  # let queued messages leave
        self.call_soon = call_soon  # have a function called in the next turn of the event loop
        self.failed = failed  # called once with what the host cannot survive
        # called with a group and the node id of its new leader, 0 for none known
        self.leader_changed = leader_changed
        # called with a group whose leader has a snapshot that should be fetched
        self.offered = offered
        self.nodes_up = nodes_up  # returns the ids of the other nodes that are up
        self.random = random  # returns a random number, 1 to 2**32 - 1
        # called with a group that lacks entries which its log should hold
        self.suspended = suspended
        self.fail_together = fail_together  # returns whether two different nodes do, by their ids
        self.labels = labels  # returns what the application calls a group, as fields of log lines
