"""What other nodes may fetch from this one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.node.host import Host
from headrace_raftlog.storage.shared_log import SharedLog

LOG: Final = logging.getLogger(__name__)


class HostedSource:
    """The snapshots and committed entries of the groups of a host."""

    def __init__(self, host: Host, log: SharedLog) -> None:
        self._host = host
        self._log = log

    def snapshot(self, group: int) -> Snapshot | None:
        """Return the newest snapshot of a group, None where there is none."""
        if self._host.stopped or self._host.find(group) is None:
            return None
        try:
            return self._log.read_snapshot(group)
        except CorruptLogError:
            LOG.exception("group %d: its snapshot cannot be served", group)
            return None

    def prepare(self, group: int, index: int, done: Callable[[], None]) -> bool:
        """Read an entry ahead for `entry`; see `StoredGroup.prepare`."""
        hosted = self._host.find(group)
        if self._host.stopped or hosted is None:
            return True
        try:
            return hosted.view.prepare(index, done)
        except OSError:
            LOG.exception("group %d: entry %d cannot be read", group, index)
            return True

    def entry(self, group: int, index: int) -> Entry | None:
        """Return a committed entry, None where it is not there or no longer."""
        hosted = self._host.find(group)
        if self._host.stopped or hosted is None or index > hosted.core.commit_index:
            return None
        try:
            return hosted.view.entry(index)
        except KeyError:
            return None
        except CorruptLogError:
            LOG.exception("group %d: entry %d cannot be served", group, index)
            return None

    def stored_entry(self, group: int, index: int, term: int, member: int) -> Entry | None:
        """See `BulkSource`: from the log, so that a suspended group is served too."""
        if self._host.stopped or not self._log.known(group):
            raise LookupError(f"group {group} is not served here")
        view = self._log.group(group)
        if index > view.snapshot_index and term and view.term_at(index) != term:
            if view.member != member:
                raise LookupError(f"group {group}: the member here is another one")
            return None
        if not view.has(index):
            raise KeyError(f"group {group} keeps no entry {index}")
        try:
            entry = view.entry(index)
        except CorruptLogError as error:
            raise LookupError(f"group {group}: entry {index} is damaged here too") from error
        if term and entry.term != term:
            raise KeyError(f"group {group}: entry {index} is of term {entry.term}")
        return entry
