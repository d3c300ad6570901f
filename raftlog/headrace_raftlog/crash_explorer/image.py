"""What a log holds, as values that can be compared."""

from __future__ import annotations

from typing import NamedTuple

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.storage.group_log import StoredGroup
from headrace_raftlog.storage.shared_log import SharedLog

EntryImage = tuple[int, int, int, bytes]  # index, term, kind, data


class GroupImage(NamedTuple):
    """One group's part of a log.

    Attributes:
        term: of the hard state.
        vote: of the hard state.
        entries: all of them, in order.
        commit: of the hard state: in what is expected the newest one given.
        commit_synced: in what is expected the newest one that had to be synced.
        removed: whether the group was removed; nothing else is set then.
    """

    term: int = 0
    vote: int = 0
    entries: tuple[EntryImage, ...] = ()
    commit: int = 0
    commit_synced: int = 0
    removed: bool = False

    def last_index(self) -> int:
        """Return the highest index."""
        return self.entries[-1][0] if self.entries else 0

    def allows(self, found: GroupImage) -> bool:
        """Return whether a log may hold `found` where this is expected."""
        if found._replace(commit=0, commit_synced=0) != self._replace(commit=0, commit_synced=0):
            return False
        last = self.last_index()
        return min(self.commit_synced, last) <= found.commit <= min(self.commit, last)

    def __str__(self) -> str:
        if self.removed:
            return "removed"
        held = " ".join(f"{index}/t{term}" for index, term, _, _ in self.entries)
        return f"term {self.term} vote {self.vote} commit {self.commit} [{held}]"


EMPTY = GroupImage()
REMOVED = GroupImage(removed=True)
LogImage = dict[int, GroupImage]  # by group; a group that is not in it is empty


def entry_image(entry: Entry) -> EntryImage:
    """Return an entry as a value."""
    return entry.index, entry.term, entry.kind, entry.data


def group_image(view: StoredGroup) -> GroupImage:
    """Read everything of a group, byte for byte.

    Raises:
        CorruptLogError: something cannot be read.
    """
    first, last = view.first_index(), view.last_index()
    entries = view.entries(first, last + 1, 1 << 40) if last >= first else []
    state = view.hard_state
    return GroupImage(
        state.term, state.vote, tuple(map(entry_image, entries)), state.commit, state.commit
    )


def log_image(log: SharedLog, universe: int) -> LogImage:
    """Read everything a log holds of groups 1 to `universe`, and of all others it knows.

    Raises:
        CorruptLogError: something cannot be read.
    """
    image: LogImage = {}
    for group in sorted({*log.groups(), *range(1, universe + 1)}):
        try:
            view = log.group(group)
        except KeyError:
            image[group] = REMOVED
        else:
            held = group_image(view)
            if held != EMPTY:
                image[group] = held
    return image
