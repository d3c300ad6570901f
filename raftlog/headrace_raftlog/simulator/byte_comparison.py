"""Comparison of a group in the real log with its model."""

from __future__ import annotations

from headrace_raftlog.model.membership import NOBODY
from headrace_raftlog.simulator.memory_log import MemoryLog
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.group.lost_entries import lost_indexes


def told(view: StoredGroup | None) -> str:
    """Return a line about a group."""
    if view is None:
        return "nothing"
    return (
        f"member {view.member}, {view.hard_state!r}, snapshot {view.snapshot_index}, "
        f"last {view.last_index()}"
    )


def equal(log: MemoryLog | None, view: StoredGroup | None) -> bool:
    """Return whether a real log holds exactly what an abstract one does, but for what rotted."""
    if view is None or view.member == 0:
        return log is None or log.member == 0
    if log is None or log.member != view.member:
        return False
    own, other = log.hard_state, view.hard_state
    if (own.term, own.vote) != (other.term, other.vote):
        return False
    if log.snapshot_index != view.snapshot_index or log.last_index() != view.last_index():
        return False
    lost = lost_indexes(view)
    for entry in log.items:
        if view.term_at(entry.index) != entry.term:
            return False
        if entry.index not in lost and view.entry(entry.index) != entry:
            return False
    if log.membership not in (view.membership, NOBODY):
        return False
    if not _same_incoming(log, view):
        return False
    return all(view.entry(i) == log.bodies[i] for i in log.bodies if i not in lost)


def _same_incoming(log: MemoryLog, view: StoredGroup) -> bool:
    """Return whether the same fetched entries wait for an install, as long as they should be."""
    held = view.incoming
    found = dict(zip(held.indexes, held.lengths, strict=True)) if held is not None else {}
    return found == {index: len(entry.data) for index, entry in log.incoming.items()}
