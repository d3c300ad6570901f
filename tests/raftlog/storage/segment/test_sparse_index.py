"""Finding many wanted indexes among many known ones."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_raftlog.storage.segment.sparse_index import Matching, SparseIndex, ascending_run

# Stretches of equal and of consecutive numbers, as snapshots of queues have them.
RUNS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 90)), max_size=12)


def ascending(runs: list[tuple[int, int]]) -> array[int]:
    out = array("Q")
    for gap, count in runs:
        first = (out[-1] if out else 0) + gap
        out.extend(range(first, first + count))
    return out


@given(RUNS, st.lists(st.integers(1, 1500), max_size=30), st.data())
def test_matching_finds_what_is_known_and_names_what_is_not(
    runs: list[tuple[int, int]], others: list[int], data: st.DataObject
) -> None:
    known = ascending(runs)
    dropped = data.draw(st.sets(st.sampled_from(known))) if known else set()
    wanted = array("Q", sorted({*known, *others} - dropped))
    count = data.draw(st.integers(0, len(wanted)))
    matched = Matching(known, wanted, count)
    found: list[int] = []
    for start, stop in zip(matched.starts, matched.stops, strict=True):
        assert start < stop
        found += known[start:stop]
    assert found == [index for index in wanted[:count] if index in known]
    assert matched.missing == [index for index in wanted[:count] if index not in known]


@given(RUNS)
def test_stretches_are_as_long_as_they_can_be(runs: list[tuple[int, int]]) -> None:
    indexes = ascending(runs)
    at = 0
    while at < len(indexes):
        stop = ascending_run(indexes, at, len(indexes))
        assert list(indexes[at:stop]) == list(range(indexes[at], indexes[at] + stop - at))
        assert stop == len(indexes) or indexes[stop] != indexes[stop - 1] + 1
        at = stop


def test_stretch_ends_where_it_is_told_to() -> None:
    assert ascending_run(array("Q", range(5, 30)), 3, 11) == 11


def test_equal_indexes_are_one_stretch_however_many_they_are() -> None:
    known = array("Q", range(1, 2_000_001, 2))
    matched = Matching(known, known[1000:-1], len(known) - 1001)
    assert (matched.starts, matched.stops, matched.missing) == ([1000], [len(known) - 1], [])


@pytest.mark.parametrize("count", [1, 15, 16, 40])
def test_stretches_are_taken_with_all_columns(count: int) -> None:
    taken = SparseIndex()
    taken.add(1, 10, 100)
    locations = array("Q", range(1000, 1100))
    lengths = array("I", range(2000, 2100))
    taken.take(array("Q", range(50, 150)), 5, locations, lengths, 7, count)
    assert list(taken.indexes) == [1, *range(55, 55 + count)]
    assert list(taken.locations) == [10, *range(1007, 1007 + count)]
    assert list(taken.lengths) == [100, *range(2007, 2007 + count)]
    taken.cut(0, 2)
    assert [taken.find(index) for index in (1, 55, 56)] == [-1, -1, 0 if count > 1 else -1]
    assert len(taken.locations) == len(taken.lengths) == count - 1
