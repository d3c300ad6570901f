"""Entries that were read back from disk a moment ago."""

from __future__ import annotations

from collections import OrderedDict
from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import (
    ENTRY_CACHE_OVERHEAD_BYTES,
    READ_CACHE_BYTES_MAX,
    READ_CACHE_ENTRY_BYTES_MAX,
)


@final
class ReadCache:
    """Cache of recently read entries that are used in pieces: a batch of messages, a few at a time.

    Entries are found by where they stand on disk. What stands there never changes as long as the
    file exists, and no file's number is used again, so nothing here is ever out of date.
    """

    def __init__(self) -> None:
        self.used: i64 = 0  # bytes that the entries cost, READ_CACHE_BYTES_MAX at most
        self._entries: OrderedDict[int, Entry] = OrderedDict()

    def find(self, location: i64) -> Entry | None:
        """Return the entry at a packed location if it is kept."""
        found = self._entries.get(location)
        if found is not None:
            self._entries.move_to_end(location)
        return found

    def keep(self, location: i64, entry: Entry) -> None:
        """Keep an entry that `find` did not find; those not used for longest make room for it."""
        size: i64 = len(entry.data)
        if size > READ_CACHE_ENTRY_BYTES_MAX:
            return
        self._entries[location] = entry
        self.used += size + ENTRY_CACHE_OVERHEAD_BYTES
        while self.used > READ_CACHE_BYTES_MAX:
            oldest = self._entries.popitem(last=False)[1]
            self.used -= i64(len(oldest.data)) + ENTRY_CACHE_OVERHEAD_BYTES
