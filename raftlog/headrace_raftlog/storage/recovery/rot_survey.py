"""Second scan of the parts of a segment that are needed, after damage was found.

Where each needed record stands and how long it is, is known; so each is judged on its own, whatever
else in the file is not intact. The reading is done by another thread than the event loop's.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace_raftlog.storage.disk.files import Files, is_lost
from headrace_raftlog.storage.group.group_log import STATE_BYTES, StoredGroup
from headrace_raftlog.storage.segment.record import (
    RECORD_BASE,
    RECORD_ENTRY,
    RECORD_INCOMING,
    RECORD_PART,
    RECORD_SNAPSHOT,
    RECORD_STATE,
    record_bytes,
    record_group_at,
    record_index_at,
    record_type_at,
)

_ENTRIES: Final = (RECORD_ENTRY, RECORD_INCOMING)
_SNAPSHOTS: Final = (RECORD_SNAPSHOT, RECORD_PART)


class Needed(NamedTuple):
    """A durable record that is needed."""

    record_type: int  # a RECORD constant; RECORD_ENTRY also for an entry that was fetched
    group: int  # incarnation id
    entry_index: int  # of the entry; 0 for other records
    location: int  # packed
    size: int  # bytes


def needed_in(view: StoredGroup, sequence: int) -> list[Needed]:
    """Return what a group needs of a segment, by location."""
    low, high = sequence << 32, (sequence + 1) << 32
    out: list[Needed] = []

    def add(record_type: int, index: int, location: int, size: int) -> None:
        if low < location < high:
            out.append(Needed(record_type, int(view.group), index, location, size))

    first = int(view.snapshot_index) + 1
    for at, location in enumerate(view.locations):
        if low < location < high:
            add(RECORD_ENTRY, first + at, location, int(view.record_bytes_of(first + at)))
    live = view.live
    if live is not None:
        for at, location in enumerate(live.locations):
            if low < location < high:
                index = live.indexes[at]
                add(RECORD_ENTRY, index, location, int(view.record_bytes_of(index)))
    add(RECORD_STATE, 0, int(view.state_at), STATE_BYTES)
    add(RECORD_BASE, 0, int(view.base_at), int(view.base_bytes))
    stored = view.snapshot
    if stored is not None:
        add(RECORD_SNAPSHOT, 0, int(stored.location), int(stored.length))
        for part, size in zip(stored.parts, stored.part_bytes, strict=True):
            add(RECORD_PART, 0, int(part), int(size))
    return sorted(out, key=lambda each: each.location)


def damaged_of(files: Files, path: str, salt: int, needed: list[Needed]) -> list[Needed]:
    """Return which records of a segment are not intact. Touches nothing but the file.

    Raises OSError: the file cannot be read, for another reason than that the disk has lost it.
    """
    try:
        fd = files.open(path)
    except OSError as error:
        if not is_lost(error):
            raise
        return needed
    try:
        return [each for each in needed if not _is_intact(files, fd, salt, each)]
    finally:
        files.close(fd)


def _is_intact(files: Files, fd: int, salt: int, wanted: Needed) -> bool:
    try:
        data = files.read(fd, wanted.size, wanted.location & 0xFFFFFFFF)
    except OSError as error:
        if not is_lost(error):
            raise
        return False
    if record_bytes(data, 0, len(data), salt) != wanted.size:
        return False
    found = record_type_at(data, 0)
    if record_group_at(data, 0) != wanted.group:
        return False
    if wanted.record_type in _ENTRIES:
        return found in _ENTRIES and record_index_at(data, 0) == wanted.entry_index
    if wanted.record_type in _SNAPSHOTS:
        return found in _SNAPSHOTS
    return bool(found == wanted.record_type)
