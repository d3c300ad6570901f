"""Snapshots that are small enough to be fetched together with those of other groups."""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace_protos.raftlog.v1 import transport_pb2 as wire
from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import ENTRY_COST_BYTES, SMALL_SNAPSHOT_BYTES_MAX
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.transport.bulk_readers import EntryReader, SnapshotReader
from headrace_raftlog.transport.codec import FrameError

INDEX_BYTES: Final = 8  # of a live index in memory


class Wanted(NamedTuple):
    """A snapshot that a member asks for."""

    index_min: int  # least index of use
    known: int  # it has the entries up to here, as far as they are live


class SmallSnapshot(NamedTuple):
    """A snapshot, and the live entries that the member who asked for it lacks."""

    group: int
    snapshot: Snapshot
    entries: list[Entry]


def is_small(snapshot: Snapshot) -> bool:
    """Return whether a snapshot may be sent together with others."""
    size = len(snapshot.state) + INDEX_BYTES * len(snapshot.live)
    return size <= SMALL_SNAPSHOT_BYTES_MAX


def are_small(count: int, data_bytes: int) -> bool:
    """Return whether so many entries may be sent with their snapshot."""
    return data_bytes + ENTRY_COST_BYTES * count <= SMALL_SNAPSHOT_BYTES_MAX


def read_small(raw: wire.SmallSnapshot, asked: Wanted) -> SmallSnapshot:
    """Return what a peer sent.

    Raises FrameError: no correct peer sends that.
    """
    reader = SnapshotReader(asked.index_min)
    reader.receive(wire.SnapshotPart(header=raw.header))
    reader.receive(wire.SnapshotPart(state=raw.state))
    reader.receive(wire.SnapshotPart(live=raw.live))
    snapshot = reader.finish()
    size = sum(len(entry.data) for entry in raw.entries)
    if not is_small(snapshot) or not are_small(len(raw.entries), size):
        raise FrameError(f"the snapshot of group {raw.group} is not small")
    lacking = [(index, index) for index in snapshot.live if index > asked.known]
    entry_reader = EntryReader(lacking, snapshot.term)
    entries = entry_reader.receive(raw.entries)
    entry_reader.finish()
    return SmallSnapshot(raw.group, snapshot, entries)
