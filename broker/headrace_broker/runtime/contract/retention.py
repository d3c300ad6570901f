"""Dead entries of a queue's log that are kept for a reader.

An entry that dies while it is within the held part of the log is noted here instead of being
forgotten, and stays in this node's log; snapshots, which travel, do not name it. What is held has
bounds, in entries and in bytes: past one of them everything is let go, and who reads has to begin
anew.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.model.limits import BACKUP_HELD_BYTES_MAX, BACKUP_HELD_ENTRIES_MAX

NOTHING: Final = -1  # highest entry without a reader


@final
class Retention:
    """Retained log entries of one replica."""

    def __init__(
        self, entries_max: i64 = BACKUP_HELD_ENTRIES_MAX, bytes_max: i64 = BACKUP_HELD_BYTES_MAX
    ) -> None:
        self._entries_max = entries_max  # that died and are kept
        self._bytes_max = bytes_max  # of these
        self.byte_count: i64 = 0  # of these
        self.breaks: i64 = 0  # how often everything was let go
        self.broken = ""  # why it was the last time
        self.released: list[array[int]] = []  # held no more; the log is yet to be told of
        self._low: i64 = 0
        self._high: i64 = NOTHING
        self._entries: array[int] = array("Q")
        self._sizes: array[int] = array("I")
        self._ascending = True

    @property
    def count(self) -> int:
        """Number of entries that died and are kept."""
        return len(self._entries)

    def covers(self, index: i64) -> bool:
        """Return whether an entry has to be kept when it dies."""
        return self._low <= index <= self._high

    def keep(self, index: i64, byte_count: i64) -> None:
        """Keep an entry that died."""
        entries = self._entries
        if entries and i64(entries[-1]) > index:
            self._ascending = False
        entries.append(index)
        self._sizes.append(byte_count)
        self.byte_count += byte_count
        if len(entries) > self._entries_max:
            self.break_off(f"more than {self._entries_max} entries would be held")
        elif self.byte_count > self._bytes_max:
            self.break_off(f"more than {self._bytes_max} bytes would be held")

    def cover(self, low: i64, high: i64) -> None:
        """Keep the entries from `low` to `high` from now on, and drop all others."""
        self._low = low
        self._high = high
        if not self._entries:
            return
        if not self._ascending:
            self._sort()
        count = len(self._entries)
        self._release(bisect_right(self._entries, high), count)
        self._release(0, bisect_left(self._entries, low))

    def _release(self, start: i64, stop: i64) -> None:
        """Release some entries; costs as much as these are, and a move of those behind them."""
        if start >= stop:
            return
        self.released.append(self._entries[start:stop])
        self.byte_count -= sum(self._sizes[start:stop])
        del self._entries[start:stop]
        del self._sizes[start:stop]

    def break_off(self, reason: str) -> None:
        """Let everything go."""
        self.breaks += 1
        self.broken = reason
        self._low, self._high = 0, NOTHING
        if self._entries:
            self.released.append(self._entries)
        self._entries, self._sizes, self.byte_count = array("Q"), array("I"), 0
        self._ascending = True

    def lose(self, reason: str) -> None:
        """Note that the log has dropped all entries by itself."""
        self.break_off(reason)
        self.released = []

    def next_released(self, most: i64) -> array[int]:
        """Take some of the entries that are held no more; empty when none are left."""
        if not self.released:
            return array("Q")
        part = self.released[-1]
        if len(part) <= most:
            return self.released.pop()
        some = part[-most:]
        del part[-most:]
        return some

    def held(self) -> array[int]:
        """Return the positions of the entries that died and are kept, ascending."""
        if not self._ascending:
            self._sort()
        return self._entries[:]

    def _sort(self) -> None:
        pairs = sorted(zip(self._entries, self._sizes, strict=True))
        self._entries = array("Q", [pair[0] for pair in pairs])
        self._sizes = array("I", [pair[1] for pair in pairs])
        self._ascending = True
