"""Which entries stay in memory."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import ENTRY_CACHE_OVERHEAD_BYTES
from headrace_raftlog.storage.group.group_log import StoredGroup


def cached_bytes(entries: list[Entry]) -> i64:
    """Return what entries cost in memory."""
    total: i64 = 0
    for entry in entries:
        total += i64(len(entry.data)) + ENTRY_CACHE_OVERHEAD_BYTES
    return total


@final
class _Written:
    """Entries of a group that became durable together."""

    def __init__(self, group: StoredGroup, first: i64, stop: i64, size: i64) -> None:
        self.group = group
        self.first = first  # index of the first
        self.stop = stop  # index behind the last
        self.size = size  # what they count


@final
class EntryCache:
    """Bound on the entries in memory, over all groups; the oldest appended leave first.

    Entries not yet durable are pinned: they count, but leave only after they were settled. What a
    group lets go of by itself counts until its turn comes.
    """

    def __init__(self, limit: i64) -> None:
        self.limit = limit  # bytes
        self.used: i64 = 0  # bytes now; beyond the limit only while pinned entries alone exceed it
        self._settled: deque[_Written] = deque()

    def resize(self, limit: i64) -> None:
        """Change the limit, at once: excess entries are dropped."""
        self.limit = limit
        self._evict()

    def pin(self, size: i64) -> None:
        """Count entries that were appended."""
        self.used += size
        self._evict()

    def unpin(self, size: i64) -> None:
        """Count no longer what `pin` counted: it is not kept."""
        self.used -= size

    def settle(self, group: StoredGroup, entries: list[Entry], size: i64) -> None:
        """Let entries that became durable be evicted when their turn comes.

        What is longer than the whole cache leaves at once, and nothing else for it. What replaced
        an entry after it became durable leaves with it.
        """
        first: i64 = entries[0].index
        stop: i64 = first + group.held_of(entries)
        if size > self.limit:
            group.forget(first, stop)
            self.used -= size
            return
        self._settled.append(_Written(group, first, stop, size))
        self._evict()

    def _evict(self) -> None:
        while self.used > self.limit and self._settled:
            oldest = self._settled.popleft()
            oldest.group.forget(oldest.first, oldest.stop)
            self.used -= oldest.size
