"""Finding many wanted indexes among many known ones."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from headrace_raftlog.storage.sparse_index import Matching, SparseIndex, ascending_run

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


def test_extend_takes_all_columns() -> None:
    one, other = SparseIndex(), SparseIndex()
    one.add(1, 10, 100)
    for index in (2, 4, 6):
        other.add(index, 10 * index, 100 * index)
    one.extend(other, 1, 3)
    assert list(one.indexes) == [1, 4, 6]
    assert list(one.locations) == [10, 40, 60]
    assert list(one.lengths) == [100, 400, 600]
    assert [one.find(index) for index in (1, 2, 4, 6)] == [0, -1, 1, 2]
