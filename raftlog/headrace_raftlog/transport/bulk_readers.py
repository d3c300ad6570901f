"""Assembly of what peers send in pieces: entries and snapshots, checked as they come."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from io import BytesIO
from typing import Any, Final

from headrace_protos.raftlog.v1.transport_pb2 import SnapshotHeader, SnapshotPart, StoredEntry
from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import (
    ENTRY_BYTES_MAX,
    SNAPSHOT_LIVE_MAX,
    SNAPSHOT_STATE_BYTES_MAX,
)
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.transport.codec import FrameError, check_entry, read_membership

INDEX_MAX: Final = (1 << 63) - 1


class EntryReader:
    """Puts entries together that came in pieces, and checks that they were asked for.

    Args:
        ranges: runs (first, last) of indexes that were asked for.
    """

    def __init__(self, ranges: list[tuple[int, int]], term_max: int) -> None:
        self._wanted = (index for first, last in ranges for index in range(first, last + 1))
        self._term_max = term_max  # highest term that any of them can have
        self._begun: tuple[int, int, int] | None = None  # index, term and kind of the cut one
        self._pieces = BytesIO()  # which grows in place: no long entry is copied as a whole
        self._size = 0

    def receive(self, raws: Iterable[StoredEntry]) -> list[Entry]:
        """Return the entries that are whole now.

        Raises FrameError: one was not asked for or is too long, or pieces do not fit.
        """
        return [entry for raw in raws if (entry := self._take(raw)) is not None]

    def finish(self) -> None:
        """Check that all has come.

        Raises FrameError: something is missing.
        """
        if self._begun is not None or next(self._wanted, 0):
            raise FrameError("entries are missing from a complete answer")

    def _take(self, raw: StoredEntry) -> Entry | None:
        named = (raw.index, raw.term, raw.kind)
        if self._begun is None:
            if raw.index != next(self._wanted, 0) or not 1 <= raw.term <= self._term_max:
                raise FrameError(f"entry {raw.index} of term {raw.term} was not asked for")
            self._begun = named
        elif self._begun != named:
            raise FrameError(f"entry {raw.index} comes before the end of {self._begun[0]}")
        self._pieces.write(raw.data)
        self._size += len(raw.data)
        if self._size > ENTRY_BYTES_MAX or (raw.more and not raw.data):
            raise FrameError(f"entry {raw.index} comes in pieces without end")
        if raw.more:
            return None
        entry = Entry(raw.index, raw.term, raw.kind, self._pieces.getvalue())
        check_entry(entry)
        self._begun = None
        self._pieces = BytesIO()
        self._size = 0
        return entry


class SnapshotReader:
    """Puts the parts of a snapshot together and checks them."""

    def __init__(self, index_min: int) -> None:
        self._index_min = index_min
        self._header: SnapshotHeader | None = None
        self._state: list[bytes] = []
        self._state_bytes = 0
        self._live = array("Q")
        self._last = 0

    def receive(self, part: SnapshotPart) -> None:
        """Take the next part.

        Raises FrameError: it does not fit those before it.
        """
        kind = part.WhichOneof("part")
        if kind is None or (self._header is None) != (kind == "header"):
            raise FrameError(f"snapshot part {kind} in the wrong place")
        if kind == "header":
            self._take_header(part.header)
        elif kind == "state":
            self._state.append(part.state)
            self._state_bytes += len(part.state)
        else:
            self._take_live(part.live.steps)
        header = self._header
        assert header is not None, "the first part is the header"
        if self._state_bytes > header.state_bytes or len(self._live) > header.live_count:
            raise FrameError("snapshot is longer than its header says")

    def finish(self) -> Snapshot:
        """Return the whole.

        Raises FrameError: something is missing.
        """
        header = self._header
        if header is None or self._state_bytes != header.state_bytes:
            raise FrameError("snapshot is shorter than its header says")
        if len(self._live) != header.live_count:
            raise FrameError("snapshot has fewer live indexes than its header says")
        membership = read_membership(header.membership)
        return Snapshot(header.index, header.term, membership, b"".join(self._state), self._live)

    def _take_header(self, header: SnapshotHeader) -> None:
        read_membership(header.membership)
        if not self._index_min <= header.index <= INDEX_MAX or not 1 <= header.term <= INDEX_MAX:
            raise FrameError(f"snapshot {header.index} of term {header.term}")
        if header.state_bytes > SNAPSHOT_STATE_BYTES_MAX or header.live_count > SNAPSHOT_LIVE_MAX:
            raise FrameError(
                f"snapshot of {header.state_bytes} bytes with {header.live_count} live entries"
            )
        self._header = header

    def _take_live(self, steps: Any) -> None:
        assert self._header is not None
        last = self._last
        for step in steps:
            last += step
            if step == 0 or last > self._header.index:
                raise FrameError("live indexes do not ascend to the snapshot's")
            self._live.append(last)
        self._last = last
