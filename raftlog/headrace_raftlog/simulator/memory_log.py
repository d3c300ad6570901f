"""One group's log in memory: what its member sees of it, or what a disk holds of it."""

from __future__ import annotations

from array import array
from typing import final

from mypy_extensions import i64
from typing_extensions import override

from headrace_raftlog.model.entry import ENTRY_CONFIG, Entry, HardState
from headrace_raftlog.model.log import GroupLog
from headrace_raftlog.model.membership import NOBODY, Membership
from headrace_raftlog.model.snapshot import Snapshot


@final
class MemoryLog(GroupLog):
    """A group's log in a list.

    Attributes:
        items: the entries behind the snapshot; `items[0]` has index `snapshot_index + 1`.
        member: own member id, 0 while the group is not known.
        founding: membership before the first entry.
        hard_state: newest one.
        snapshot: what replaced the beginning, None at first.
        snapshot_index, snapshot_term: its position.
        bodies: entries up to `snapshot_index` that are still read, by index.
        incoming: entries fetched ahead of a snapshot, by index.
    """

    def __init__(self, items: list[Entry]) -> None:
        self.items = items
        self.member: i64 = 0
        self.founding = NOBODY
        self.hard_state = HardState(0, 0, 0)
        self.snapshot: Snapshot | None = None
        self.snapshot_index: i64 = 0
        self.snapshot_term: i64 = 0
        self.bodies: dict[int, Entry] = {}
        self.incoming: dict[int, Entry] = {}

    @property
    def membership(self) -> Membership:
        """Members of the group at `snapshot_index`."""
        return self.founding if self.snapshot is None else self.snapshot.membership

    @override
    def first_index(self) -> i64:
        """Return the index behind the snapshot."""
        return self.snapshot_index + 1

    @override
    def last_index(self) -> i64:
        """Return the highest index, that of the snapshot when nothing follows it."""
        return self.snapshot_index + len(self.items)

    @override
    def term_at(self, index: i64) -> i64:
        """Return the term of `index`; 0 for index 0; -1 where it is not known."""
        at: i64 = index - self.snapshot_index - 1
        if at == -1:
            return self.snapshot_term
        if at < 0 or at >= len(self.items):
            return -1
        return self.items[at].term

    @override
    def entries(self, low: i64, high: i64, bytes_max: i64) -> list[Entry]:
        """Return entries from `low` up to and without `high`, cut by bytes but never empty."""
        start: i64 = low - self.snapshot_index - 1
        end: i64 = min(high - self.snapshot_index - 1, i64(len(self.items)))
        if start < 0 or start >= end:
            raise KeyError(f"entries {low} to {high} of {self.first_index()}..{self.last_index()}")
        size: i64 = 0
        at: i64 = start
        while at < end:
            size += len(self.items[at].data)
            if size > bytes_max and at > start:
                break
            at += 1
        return self.items[start:at]

    @override
    def config_entries(self) -> list[Entry]:
        """Return the entries of kind ENTRY_CONFIG behind the snapshot."""
        return [entry for entry in self.items if entry.kind == ENTRY_CONFIG]

    def entry(self, index: i64) -> Entry:
        """Return one entry, which may be one that outlived its place in the log.

        Raises:
            KeyError: there is no such entry.
        """
        if index > self.snapshot_index and index <= self.last_index():
            return self.items[index - self.snapshot_index - 1]
        return self.bodies[index]

    def copy(self) -> MemoryLog:
        """Return a log with the same content that lives on its own."""
        other = MemoryLog(list(self.items))
        other.member = self.member
        other.founding = self.founding
        other.hard_state = self.hard_state
        other.snapshot = self.snapshot
        other.snapshot_index = self.snapshot_index
        other.snapshot_term = self.snapshot_term
        other.bodies = dict(self.bodies)
        other.incoming = dict(self.incoming)
        return other

    def begin(self, member: i64, membership: Membership) -> None:
        """Forget everything and belong to `member`."""
        self.items = []
        self.member = member
        self.founding = membership
        self.hard_state = HardState(0, 0, 0)
        self.snapshot = None
        self.snapshot_index = 0
        self.snapshot_term = 0
        self.bodies = {}
        self.incoming = {}

    def append(self, entries: list[Entry]) -> None:
        """Put `entries` at their indexes; existing ones there and beyond are replaced."""
        at: i64 = entries[0].index - self.snapshot_index - 1
        assert 0 <= at <= len(self.items), f"{entries[0]!r} behind {self.last_index()}"
        del self.items[at:]
        self.items.extend(entries)

    def save(self, snapshot: Snapshot) -> None:
        """Let a snapshot of this member's own replace the beginning; an older one is ignored."""
        index: i64 = snapshot.index
        if index <= self.snapshot_index:
            return
        assert self.term_at(index) == snapshot.term, f"{snapshot!r} is not of this log"
        self._keep(snapshot)
        del self.items[: index - self.snapshot_index]
        self._place(snapshot)

    def install(self, snapshot: Snapshot, keep_suffix: bool) -> None:
        """Let a leader's snapshot replace the beginning, or the whole log."""
        self._keep(snapshot)
        if keep_suffix and snapshot.index <= self.last_index():
            del self.items[: snapshot.index - self.snapshot_index]
        else:
            self.items = []
        self._place(snapshot)

    def add_incoming(self, entries: list[Entry]) -> None:
        """Keep entries for a snapshot that is to be installed, but none that one has replaced."""
        for entry in entries:
            if entry.index > self.snapshot_index:
                self.incoming[entry.index] = entry

    def missing(self, live: array[int], commit_index: i64) -> list[int]:
        """Return which of the live entries of a snapshot this member has to fetch."""
        out: list[int] = []
        for index in live:
            held = index in self.incoming or index in self.bodies
            if not held and not self.snapshot_index < index <= min(commit_index, self.last_index()):
                out.append(index)
        return out

    def holds(self, index: i64, term: i64) -> bool:
        """Return whether the entry at `index` is of `term`, or is part of the snapshot."""
        return index <= self.snapshot_index or self.term_at(index) == term

    def _keep(self, snapshot: Snapshot) -> None:
        bodies: dict[int, Entry] = {}
        for index in snapshot.live:
            found = self.incoming.get(index)
            bodies[index] = found if found is not None else self.entry(index)
        self.bodies = bodies

    def _place(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.snapshot_index = snapshot.index
        self.snapshot_term = snapshot.term
        self.incoming = {at: one for at, one in self.incoming.items() if at > snapshot.index}
