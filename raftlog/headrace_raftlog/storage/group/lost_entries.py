"""Entries with damaged records: known by term and length, until repaired from a peer.

Such an entry still counts as the member's: it was acknowledged, and whether it takes part in
elections and acknowledges more depends on it. Its host lets the group stand still meanwhile.
"""

from __future__ import annotations

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.membership import Membership, decode_membership
from headrace_raftlog.storage.group.group_log import StoredGroup


def lose(view: StoredGroup, index: int) -> bool:
    """Note that the durable record of an entry is not intact; return whether that is news."""
    location = view.location_of(index)
    if location == 0:
        return False  # it died meanwhile, or is in memory
    if view.lost is None:
        view.lost = {}
    news = view.lost.get(index) != location
    view.lost[index] = location
    return news


def lost_indexes(view: StoredGroup) -> list[int]:
    """Return the indexes of entries that are needed and not intact on disk, ascending."""
    lost = view.lost
    if lost is None:
        return []
    for index, location in list(lost.items()):
        if view.location_of(index) != location:  # it died, or stands elsewhere now
            del lost[index]
    if not lost:
        view.lost = None
    return sorted(lost)


def place_of(view: StoredGroup, index: int) -> str:
    """Return file and byte of the durable record of an entry."""
    location = view.location_of(index)
    return f"{view.reader.path(location >> 32)}, byte {location & 0xFFFFFFFF}"


def put_back(view: StoredGroup, entry: Entry) -> bool:
    """Take in the body of a lost entry, in memory only so far; False when it cannot be it.

    Equal index and term means equal entries (log matching); one before the snapshot is committed.
    """
    index = entry.index
    lost = view.lost
    if lost is None or index not in lost:
        return False
    if index in view.recent:
        return False
    if len(entry.data) != view.length_of(index):
        return False
    if index > view.snapshot_index and entry.term != view.term_at(index):
        return False
    view.recent[index] = entry
    return True


def is_durable(view: StoredGroup) -> bool:
    """Return whether the snapshot that took the place of lost entries, if one did, is on disk.

    Before that, what it covers must not be acknowledged.
    """
    return view.snapshot is None or view.snapshot.location != 0


def cut_lost(view: StoredGroup, index: int) -> None:
    """Drop a lost entry that was never committed, and all behind it.

    It is durable with the next append, which proves the cut by its era. A start before that finds
    the entry lost again.
    """
    view.truncate(index)
    view.era += 1


def drop_incoming(view: StoredGroup, index: int) -> None:
    """Forget a fetched entry that was found damaged before anything was counted."""
    incoming = view.incoming
    at = incoming.find(index) if incoming is not None else -1
    if incoming is not None and at >= 0:
        incoming.cut(at, at + 1)
        view.incoming = incoming if incoming.indexes else None


def newest_membership(view: StoredGroup) -> Membership:
    """Return the newest membership that is readable, of a group of which not all is."""
    for index in reversed(view.configs or []):
        try:
            return decode_membership(view.entry(index).data)
        except CorruptLogError:
            continue
    return view.membership
