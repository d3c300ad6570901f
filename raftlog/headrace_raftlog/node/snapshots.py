"""When groups take snapshots: often enough for disk and restart, seldom enough for the load."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from headrace_raftlog.core.progress import SNAPSHOT_OFFERED
from headrace_raftlog.log_event import RAFT, SNAPSHOT_SLOW, log_event
from headrace_raftlog.model.limits import (
    COLLECT_BYTES_PER_TICK,
    SNAPSHOT_BYTES_PER_TICK,
    SNAPSHOT_COST_BYTES,
    SNAPSHOT_GROWTH,
    SNAPSHOT_OUTRUN_FACTOR,
    SNAPSHOT_SLOW_S,
    SNAPSHOT_WAIT_FACTOR,
    SNAPSHOTS_PER_TICK,
)
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_raftlog.storage.log.shared_log import SharedLog


@final
class SnapshotTaker:
    """Takes snapshots of groups that are due, a bounded number at a time."""

    def __init__(
        self, log: SharedLog, find: Callable[[int], HostedGroup | None], every_bytes: i64
    ) -> None:
        self.taken: i64 = 0  # snapshots taken since the start
        self._log = log
        self._find = find
        self._every_bytes = every_bytes
        self._due: dict[int, None] = {}
        self._applied_bytes: i64 = 0  # over all groups since the last tick

    @property
    def is_outrun(self) -> bool:
        """True if snapshots are due and too much was applied to wait for a tick.

        What the snapshots of one tick free is about as much as they are apart. A load that applies
        more between two ticks would fill the disk faster than they empty it.
        """
        if not self._due:
            return False
        return self._applied_bytes > SNAPSHOT_OUTRUN_FACTOR * self._every_bytes

    def applied(self, hosted: HostedGroup, size: i64) -> None:
        """Note that a group has applied entries that cost `size` bytes."""
        self._applied_bytes += size
        if hosted.unsaved_bytes > self._interval(hosted):
            self._due[hosted.group] = None

    def tick(self) -> None:
        """Take the snapshots that are due; let the log collect its garbage."""
        self._applied_bytes = 0
        for group in self._log.collect(COLLECT_BYTES_PER_TICK):
            self._due[group] = None
        count: i64 = 0
        size: i64 = 0
        for group in list(self._due):
            hosted = self._find(group)
            if hosted is not None and self._should_wait(hosted):
                continue
            del self._due[group]
            if hosted is not None and self.take(hosted):
                count += 1
                size += hosted.saved_bytes + SNAPSHOT_COST_BYTES
                if count >= SNAPSHOTS_PER_TICK and size >= SNAPSHOT_BYTES_PER_TICK:
                    return

    def take(self, hosted: HostedGroup) -> bool:
        """Take a group's snapshot; return False where nothing was applied since the last."""
        core = hosted.core
        index: i64 = core.applied_index
        if index <= hosted.saved_index:
            return False
        began_s = time.monotonic()
        state, live = hosted.handler.snapshot()
        held = _intact(hosted, hosted.handler.held())
        term = hosted.view.term_at(index)
        snapshot = Snapshot(index, term, core.membership_at(index), state, live, held)
        self._log.save_snapshot(hosted.group, snapshot)
        self.taken += 1
        self.saved(hosted, snapshot)
        passed_s = time.monotonic() - began_s
        if passed_s >= SNAPSHOT_SLOW_S:
            size = hosted.saved_bytes
            log_event(
                RAFT, SNAPSHOT_SLOW, group=hosted.group, index=index, bytes=size, seconds=passed_s
            )
        return True

    def restore(self, hosted: HostedGroup) -> None:
        """Give a group's application the state that the log begins with.

        Raises CorruptLogError: it is not intact.
        """
        hosted.restored = True
        snapshot = self._log.read_snapshot(hosted.group)
        if snapshot is not None:
            hosted.handler.restore(snapshot.state)
            self.saved(hosted, snapshot)

    def saved(self, hosted: HostedGroup, snapshot: Snapshot) -> None:
        """Note that the log begins behind a snapshot now, or once that is durable."""
        hosted.saved_index = snapshot.index
        hosted.unsaved_bytes = 0
        hosted.saved_bytes = len(snapshot.state) + 8 * len(snapshot.live)

    def _interval(self, hosted: HostedGroup) -> i64:
        return max(self._every_bytes, SNAPSHOT_GROWTH * hosted.saved_bytes)

    def _should_wait(self, hosted: HostedGroup) -> bool:
        """Return whether a member in reach was not yet sent what the snapshot would drop.

        Then it would have to fetch the snapshot, which costs more than to wait a little.
        """
        if hosted.unsaved_bytes > SNAPSHOT_WAIT_FACTOR * self._interval(hosted):
            return False
        core = hosted.core
        for progress in core.peers:
            if progress.is_out_of_reach() and not progress.recent_active:
                continue
            if progress.state == SNAPSHOT_OFFERED or progress.next_index <= core.applied_index:
                return True
        return False


def _intact(hosted: HostedGroup, held: array[int]) -> array[int]:
    """Return retained dead entries, without those whose record is damaged.

    No other member need have them; whoever reads them finds them gone, and begins anew.
    """
    lost = hosted.view.lost
    return held if lost is None else array("Q", [index for index in held if index not in lost])
