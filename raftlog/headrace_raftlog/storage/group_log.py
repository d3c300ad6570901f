"""One group's part of the shared log, as its core and its host read it."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.log import GroupLog
from headrace_raftlog.storage.record import (
    HEADER_BYTES,
    RECORD_ENTRY,
    decode_entry,
    record_bytes,
    record_group_at,
    record_index_at,
    record_term_at,
    record_type_at,
)
from headrace_raftlog.storage.segment import SegmentReader


@final
class StoredGroup(GroupLog):
    """Index of one group's entries: 12 bytes each, and a run per term.

    A location packs segment sequence and offset (32 bits each); it is 0 while the entry is not
    known to be durable, and the entry is then in memory. Belongs to the event loop's thread.

    Attributes:
        group: incarnation id.
        hard_state: newest one, appended or recovered.
    """

    def __init__(self, group: i64, reader: SegmentReader) -> None:
        self.group = group
        self.hard_state = HardState(0, 0, 0)
        self._reader = reader
        self._first: i64 = 1
        self._last: i64 = 0
        self._locations: array[int] = array("Q")
        self._lengths: array[int] = array("I")
        self._run_starts: list[int] = []
        self._run_terms: list[int] = []
        self._recent: dict[int, Entry] = {}

    def first_index(self) -> i64:
        """Return the lowest index that `entries` can give."""
        return self._first

    def last_index(self) -> i64:
        """Return the highest appended index, durable or not; 0 for an empty log."""
        return self._last

    def term_at(self, index: i64) -> i64:
        """Return the term of `index`; 0 for index 0; -1 where it is not known."""
        if index == 0:
            return 0
        if index < self._first or index > self._last:
            return -1
        starts = self._run_starts
        if starts[-1] <= index:
            return self._run_terms[-1]
        return self._run_terms[bisect_right(starts, index) - 1]

    def config_entries(self) -> list[Entry]:
        """Return the entries of kind ENTRY_CONFIG, in order: none, while none are proposed."""
        return []

    def entry(self, index: i64) -> Entry:
        """Return one entry, from memory or disk.

        Raises:
            KeyError: there is no such entry.
            CorruptLogError: its record fails its checksum.
            OSError: its file cannot be read.
        """
        hit = self._recent.get(index)
        return hit if hit is not None else self.entries(index, index + 1, 0)[0]

    def entries(self, low: i64, high: i64, bytes_max: i64) -> list[Entry]:
        """Return entries from `low` up to and without `high`, cut by bytes but never empty.

        Raises:
            KeyError: `low` is below `first_index()` or beyond `last_index()`.
            CorruptLogError: a stored record fails its checksum.
            OSError: a file cannot be read.
        """
        if low < self._first or low > self._last or high <= low:
            raise KeyError(
                f"group {self.group} has entries {self._first} to {self._last}, "
                f"asked for {low} up to {high}"
            )
        out: list[Entry] = []
        stop: i64 = min(high, self._last + 1)
        index: i64 = low
        left: i64 = bytes_max
        while index < stop:
            left -= i64(self._lengths[index - self._first])
            if left < 0 and index > low:
                break
            index += 1
        stop = index
        index = low
        while index < stop:
            hit = self._recent.get(index)
            if hit is not None:
                out.append(hit)
                index += 1
            else:
                index = self._load(index, stop, out)
        return out

    def _load(self, low: i64, high: i64, out: list[Entry]) -> i64:
        """Read the entries from `low` that lie one behind the other on disk; return the next."""
        at: i64 = low - self._first
        location: i64 = self._locations[at]
        size: i64 = HEADER_BYTES + i64(self._lengths[at])
        stop: i64 = low + 1
        while stop < high and stop not in self._recent:
            if i64(self._locations[stop - self._first]) != location + size:
                break
            size += HEADER_BYTES + i64(self._lengths[stop - self._first])
            stop += 1
        sequence: i64 = location >> 32
        offset: i64 = location & 0xFFFFFFFF
        data = self._reader.read(sequence, offset, size)
        position: i64 = 0
        index: i64 = low
        while index < stop:
            taken: i64 = record_bytes(data, position, len(data), self._reader.salt)
            if taken < 0 or not self._is_record_of(data, position, index):
                raise CorruptLogError(
                    self._reader.path(sequence),
                    offset + position,
                    f"entry {index} of group {self.group} is not intact there",
                )
            out.append(decode_entry(data, position))
            position += taken
            index += 1
        return stop

    def _is_record_of(self, data: bytes, position: i64, index: i64) -> bool:
        if record_type_at(data, position) != RECORD_ENTRY:
            return False
        if record_group_at(data, position) != self.group:
            return False
        if record_index_at(data, position) != index:
            return False
        return record_term_at(data, position) == self.term_at(index)

    def append(self, entries: list[Entry]) -> None:
        """Make entries visible, in memory only so far; drop what they replace.

        Args:
            entries: consecutive; the first at most one beyond the last index.

        Raises:
            AssertionError: they would leave a gap or replace compacted entries.
        """
        first: i64 = entries[0].index
        assert self._first <= first <= self._last + 1, (
            f"group {self.group}: entry {first} behind {self._last} (first {self._first})"
        )
        if first <= self._last:
            self.truncate(first)
        for entry in entries:
            assert entry.index == self._last + 1, f"group {self.group}: gap before {entry!r}"
            self._push(entry.index, entry.term, 0, len(entry.data))
            self._recent[entry.index] = entry

    def truncate(self, index: i64) -> None:
        """Drop every entry from `index` on."""
        assert index >= self._first
        while self._last >= index:
            self._recent.pop(self._last, None)
            self._last -= 1
        del self._locations[index - self._first :]
        del self._lengths[index - self._first :]
        while self._run_starts and self._run_starts[-1] >= index:
            self._run_starts.pop()
            self._run_terms.pop()

    def restore(self, index: i64, term: i64, location: i64, length: i64) -> str:
        """Take in an entry that recovery found; return what is wrong with it, or ''."""
        if index < self._first or index > self._last + 1:
            return f"entry {index} of group {self.group} follows entry {self._last}"
        if index <= self._last:
            self.truncate(index)
        if self._run_terms and self._run_terms[-1] > term:
            return f"entry {index} of group {self.group} goes back to term {term}"
        self._push(index, term, location, length)
        return ""

    def _push(self, index: i64, term: i64, location: i64, length: i64) -> None:
        self._locations.append(location)
        self._lengths.append(length)
        if not self._run_terms or self._run_terms[-1] != term:
            self._run_starts.append(index)
            self._run_terms.append(term)
        self._last = index

    def settle(self, entries: list[Entry], location: i64) -> None:
        """Note where entries became durable; those replaced meanwhile are passed over.

        Args:
            entries: consecutive entries as appended.
            location: of the first one's record; the others follow it directly.
        """
        at: i64 = location
        recent = self._recent
        for entry in entries:
            if recent.get(entry.index) is entry:
                self._locations[entry.index - self._first] = at
            at += HEADER_BYTES + i64(len(entry.data))

    def forget(self, entries: list[Entry]) -> None:
        """Let durable entries leave memory."""
        recent = self._recent
        for entry in entries:
            if recent.get(entry.index) is entry:
                del recent[entry.index]
