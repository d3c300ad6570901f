"""Snapshots that are small enough to be fetched together with those of other groups."""

from __future__ import annotations

from typing import NamedTuple

from headrace_protos.raftlog.v1 import transport_pb2 as wire
from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import SMALL_SNAPSHOT_BYTES_MAX
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.transport.bulk_readers import EntryReader, SnapshotReader
from headrace_raftlog.transport.codec import FrameError

_INDEX_BYTES = 8


class Wanted(NamedTuple):
    """A snapshot that a member asks for."""

    member: int  # its member id
    index_min: int  # least index of use
    known: int  # it has the entries up to here, as far as they are live


class SmallSnapshot(NamedTuple):
    """A snapshot, and the live entries that the member who asked for it lacks.

    Attributes:
        entries: none where they are not small, though some are lacking.
    """

    group: int
    snapshot: Snapshot
    entries: list[Entry]


def is_small(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is sent together with others."""
    size = len(snapshot.state) + _INDEX_BYTES * len(snapshot.live)
    return size <= SMALL_SNAPSHOT_BYTES_MAX


def read_small(raw: wire.SmallSnapshot, asked: Wanted) -> SmallSnapshot:
    """Return what a peer sent.

    Raises:
        FrameError: no correct peer sends that.
    """
    reader = SnapshotReader(asked.index_min)
    reader.receive(wire.SnapshotPart(header=raw.header))
    reader.receive(wire.SnapshotPart(state=raw.state))
    reader.receive(wire.SnapshotPart(live=raw.live))
    snapshot = reader.finish()
    size = sum(len(entry.data) for entry in raw.entries)
    if not is_small(snapshot) or size > SMALL_SNAPSHOT_BYTES_MAX:
        raise FrameError(f"the snapshot of group {raw.group} is not small")
    entries: list[Entry] = []
    if raw.entries:
        lacking = [(index, index) for index in snapshot.live if index > asked.known]
        entry_reader = EntryReader(lacking, snapshot.term)
        entries = entry_reader.receive(raw.entries)
        entry_reader.finish()
    return SmallSnapshot(raw.group, snapshot, entries)
