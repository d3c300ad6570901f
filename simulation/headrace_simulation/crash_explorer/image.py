"""Content of a log, as values that can be compared."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final, NamedTuple

from headrace_raftlog.model.entry import ENTRY_CONFIG, Entry
from headrace_raftlog.model.membership import NOBODY, Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.log.shared_log import SharedLog

EntryImage = tuple[int, int, int, bytes]  # index, term, kind, data
FETCHED_INDEX_MAX: Final = 40  # entries from peers are looked for up to here


@dataclass(frozen=True, slots=True)
class SnapshotImage:
    """A snapshot as a value; see `Snapshot`."""

    index: int
    term: int
    membership: Membership
    state: bytes
    live: tuple[int, ...]

    @staticmethod
    def of(snapshot: Snapshot) -> SnapshotImage:
        """Return a snapshot as a value."""
        return SnapshotImage(
            snapshot.index, snapshot.term, snapshot.membership, snapshot.state, tuple(snapshot.live)
        )


class GroupImage(NamedTuple):
    """One group's part of a log.

    Attributes:
        term: of the hard state.
        vote: of the hard state.
        entries: all behind the snapshot, in order.
        commit: of the hard state: in what is expected the newest one given.
        commit_synced: in what is expected the newest one that had to be synced.
        removed: whether the group was removed; nothing else is set then.
        forgettable: whether it may even be forgotten that it was.
        member: own member id.
        membership: the founding one.
        snapshot: what replaces the entries before, or None.
        live: entries up to the snapshot that are still read.
        incoming: indexes of entries fetched from a peer; what was found may have more.
    """

    term: int = 0
    vote: int = 0
    entries: tuple[EntryImage, ...] = ()
    commit: int = 0
    commit_synced: int = 0
    removed: bool = False
    forgettable: bool = False
    member: int = 0
    membership: Membership = NOBODY
    snapshot: SnapshotImage | None = None
    live: tuple[EntryImage, ...] = ()
    incoming: tuple[int, ...] = ()

    def snapshot_index(self) -> int:
        """Return the index of the snapshot, 0 while there is none."""
        return self.snapshot.index if self.snapshot is not None else 0

    def first_index(self) -> int:
        """Return the lowest index behind the snapshot."""
        return self.snapshot_index() + 1

    def last_index(self) -> int:
        """Return the highest index."""
        return self.entries[-1][0] if self.entries else self.snapshot_index()

    def term_at(self, index: int) -> int:
        """Return the term of an entry, or of the snapshot, at `index`; 0 for index 0."""
        if self.snapshot is not None and index == self.snapshot.index:
            return self.snapshot.term
        return self.find(index)[1] if index else 0

    def find(self, index: int) -> EntryImage:
        """Return an entry, live or behind the snapshot."""
        if index > self.snapshot_index():
            return self.entries[index - self.first_index()]
        return next(entry for entry in self.live if entry[0] == index)

    def allows(self, found: GroupImage) -> bool:
        """Return whether a log may hold `found` where this is expected."""
        if self.forgettable and found == EMPTY:
            return True
        if found[:3] != self[:3] or found[7:11] != self[7:11] or found.removed != self.removed:
            return False
        last = self.last_index()
        low = min(self.commit_synced, last)
        high = max(self.snapshot_index(), min(self.commit, last))
        return low <= found.commit <= high and set(self.incoming) <= set(found.incoming)

    def __str__(self) -> str:
        if self.removed:
            return "removed"
        words = [f"term {self.term} vote {self.vote} commit {self.commit}"]
        if self.member:
            words.append(f"member {self.member} of {self.membership}")
        if self.snapshot is not None:
            live = " ".join(f"{index}/t{term}" for index, term, _, _ in self.live)
            words.append(f"snapshot {self.snapshot.index}/t{self.snapshot.term} live [{live}]")
        if self.incoming:
            words.append(f"incoming {list(self.incoming)}")
        held = " ".join(f"{index}/t{term}" for index, term, _, _ in self.entries)
        return f"{', '.join(words)} [{held}]"


EMPTY: Final = GroupImage()
REMOVED: Final = GroupImage(removed=True)
FORGETTABLE: Final = GroupImage(removed=True, forgettable=True)
LogImage = dict[int, GroupImage]  # by group; a group that is not in it is empty


def entry_image(entry: Entry) -> EntryImage:
    """Return an entry as a value."""
    return entry.index, entry.term, entry.kind, entry.data


def group_image(log: SharedLog, view: StoredGroup) -> GroupImage:
    """Read everything of a group, byte for byte.

    Raises:
        CorruptLogError: something cannot be read.
        AssertionError: the ways to read it contradict each other.
    """
    first, last = view.first_index(), view.last_index()
    entries = view.entries(first, last + 1, 1 << 40) if last >= first else []
    configs = [entry for entry in entries if entry.kind == ENTRY_CONFIG]
    assert view.config_entries() == configs, f"group {view.group}: config entries"
    for entry in entries:
        assert view.term_at(entry.index) == entry.term, f"group {view.group}: term of {entry}"
    snapshot = log.read_snapshot(view.group)
    taken = SnapshotImage.of(snapshot) if snapshot is not None else None
    live: tuple[EntryImage, ...] = ()
    if taken is not None:
        seen = view.snapshot_index, view.snapshot_term, view.membership
        assert seen == (taken.index, taken.term, taken.membership), f"group {view.group}: {seen}"
        assert first == taken.index + 1, f"group {view.group} begins at {first}"
        live = tuple(entry_image(view.entry(index)) for index in taken.live)
    state = view.hard_state
    return GroupImage(
        state.term,
        state.vote,
        tuple(map(entry_image, entries)),
        state.commit,
        state.commit,
        False,
        False,
        view.member,
        view.membership if taken is None else NOBODY,
        taken,
        live,
        _fetched(log, view),
    )


def _fetched(log: SharedLog, view: StoredGroup) -> tuple[int, ...]:
    candidates = range(view.first_index(), FETCHED_INDEX_MAX + 1)
    lacking = set(log.missing(view.group, array("Q", candidates), 0))
    return tuple(index for index in candidates if index not in lacking)


def log_image(log: SharedLog, universe: int) -> LogImage:
    """Read everything a log holds of groups 1 to `universe`, and of all others it knows.

    Raises:
        CorruptLogError: something cannot be read.
        AssertionError: the ways to read it contradict each other.
    """
    image: LogImage = {}
    for group in sorted({*log.groups(), *range(1, universe + 1)}):
        try:
            view = log.group(group)
        except KeyError:
            image[group] = REMOVED
        else:
            held = group_image(log, view)
            if held != EMPTY:
                image[group] = held
    return image
