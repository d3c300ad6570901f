"""Effect of a snapshot on a group's index, against a plain model."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.storage.group.accounting import Ledger
from headrace_raftlog.storage.group.compaction import compact, lacking
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.segment.record import HEADER_BYTES
from headrace_raftlog.storage.segment.segment import SegmentReader
from headrace_simulation.memory_files import MemoryFiles

SEGMENT = 1 << 32  # location of the first byte of segment 1


class Model:
    """A group whose entries are written as soon as they are appended, and its expected content."""

    def __init__(self) -> None:
        self.ledger = Ledger(1 << 20)
        self.group = StoredGroup(1, SegmentReader(MemoryFiles(), "/log"), self.ledger)
        self.places: dict[int, tuple[int, int]] = {}  # index -> location, length
        self.end = SEGMENT

    def append(self, lengths: list[int]) -> None:
        """Append entries of these lengths; some stay in memory."""
        first = self.group.last_index() + 1
        entries = [Entry(first + at, 1, 0, bytes(length)) for at, length in enumerate(lengths)]
        self.group.append(entries)
        start = self.end
        for entry in entries:
            self.places[entry.index] = (self.end, len(entry.data))
            self.end += HEADER_BYTES + len(entry.data)
        self.group.settle(entries, start)
        for entry in entries[::2]:
            self.group.forget(entry.index, entry.index + 1)

    def snapshot(self, live: list[int], index: int) -> None:
        """Keep only these entries up to `index`."""
        known = array("Q", live)
        assert lacking(self.group, known, index) == []
        compact(self.group, index, 1, known)
        self.ledger.settle(self.ledger.dying)
        self.ledger.dying = {}
        self.places = {
            at: place for at, place in self.places.items() if at > index or at in set(live)
        }

    def check(self) -> None:
        """Compare everything."""
        group = self.group
        live = [index for index in sorted(self.places) if index <= group.snapshot_index]
        assert list(group.live_indexes()) == live
        for index in range(1, group.last_index() + 1):
            assert group.has(index) == (index in self.places)
            if index in self.places:
                found = (group.location_of(index), group.length_of(index))
                assert found == self.places[index]
        assert set(group.recent) <= set(self.places)
        size = sum(HEADER_BYTES + length for _, length in self.places.values())
        assert self.ledger.live == size


@settings(max_examples=200)
@given(st.data())
def test_snapshots_one_after_the_other_keep_what_is_live_and_nothing_else(
    data: st.DataObject,
) -> None:
    model = Model()
    for _ in range(data.draw(st.integers(1, 4))):
        model.append([3] * data.draw(st.integers(1, 60)))
        index = data.draw(st.integers(model.group.first_index(), model.group.last_index()))
        candidates = [at for at in sorted(model.places) if at <= index]
        live = _some(data, candidates)
        model.snapshot(live, index)
        model.check()


def _some(data: st.DataObject, candidates: list[int]) -> list[int]:
    """Drop stretches, or single ones, or every other one."""
    way = data.draw(st.integers(0, 3))
    if way == 0:
        return candidates[:: data.draw(st.integers(2, 5))]
    kept = list(candidates)
    for _ in range(data.draw(st.integers(0, 12))):
        start = data.draw(st.integers(0, len(kept)))
        del kept[start : start + data.draw(st.integers(0, 4 * way))]
    return kept


@given(st.sets(st.integers(1, 60)), st.integers(0, 60))
def test_lacking_names_what_neither_snapshot_nor_trusted_log_has(
    live: set[int], trusted: int
) -> None:
    model = Model()
    model.append([1] * 40)
    model.snapshot([1, 2, 5, 19], 20)
    wanted = array("Q", sorted(live))
    have = {1, 2, 5, 19, *range(21, min(trusted, 40) + 1)}
    assert lacking(model.group, wanted, trusted) == sorted(live - have)
    model.group.add_incoming([Entry(50, 1, 0, b""), Entry(30, 1, 0, b"")])
    assert lacking(model.group, wanted, trusted) == sorted(live - have - {30, 50})
