"""A group's log and core at its start or restart on a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.group import CoreOptions, GroupConfig
from headrace_raftlog.model.membership import NOBODY, Membership, member_id, member_node
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.log.shared_log import SharedLog

_SEED_FACTOR: Final = 1_000_003  # spreads seeds of (member, group, boot)


def open_view(
    log: SharedLog, group: i64, member: i64, founders: Membership, random: Callable[[], int]
) -> StoredGroup:
    """Return the log of a group; begin it where this node has nothing of it, or damage.

    What was lost or is damaged may have been promised to others: it takes part again only as
    somebody else.

    Args:
        log: of the node.
        group: incarnation id.
        member: this node's member id in groups that it founds or joins.
        founders: the group's founding membership.
        random: returns a generation for a member that begins anew.
    """
    if log.is_kept(group):
        return StoredGroup(group, log.recovery.reader, log.recovery.ledger)
    if group in log.quarantined:
        return log.begin(group, member_id(member_node(member), random()), NOBODY)
    view = log.group(group)
    if view.member != 0:
        return view
    return log.begin(group, member, founders if founders.contains(member) else NOBODY)


def core_of(
    view: StoredGroup,
    options: CoreOptions,
    boot: i64,
    stalled: bool,
    nodes_up: set[int],
    applied_index: i64 = 0,
) -> RaftCore:
    """Return a core that continues with a log.

    Args:
        view: the group's log.
        options: of all cores.
        boot: boot count of the data directory.
        stalled: the disk hangs: it takes part in no election.
        nodes_up: see `RaftCore.watch_nodes`.
        applied_index: up to here the application has been given the log, where that is beyond its
            snapshot.
    """
    config = GroupConfig(view.group, view.member, ())
    config.membership = view.membership  # the object itself: many groups share it
    seed = (view.group * _SEED_FACTOR + view.member) * _SEED_FACTOR + boot
    applied: i64 = max(applied_index, view.snapshot_index)
    core = RaftCore(config, options, view, view.hard_state, applied, seed)
    core.withhold(stalled)
    core.watch_nodes(nodes_up)
    return core
