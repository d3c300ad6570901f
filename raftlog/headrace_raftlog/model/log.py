"""The view of a group's log that its core reads."""

from __future__ import annotations

from abc import abstractmethod

from mypy_extensions import i64, mypyc_attr

from headrace_raftlog.model.entry import Entry


@mypyc_attr(allow_interpreted_subclasses=True)  # hosts need not be compiled
class GroupLog:
    """Everything appended to one group, durable or not yet.

    Implemented by the shared log of a node; tests implement it as a list.
    """

    @abstractmethod
    def first_index(self) -> i64:
        """Return the index behind the snapshot: the lowest that `entries` can give.

        1 while there is no snapshot. `term_at` knows the term of the index before it.
        """

    @abstractmethod
    def last_index(self) -> i64:
        """Return the highest appended index; that of the snapshot when nothing follows it."""

    @abstractmethod
    def term_at(self, index: i64) -> i64:
        """Return the term of `index`; 0 for index 0; -1 where it is compacted or beyond the end."""

    @abstractmethod
    def entries(self, low: i64, high: i64, bytes_max: i64) -> list[Entry]:
        """Return entries from `low` up to and without `high`, cut by bytes but never empty.

        Raises KeyError: `low` is below `first_index()` or beyond `last_index()`; CorruptLogError: a
        stored record fails its checksum.
        """

    def length_of(self, index: i64) -> i64:
        """Return how many bytes of data the entry at `index` has, without reading it from disk."""
        return len(self.entries(index, index + 1, 0)[0].data)

    def at_hand(self, low: i64, high: i64, bytes_max: i64) -> i64:
        """Return the index up to and without which `entries` from `low` need no disk.

        `low` where the first one is being read: the host tells the core when it was. A log in
        memory has everything at hand.
        """
        del low, bytes_max
        return high

    @abstractmethod
    def config_entries(self) -> list[Entry]:
        """Return the entries of kind ENTRY_CONFIG from `first_index()` on, in order."""
