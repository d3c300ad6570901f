"""A group's log as its core sees it: the host's part plus pending entries."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.log import GroupLog

NO_ENTRIES: Final[list[Entry]] = []  # one for all logs; never changed


@final
class LogView:
    """The host's log overlaid with entries that wait for the next Ready."""

    def __init__(self, log: GroupLog) -> None:
        self.log = log
        self.last_index: i64 = log.last_index()  # highest index, handed out or not
        # entries not handed out, consecutive from `pending_first`; what the host's log holds from
        # `pending_first` on is replaced by them
        self.pending = NO_ENTRIES
        # index of the first pending entry; `last_index + 1` when there is none
        self.pending_first: i64 = self.last_index + 1

    def first_index(self) -> i64:
        """Return the index behind the snapshot."""
        return self.log.first_index()

    def last_term(self) -> i64:
        """Return the term of the last entry, 0 for an empty log."""
        return self.term_at(self.last_index)

    def term_at(self, index: i64) -> i64:
        """Return the term of `index`; 0 for index 0; -1 where it is not known."""
        if index < self.pending_first:
            return self.log.term_at(index)
        if index <= self.last_index:
            return self.pending[index - self.pending_first].term
        return -1

    def length_of(self, index: i64) -> i64:
        """Return how many bytes of data the entry at `index` has."""
        if index < self.pending_first:
            return self.log.length_of(index)
        return len(self.pending[index - self.pending_first].data)

    def at_hand(self, low: i64, high: i64, bytes_max: i64) -> i64:
        """Return the index up to and without which entries from `low` can be had at once."""
        if low >= self.pending_first:
            return high
        stop: i64 = min(high, self.pending_first)
        found: i64 = self.log.at_hand(low, stop, bytes_max)
        return high if found == stop else found

    def entries(self, low: i64, high: i64, bytes_max: i64) -> list[Entry]:
        """Return entries from `low` up to and without `high`, cut by bytes but never empty.

        Raises KeyError: `low` is below the log's first index.
        """
        out: list[Entry] = []
        left: i64 = bytes_max
        if low < self.pending_first:
            stop: i64 = min(high, self.pending_first)
            out = self.log.entries(low, stop, bytes_max)
            if len(out) < stop - low or stop == high:
                return out
            for entry in out:
                left -= len(entry.data)
            low = stop
        for position in range(low - self.pending_first, high - self.pending_first):
            entry = self.pending[position]
            left -= len(entry.data)
            if left < 0 and out:
                break
            out.append(entry)
        return out

    def append(self, entries: list[Entry]) -> None:
        """Put `entries` at their indexes; existing ones there and beyond are replaced.

        Args:
            entries: at least one, consecutive, the first at most one beyond `last_index`.
        """
        first: i64 = entries[0].index
        assert first <= self.last_index + 1, "a log must not have gaps"
        if first <= self.pending_first:
            self.pending = entries[:]
            self.pending_first = first
        else:
            del self.pending[first - self.pending_first :]
            self.pending.extend(entries)
        self.last_index = entries[-1].index

    def take_pending(self) -> list[Entry]:
        """Hand the pending entries over; the host makes them visible before the next call."""
        out = self.pending or []
        self.pending = NO_ENTRIES
        self.pending_first = self.last_index + 1
        return out

    def restored(self, index: i64, keep: bool) -> None:
        """Note that the host's log is about to begin behind a snapshot that ends at `index`.

        Args:
            index: position of the snapshot.
            keep: whether what follows it stays; otherwise nothing does.
        """
        if not keep:
            self.pending = NO_ENTRIES
            self.last_index = index
            self.pending_first = index + 1
        elif self.pending_first <= index:
            del self.pending[: index + 1 - self.pending_first]
            self.pending_first = index + 1

    def first_fresh(self, entries: list[Entry]) -> i64:
        """Return the position of the first entry that this log lacks or contradicts.

        Returns:
            A position in `entries`, or its length when the log already holds them all.

        Source: thesis section 3.5 (log matching): equal index and term means equal entries.
        """
        for position in range(len(entries)):
            entry = entries[position]
            if self.term_at(entry.index) != entry.term:
                return position
        return len(entries)

    def agree_before(self, index: i64, term: i64) -> i64:
        """Return the highest index up to `index` whose term is at most `term`.

        A log whose entry before an APPEND has `term` cannot agree with this one above that.
        """
        while index > 0 and self.term_at(index) > term:
            index -= 1
        return index
