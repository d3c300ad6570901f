"""Groups that stop while their node runs, because a record of theirs turned out to be damaged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

from headrace_raftlog.log_event import RAFT, REPLICA_DIVERGED, log_event
from headrace_raftlog.model.entry import HardState
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.model.message import Message
from headrace_raftlog.node.group_events import Labels, no_labels
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_raftlog.storage.group.lost_entries import lose, lost_indexes
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.segment.disk_reads import call_each

LOG: Final = logging.getLogger("headrace.raft")


def ignore_diverged(_group: int, _index: int) -> None:
    """Leave a group that differs suspended: its host has no node around it."""


class Suspensions:
    """Suspends groups with a lost entry, between two turns of their cores."""

    def __init__(
        self,
        log: SharedLog,
        nodes_up: Callable[[], Collection[int]],
        post_all: Callable[[HostedGroup, list[Message]], None],
        told: Callable[[HostedGroup], None],
        suspended: Callable[[HostedGroup], None],
        schedule: Callable[[], None],
    ) -> None:
        self.rebuilt = 0  # members that differed from the others and were given up
        # called with a group that stands still here for good, and the checkpoint at which it
        # differed, to begin it anew as another member in a later turn of the event loop
        self.on_diverged: Callable[[int, int], object] = ignore_diverged
        self.labels: Labels = no_labels  # what the application calls a group
        self.entries_lost = 0  # entries found damaged while the node ran
        # by id, groups whose snapshot on disk was found damaged and not replaced yet
        self.lost_snapshots: dict[int, HostedGroup] = {}
        self._log = log  # what the groups are stored in
        self._nodes_up = nodes_up  # returns the ids of the other nodes that are up
        self._post_all = post_all  # sends messages of a group
        self._told = told  # tells the application of a group about a change of leadership
        self._suspended = suspended  # called with a group that stands still, to mend it
        self._schedule = schedule  # has `begin_all` called in a later turn of the event loop
        self._stricken: list[HostedGroup] = []
        self._waiting: dict[int, dict[Callable[[], None], None]] = {}  # by group

    def note(self, hosted: HostedGroup, index: int) -> None:
        """Note that the record of an entry was found damaged: its group stands still soon.

        May be called from within a core's or an application's call.
        """
        if lose(hosted.view, index):
            self.entries_lost += 1
        self._stricken.append(hosted)
        self._schedule()

    def wait(self, hosted: HostedGroup, index: int, done: Callable[[], None]) -> bool:
        """Call a function once a lost entry can be read; False if it is not lost."""
        if index not in lost_indexes(hosted.view) or index in hosted.view.recent:
            return False
        self._waiting.setdefault(hosted.group, {})[done] = None
        return True

    def give_up(self, done: Callable[[], None]) -> None:
        """Cancel the callback of a function that waits for an entry."""
        for group in [group for group, waiting in self._waiting.items() if done in waiting]:
            del self._waiting[group][done]

    def over(self, hosted: HostedGroup) -> None:
        """Call those who waited for entries of a group that stands still no more, or is gone."""
        call_each(self._waiting.pop(hosted.group, {}))

    def snapshot_lost(self, hosted: HostedGroup) -> None:
        """Note that a group's snapshot on disk was found damaged: another one is to be taken."""
        stored = hosted.view.snapshot
        if stored is None or hosted.snapshot_lost is stored:
            return
        hosted.snapshot_lost = stored
        self.lost_snapshots[hosted.group] = hosted
        LOG.error(
            "group %d: its snapshot at entry %d is damaged on disk; a new one is taken as soon as "
            "something was applied behind it",
            hosted.group,
            stored.index,
        )

    def gone(self, hosted: HostedGroup) -> None:
        """Call the waiters of a removed group in a later turn of the event loop."""
        if self._waiting.get(hosted.group):
            self._stricken.append(hosted)
            self._schedule()

    def begin_all(self) -> None:
        """Suspend the groups of which something was noted."""
        if not self._stricken:
            return
        stricken, self._stricken = self._stricken, []
        for hosted in stricken:
            if hosted.removed or not (hosted.suspended or lost_indexes(hosted.view)):
                self.over(hosted)  # the entry has died, or stands elsewhere: it is asked for anew
            elif not hosted.suspended:
                self._suspend(hosted)
                self._suspended(hosted)

    def contradicted(self, hosted: HostedGroup) -> None:
        """Suspend a group whose leader has another entry where one is committed here.

        Nothing of it is changed, for a person decides which data count. How far it is committed is
        written at once: that it is, on disk, commonly lags, and a member that does not know it
        after its next start would follow that leader.
        """
        LOG.critical(
            "%s. Nodes that have confirmed it with this one were given an older copy of their "
            "data. The group stands still on this node, and its data are kept: see 'Old copies of "
            "data' in docs/clustering.md",
            hosted.contradiction,
        )
        written = hosted.view.hard_state
        commit = max(int(written.commit), int(hosted.core.applicable_index()))
        state = HardState(written.term, written.vote, commit)
        self._log.append(hosted.group, state, [], True, None)
        self._log.flush()
        self._suspend(hosted)

    def diverged(self, hosted: HostedGroup, index: int) -> None:
        """Suspend a group whose state here differs from a majority's; have it rebuilt soon."""
        self.rebuilt += 1
        core = hosted.core
        log_event(
            RAFT,
            REPLICA_DIVERGED,
            group=hosted.group,
            index=index,
            node=int(member_node(core.member)),
            member=int(core.member),
            **self.labels(hosted.group),
        )
        self._suspend(hosted)
        self.on_diverged(hosted.group, index)

    def _suspend(self, hosted: HostedGroup) -> None:
        self._post_all(hosted, hosted.stand_still(self._nodes_up()))
        self._told(hosted)
