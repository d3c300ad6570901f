"""Callbacks of a host to the node around it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import final

from headrace_raftlog.model.message import Message
from headrace_raftlog.model.snapshot import SnapshotOffer
from headrace_raftlog.node.group_events import Labels, no_labels
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_raftlog.node.membership import never_together


@final
@dataclass(eq=False)
class HostPort:
    """Callbacks of the host to the node around it."""

    post: Callable[[Message], bool]  # queue a message; False when it is dropped
    flush: Callable[[], None]  # let queued messages leave
    # have a function called in the next turn of the event loop
    call_soon: Callable[[Callable[[], None]], object]
    failed: Callable[[BaseException], None]  # called once with what the host cannot survive
    # called with a group and the node id of its new leader, 0 for none known
    leader_changed: Callable[[int, int], None]
    # called with a group whose leader has a snapshot that should be fetched
    offered: Callable[[HostedGroup, SnapshotOffer], None]
    nodes_up: Callable[[], Collection[int]]  # returns the ids of the other nodes that are up
    random: Callable[[], int]  # returns a random number, 1 to 2**32 - 1
    # called with a group that lacks entries which its log should hold
    suspended: Callable[[HostedGroup], None]
    labels: Labels = no_labels  # returns what the application calls a group, as fields of log lines
    # returns whether two different nodes fail together, by their ids
    fail_together: Callable[[int, int], bool] = never_together
